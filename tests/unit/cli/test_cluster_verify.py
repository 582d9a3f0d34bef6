"""`tpu cluster verify` on a cluster in memory."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest
from click.testing import CliRunner

from support.verify_world import GOOD, World
from tpukit.cli import command, context
from tpukit.core.errors import Invalid


@pytest.fixture
def world(tmp_path, monkeypatch):
    world = World(tmp_path)
    settings = tmp_path / "settings.yaml"
    settings.write_text("team: research\nartifacts: gs://my-artifacts\nimage: i:1\n")
    monkeypatch.setenv("TPUKIT_SETTINGS", str(settings))
    monkeypatch.setenv("TPUKIT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(context, "places", lambda: {"gke": world.place})
    monkeypatch.setattr(context, "session", lambda: world.session)
    monkeypatch.setattr(context, "CLOCK", world)
    yield world
    world.close()


def verify(*words):
    return CliRunner().invoke(command, ["cluster", "verify", *map(str, words)], catch_exceptions=True)


def rows(done):
    return {
        (line.split()[0], line.split()[1]): line for line in done.stdout.splitlines()[1:] if line.startswith("pool")
    }


def test_healthy_cluster_prints_a_row_for_each_check_and_exits_0(world):
    done = verify()
    assert done.exit_code == 0, done.output
    found = rows(done)
    assert "passed" in found["pool-0", "chips"]
    assert "no source states what to expect" in found["pool-1", "ici"], "of v4"
    assert "v4-16:spot × 2  dcn" in done.stdout
    assert "since the last verification" not in done.stderr
    assert "measures 2 × v4-16:spot" in done.stderr
    assert list(dict.fromkeys(target for target, _ in found)) == ["pool-0", "pool-1"]


def test_failed_check_says_what_to_do_exits_1_and_is_a_change_since_the_last_time(world, tmp_path):
    assert verify().exit_code == 0
    world.values = lambda job, host: {"values": {**GOOD, "clock": 9.0, "bucket-write": "403 denied"}}
    done = verify("--junit", tmp_path / "verify.xml")
    assert done.exit_code == 1
    assert "failed    0-0; recreate the node" in rows(done)["pool-0", "clock"]
    assert "403 denied; give the team's account" in rows(done)["pool-1", "bucket-write"]
    assert "since the last verification: pool-0 clock: was passed, is failed" in done.stderr
    suite = ET.fromstring((tmp_path / "verify.xml").read_text())
    assert suite.get("failures") == "6"


def test_json_has_every_result_and_the_changes(world):
    verify()
    world.values = lambda job, host: {"values": {**GOOD, "chips": 3}}
    done = verify("--json", "--pool", "pool-1")
    document = json.loads(done.stdout)
    assert (done.exit_code, document["passed"]) == (1, False)
    assert {one["target"] for one in document["results"]} == {"pool-1"}
    assert document["changes"] == ["pool-1 chips: was passed, is failed"]
    again = json.loads(verify("--json").stdout)
    assert "pool-0 chips: was passed, is failed" in again["changes"], "one pool alone says nothing of the others"
    assert not any(line.startswith("pool-1 chips") for line in again["changes"])


def test_cluster_that_measures_nothing_exits_1(world):
    world.admits = False
    done = verify("--timeout", "5s")
    assert done.exit_code == 1
    assert "no report in time" in rows(done)["pool-0", "chips"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--timeout", "soon"], "--timeout: 'soon' is not a duration"),
        (["--timeout", "0s"], "is shorter than 1 s"),
        (["--junit", "/nowhere/verify.xml"], "--junit: /nowhere/verify.xml cannot be written"),
        (["--team", "other"], "there is no team other"),
        (["--pool", "other"], "there is no pool other"),
    ],
)
def test_wrong_option_is_refused_before_a_job_is_sent(world, words, said):
    done = verify(*words)
    assert said in str(done.exception)
    assert isinstance(done.exception, Invalid) == (words[0] in ("--timeout", "--junit"))
    assert not world.jobs
