"""The replay of recorded conversations: reading, playing and comparing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from replay import __main__ as command
from replay import playing, recordings
from replay.comparing import compare
from support.page_commands import ROOT, commands

RECORDED = """\
POST https://compute.googleapis.com/compute/v1/projects/${projectId}/global/networks?alt=json
Content-Type: application/json

{
  "autoCreateSubnetworks": false,
  "name": "${networkID}"
}

200 OK
Content-Type: application/json; charset=UTF-8
Server: ESF

{
  "name": "${operationID}",
  "status": "RUNNING",
  "targetLink": "https://www.googleapis.com/compute/v1/projects/${projectId}/global/networks/${networkID}"
}

---

GET https://compute.googleapis.com/compute/v1/projects/${projectId}/global/operations/${operationID}?alt=json

200 OK
Content-Type: application/json; charset=UTF-8

{
  "name": "${operationID}",
  "status": "DONE"
}

---

GET https://compute.googleapis.com/compute/v1/projects/${projectId}/global/networks/${networkID}?alt=json

200 OK
Content-Type: application/json; charset=UTF-8

{
  "kind": "compute#network",
  "mtu": 9000,
  "invented": {
    "one": 1,
    "two": 2
  }
}

---

POST https://compute.googleapis.com/compute/v1/projects/${projectId}/global/urlMaps?alt=json

{
  "name": "map"
}

200 OK

{
  "name": "${operationID}",
  "operationType": "insert"
}

---

GET https://compute.googleapis.com/compute/v1/projects/${projectId}/global/operations/${operationID}

200 OK

{
  "status": "DONE"
}

---

GRPC /google.something/Method

---

GET https://unknown.googleapis.com/v1/things

200 OK

{}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    file = tmp_path / "recordings" / "network" / "_http.log"
    file.parent.mkdir(parents=True)
    file.write_text(RECORDED)
    return tmp_path / "recordings"


def test_recorded_file_is_read_as_requests_with_their_answers(folder):
    first, *_ = exchanges = recordings.read(next(iter(recordings.files(folder))))
    assert [(one.method, one.status) for one in exchanges] == [
        *(("POST", 200), ("GET", 200), ("GET", 200), ("POST", 200), ("GET", 200), ("GET", 200)),
    ]
    assert first.path == "compute/v1/projects/${projectId}/global/networks"
    assert (first.query, first.body) == ({}, {"autoCreateSubnetworks": False, "name": "${networkID}"})


def test_conversation_is_played_with_the_sandboxs_names_for_operations(folder, tmp_path):
    exchanges = recordings.read(next(iter(recordings.files(folder))))
    created, ended, shown, unserved, of_unserved = playing.play(exchanges, tmp_path / "cloud")
    assert (created.compared.agrees, ended.compared.agrees) == (True, True)
    assert created.answer["name"] in ended.path
    assert [(one.path, one.missing) for one in shown.compared.differences] == [
        *(("mtu", True), ("invented.one", True), ("invented.two", True)),
    ]
    assert not unserved.served
    assert not of_unserved.served, "an operation of a request that is not served"


def test_status_that_differs_leaves_every_field_missing():
    found = compare(200, {"a": 1, "b": [{"c": 2}]}, 404, {"error": {}})
    assert (found.fields, found.missing, found.status) == (2, 2, False)


@pytest.mark.parametrize(
    "value", ["2024-04-01T12:34:56.123456Z", "abcdef0123A=", "10.112.0.0/14", "1.30.5-gke.1014001"]
)
def test_value_that_was_made_anonymous_agrees_with_any_other_text(value):
    assert compare(200, {"a": value}, 200, {"a": "another"}).agrees
    assert not compare(200, {"a": value}, 200, {}).agrees


def test_value_that_differs_is_no_missing_field():
    found = compare(200, {"a": True, "b": "X"}, 200, {"a": False, "b": "X"})
    assert (found.missing, [one.path for one in found.differences]) == (0, ["a"])


def test_items_of_a_list_are_compared_with_their_namesakes():
    recorded = {"pools": [{"name": "a", "size": 1}, {"name": "b", "size": 2}]}
    assert compare(200, recorded, 200, {"pools": [{"name": "b", "size": 2}, {"name": "a", "size": 1}]}).agrees


def test_lines_of_the_page_print_a_row_for_each_api(folder, tmp_path):
    checkout = tmp_path / "tpukit"
    checkout.mkdir()
    for name in ("tools", "tests"):
        (checkout / name).symlink_to(ROOT / name)
    folder.rename(tmp_path / "k8s-config-connector")
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    every, only = commands("CONTRIBUTING.md", "Recorded conversations")
    for line in (every, only.replace("--api container", "--api compute")):
        done = subprocess.run(["bash", "-euc", line], cwd=checkout, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        rows = [row for row in done.stdout.splitlines() if row.startswith("| compute")]
        assert rows == ["| compute | 5 | 3 | 3 | 2 | 9 | 6 (67 %) | 3 | 0 |"]


def test_command_over_a_folder_without_recordings_exits_2(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["replay", str(tmp_path)])
    assert command.main() == 2
    assert "_http.log" in capsys.readouterr().err
