"""One broken zone, record, clock, sample or document stops nothing else in a fleet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from support.fleet_users import users
from support.fleet_world import ZONES, World
from support.waiting import PATIENCE
from tpukit.core.errors import Denied, Invalid, Transient
from tpukit.fleet import progress, streams, wishes
from tpukit.fleet.decide import PERMANENT, decide
from tpukit.fleet.progress import Made
from tpukit.fleet.records import WORKERS, Worker
from tpukit.fleet.seen import Host, Seen
from tpukit.fleet.verify import verify
from tpukit.kernel.store import Kind

TWO = "--zones us-central1-a,us-central1-b --workers-per-zone 1"


class Newer(msgspec.Struct):
    """A record of a version with another worker numbering."""

    number: Any
    state: str
    order: float


@pytest.fixture
def world(tmp_path: Path):
    made = World(tmp_path, shards=100_000)
    yield made
    made.close()


def refuse(world: World, monkeypatch, zone: str, error: Exception) -> None:
    for name in ("nodes", "queued"):
        ask = getattr(world.cloud, name)

        def refusing(asked: str, ask=ask):
            if asked == zone:
                raise error
            return ask(asked)

        monkeypatch.setattr(world.cloud, name, refusing)


def test_zone_that_cannot_be_listed_is_named_by_status_and_list_and_the_others_are_shown(world, tmp_path, monkeypatch):
    (ada,) = users(world, tmp_path, monkeypatch, "ada")
    ada.run(f"create {TWO}")
    refuse(world, monkeypatch, ZONES[0], Denied("list TPU VMs of us-central1-a: 403"))
    shown = ada.run("status --json")
    rows = {one["tpu"]: one for one in json.loads(shown[shown.index("{") :])["workers"]}
    assert rows["tpu-us-central1-b-0"]["state"] == "READY"
    assert rows["tpu-us-central1-a-0"]["state"] == "UNKNOWN"
    assert "us-central1-a cannot be listed" in rows["tpu-us-central1-a-0"]["message"]
    said = ada.run("list")
    assert "us-central1-a cannot be listed: list TPU VMs of us-central1-a: 403" in said
    assert "tpu-us-central1-b-0  us-central1-b  ada  READY  ada" in said


def test_status_shows_the_quota_that_google_names_beside_the_tpu_vm(world, tmp_path, monkeypatch):
    (ada,) = users(world, tmp_path, monkeypatch, "ada")
    why = "Quota limit 'TPUV3sPreemptiblePerProjectPerZoneForTPUAPI' has been exceeded. Limit: 8"

    def full(zone, request):
        raise Invalid(why)

    monkeypatch.setattr(world.cloud, "request", full)
    ada.type(f"create --zones {ZONES[0]} --workers-per-zone 1")
    shown = ada.run(f"status --zones {ZONES[0]} --json")
    (row,) = json.loads(shown[shown.index("{") :])["workers"]
    assert (row["tpu"], row["message"]) == (f"tpu-{ZONES[0]}-0", why)


def test_zone_that_cannot_be_listed_stops_no_worker_of_another_zone(world, monkeypatch):
    world.want(per_zone=1)
    refuse(world, monkeypatch, ZONES[0], Transient("503"))
    for _ in range(12):
        world.round()
    assert sorted(world.cloud.made) == ["tpu-us-central1-b-0"]


def test_worker_is_not_requested_while_a_zone_in_which_it_may_be_cannot_be_listed(world, monkeypatch):
    world.want([*ZONES], 1)
    world.until_working()
    worker = next(one for one in world.workers() if one.zones[0] == ZONES[0])
    moved = replace(worker, zone=ZONES[1], used=[ZONES[0]])
    entry = world.store.get(WORKERS, worker.key)
    world.store.put(WORKERS, entry, moved)
    with monkeypatch.context() as patch:
        refuse(world, patch, ZONES[0], Transient("503"))
        for _ in range(10):
            world.round()
        assert moved.tpu not in {**world.cloud.made, **world.cloud.requests}
        shown = next(one for one in world.workers() if one.slot == worker.slot)
        assert "us-central1-a cannot be listed" in shown.message
    for _ in range(10):
        world.round()
    assert sorted(world.cloud.made) == ["tpu-us-central1-a-0", "tpu-us-central1-b-0"]


def test_worker_whose_record_cannot_be_read_keeps_its_tpu_vm_and_the_others_are_deleted(world, tmp_path, monkeypatch):
    (ada,) = users(world, tmp_path, monkeypatch, "ada")
    ada.run(f"create {TWO}")
    newer = Kind("fleet_workers", Newer, state="state", order="order")
    entry = ada.store.get(newer, "ada-us-central1-a-0")
    ada.store.put(newer, entry, Newer("zero", "active", 1.0))
    assert list(wishes.unreadable(ada.store, "ada")) == ["ada-us-central1-a-0"]
    said = ada.run(f"delete --zones {','.join(ZONES)} --yes")
    assert "the record ada-us-central1-a-0 cannot be read and is left alone" in said
    assert sorted(world.cloud.made) == ["tpu-us-central1-a-0"]


def test_launches_under_a_clock_that_is_a_day_ahead_and_then_right_all_begin(world):
    world.want([ZONES[0]], 1)
    world.clock.set(world.clock.now() + 86400)
    world.until_working()
    world.clock.set(world.clock.now() - 86400)
    for number in (2, 3):
        (program,) = world.hosts.running().values()
        program.code = 1
        for _ in range(4):
            world.round()
        assert (len(world.hosts.running()), world.hosts.starts) == (1, number)


def test_launch_by_a_driver_without_the_record_has_a_higher_number_than_the_host_knows(world, tmp_path):
    world.want([ZONES[0]], 1)
    world.until_working()
    (program,) = world.hosts.running().values()
    program.attempt, program.code = 10**10, 1  # an earlier version whose clock was far ahead
    world.move(tmp_path / "elsewhere.db")
    world.want([ZONES[0]], 1)
    for _ in range(4):
        world.round()
    (program,) = world.hosts.running().values()
    assert program.attempt == 10**10 + 1


@pytest.mark.parametrize("report", ["{", "[1, 2]", '{"step": "many", "shards": NaN}', '{"step": 1e400}', "null"])
def test_report_of_one_program_that_cannot_be_read_stops_no_other_worker(world, report):
    world.want([ZONES[0]], 2)
    world.until_working()
    before = world.hosts.starts
    next(iter(world.hosts.running().values())).report = report
    world.cloud.preempt("tpu-us-central1-a-1")
    for _ in range(20):
        world.round()
    assert (len(world.hosts.running()), world.hosts.starts) == (2, before + 1)


@pytest.mark.parametrize("content", ["{", '{"shards": 3}', "[]", '{"shards": [{}]}'])
def test_checkpoint_that_cannot_be_read_is_named_and_the_others_count(tmp_path, content):
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    right = {"shards": [{"worker": "tpu-us-central1-a-0", "samples": 4}]}
    right |= {"total_shards": 1, "total_samples_processed": 4}
    (folder / "stream_000.json").write_text(json.dumps(right))
    (folder / "stream_001.json").write_text(content)
    made = progress.read(str(tmp_path))
    assert (made.total, made.workers) == (Made(1, 4), {"us-central1-a-0": Made(1, 4)})
    (problem,) = made.problems
    assert f"{tmp_path}/checkpoints/stream_001.json cannot be read" in problem


def worked(tmp_path: Path, *words: str, program: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    fixture = Path(__file__).resolve().parents[2] / "fixtures" / "fleet_program.py"
    env = {**os.environ, "PYTHONPATH": str(fixture.parents[2] / "tools"), "TPUKIT_PROGRESS": str(tmp_path / "said")}
    env |= more
    argv = [sys.executable, "-m", "tpukit.host.worker", "--data", str(tmp_path / "datasets"), *words]
    argv += ["--output", str(tmp_path / "activations"), "--program", program or f"{fixture}:make"]
    argv += ["--home", str(tmp_path / "w"), "--shard-samples", "4"]
    return subprocess.run(argv, env=env, check=False, capture_output=True, text=True, timeout=PATIENCE)


def test_sample_that_is_not_json_is_left_out_and_named_and_the_rest_is_done(tmp_path):
    lines = [f'{{"text": "sample {number}"}}' for number in range(16)]
    lines[5] = '{"text": '
    lines[8:12] = ["broken"] * 4  # a whole shard
    (tmp_path / "data.jsonl").write_text("".join(f"{line}\n" for line in lines))
    streams.split([tmp_path / "data.jsonl"], tmp_path / "datasets", 1)
    done = worked(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "stream_000.jsonl, sample 5 is left out" in done.stdout
    warning = json.loads((tmp_path / "said").read_text())["warning"]
    assert "unreadable samples of stream_000.jsonl, which are left out: 5" in warning
    verdict = verify(str(tmp_path / "datasets"), str(tmp_path / "activations"))
    assert (verdict.shards, verdict.samples) == (4, 11)
    assert verdict.problems == (
        "stream_000/shard_00001.txt lacks 1 sample that could not be read",
        "stream_000/shard_00002.txt lacks 4 samples that could not be read",
    )


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("{folder}/p.py:nothing", "p.py has no function nothing"),
        ("{folder}/missing.py:make", "missing_package"),
        ("no_such_module:make", "no_such_module"),
        ("{folder}/broken.py:make", "broken.py: SyntaxError: "),
        ("{folder}/raises.py:make", "raises.py: NameError: name 'undefined'"),
    ],
)
def test_program_that_can_never_run_ends_with_its_reason_and_a_code_of_its_own(tmp_path, program, why):
    (tmp_path / "data.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "p.py").write_text("def make(options, report): return lambda samples: b''\n")
    (tmp_path / "missing.py").write_text("import missing_package\n")
    (tmp_path / "broken.py").write_text("def make(:\n")
    (tmp_path / "raises.py").write_text("undefined\n")
    streams.split([tmp_path / "data.jsonl"], tmp_path / "datasets", 1)
    done = worked(tmp_path, program=program.format(folder=tmp_path))
    assert done.returncode == PERMANENT, done.stdout + done.stderr
    assert why in json.loads((tmp_path / "said").read_text())["error"]


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("ERROR: No matching distribution found for nothing==1", PERMANENT),
        ("ERROR: Invalid requirement: 'a b'", PERMANENT),
        ("WARNING: Retrying: connection broken\nERROR: No matching distribution found for numpy", 1),
        ("ERROR: Could not install packages due to an OSError", 1),
    ],
)
def test_requirements_that_no_launch_can_install_end_with_the_words_of_pip(tmp_path, said, code):
    (tmp_path / "fake" / "pip").mkdir(parents=True)
    (tmp_path / "fake" / "pip" / "__main__.py").write_text(f"import sys; sys.exit({said!r})")
    (tmp_path / "fake" / "pip" / "__init__.py").touch()
    (tmp_path / "requirements.txt").write_text("nothing==1\n")
    path = os.pathsep.join([str(tmp_path / "fake"), str(Path(__file__).resolve().parents[3] / "tools")])
    done = worked(tmp_path, "--requirements", str(tmp_path / "requirements.txt"), PYTHONPATH=path)
    assert done.returncode == code, done.stdout + done.stderr
    assert said.splitlines()[-1] in json.loads((tmp_path / "said").read_text())["error"]


def test_tpu_vms_that_may_not_be_created_for_ten_minutes_fail_with_that_reason(world, monkeypatch):
    def refuse(zone, request):
        raise Denied("request 1 × v3-8: 403 tpu.nodes.create is denied")

    monkeypatch.setattr(world.cloud, "request", refuse)
    world.want(ZONES[:2], 1)
    world.round()
    world.round()
    assert "failed" not in {one.state for one in world.workers()}  # a grant may be on its way
    world.rest()
    assert {(one.state, "403 tpu.nodes.create" in one.message) for one in world.workers()} == {("failed", True)}


def test_worker_that_gives_up_after_several_launches_repeats_what_its_program_reported():
    worker = Worker("f", ["a"], 0, "v3-8", 1.0, "a", wanted="work", attempt=5, launched=5, failures=4)
    seen = Seen("READY", "1", host=Host(code=1, latest=5, error="OSError: the disk is broken"))
    decision = decide(worker, seen, 10.0)
    assert decision.value.state == "failed"
    assert "exit code 1 (OSError: the disk is broken), 5 times" in decision.value.message


def test_worker_whose_program_can_never_run_fails_after_one_launch_with_that_reason(world):
    world.want([ZONES[0]], 1)
    world.until_working()
    (program,) = world.hosts.running().values()
    program.code, program.report = PERMANENT, json.dumps({"error": "p.py has no function nothing"})
    world.rest()
    (worker,) = world.workers()
    assert (worker.state, worker.message, world.hosts.starts) == ("failed", "p.py has no function nothing", 1)


def test_request_of_a_worker_expires_with_the_limit_without_a_driver(world):
    world.want([ZONES[0]], 1)
    for worker in world.workers():
        world.store.put(WORKERS, world.store.get(WORKERS, worker.key), replace(worker, unattended=7200.0))
    world.until_working()
    assert {request.valid_seconds for request, _ in world.cloud.requests.values()} == {7200}


def test_launch_passes_the_limit_without_a_driver_to_the_host_with_the_labels_of_its_tpu_vm(world):
    world.want([ZONES[0]], 1)
    for worker in world.workers():
        world.store.put(WORKERS, world.store.get(WORKERS, worker.key), replace(worker, unattended=7200.0))
    world.until_working()
    (limit,) = world.hosts.limits
    (node,) = world.cloud.made.values()
    assert (limit["seconds"], limit["hardware"]["labels"]) == (7200.0, dict(node.labels))
    place = "projects/project-1/locations/us-central1-a/queuedResources/tpu-us-central1-a-0"
    assert limit["hardware"]["url"] == f"https://tpu.googleapis.com/v2/{place}"


@pytest.mark.parametrize(("flag", "said"), [("", "after 1d without"), ("--unattended 2h", "after 2h without")])
def test_limit_without_a_driver_is_shown_before_tpu_vms_are_created(world, tmp_path, monkeypatch, flag, said):
    (ada,) = users(world, tmp_path, monkeypatch, "ada")
    assert said in ada.run(f"create {TWO} {flag}").splitlines()[0]
    assert {one.unattended for one in ada.workers("ada")} == {7200.0 if flag else 86400.0}
