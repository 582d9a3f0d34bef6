"""`tpu cluster verify` in a sandbox: real Kubernetes, JobSet and Kueue, and JAX processes as hosts."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.box import TEAM, Box, sandbox
from support.person import Person
from tpukit.cluster.verify.checks import NAMES
from tpukit.host.probe import SIMULATED
from tpukit.places.local import processes as pods

BOTH = "v4-16:spot × 2"


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    with sandbox(tmp_path_factory.mktemp("verify"), "verify") as box:
        box.furnish()
        box.ask("POST", "storage/v1/b?project=tpu-project", {"name": "my-runs", "location": "US"})
        yield box


@pytest.fixture(scope="module")
def ada(box: Box) -> Iterator[Person]:
    person = Person(box.home / "ada", box.place.kubeconfig)
    person.settle(image="image:1")
    yield person
    pods.kill_strays(person.home)


def test_two_slices_pass_and_what_is_taken_away_fails_its_check_and_is_a_change(
    box: Box, ada: Person, tmp_path: Path
) -> None:
    ada.tpu("team", "add", TEAM, "--access", "tpu")

    healthy = json.loads(ada.tpu("cluster", "verify", "--json").stdout)
    states = {(one["target"], one["check"]): (one["state"], one["text"]) for one in healthy["results"]}
    assert {target for target, _ in states} == {"tpu-0", "tpu-1", BOTH}
    assert {check for _, check in states} == set(NAMES)
    assert "failed" not in {state for state, _ in states.values()}, states
    unseen = {check: text for (_, check), (state, text) in states.items() if state == "not seen"}
    assert set(unseen) == {"ici", "dcn", "memlock"}, states
    assert all(text.startswith(SIMULATED) for text in unseen.values())
    assert not box.cluster.list("JobSet", TEAM), "the slices are free again"

    ada.settle(artifacts="gs://nobody-made-it")
    ada.tpu("team", "add", TEAM, "--access", "restricted")
    junit = tmp_path / "verify.xml"
    broken = ada.tpu("cluster", "verify", "--pool", "tpu-0", "--junit", junit, fails=True)
    rows = {line.split()[1]: line for line in broken.stdout.splitlines() if line.startswith("tpu-0")}
    assert "404" in rows["bucket-write"]
    assert "give the team's account" in rows["bucket-write"]
    assert "tpu team add TEAM --access tpu" in rows["memlock"]
    assert {check for check, row in rows.items() if "failed" in row} == {"bucket-write", "memlock"}
    assert "nothing could be written" in rows["bucket-read"]
    assert "since the last verification: tpu-0 bucket-write: was passed, is failed" in broken.stderr
    suite = ET.fromstring(junit.read_text())
    assert suite.get("failures") == "2"
    assert suite.find("testcase[@name='tpu-0 bucket-write']/failure") is not None
