"""Jobs on TPU VMs that appear, disappear and become silent: their outcome, and no leftovers."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from support import simulated_tpu_cloud
from support.simulated_tpu_cloud import Hosts, TpuCloud
from support.tpu_vm_driving import SENDER, Driving, reasons
from support.waiting import alive, until
from tpukit.core.errors import Conflict, Denied, Invalid
from tpukit.google.tpu_vm import Request
from tpukit.jobs.plan import VmTarget
from tpukit.jobs.reasons import Reason, State
from tpukit.kernel.store import Broken, Page
from tpukit.places.base import Handle, Known
from tpukit.places.local import processes as pods
from tpukit.places.suspects import MINIMUM_AGE
from tpukit.places.tpu_vm import TpuVmPlace, outcome, target

MARK = target.store_label(SENDER)
WAITS = "while true; do sleep 0.1; done"
SAVES = "trap 'exit 143' TERM; echo attempt $TPUKIT_ATTEMPT; [ $TPUKIT_ATTEMPT = 1 ] || while true; do sleep 0.1; done"
LEAVES = "echo 'E1115 11:11:15.658635 30370 coordination_service_agent.cc:288] Polled an error'; exit 134"
"""A script that ends as JAX does when its peers are gone."""


@pytest.fixture
def cloud(home: Path) -> Iterator[TpuCloud]:
    made = TpuCloud(home / "hosts")
    yield made
    for name in list(made.made):
        made.lose(name)
    for attempt in (home / "hosts").glob("*/jobs/*/attempt-*"):
        pods.lose(attempt)
    pods.kill_strays(home / "hosts")


@pytest.fixture
def driving(home: Path, cloud: TpuCloud) -> Iterator[Driving]:
    def place(root: Path, clock: object) -> TpuVmPlace:
        return TpuVmPlace(root, clock, lambda: SENDER, cloud=lambda _: cloud, channel=lambda *_: Hosts(cloud))  # type: ignore[arg-type]

    made = Driving(home, place)
    yield made
    made.close()


def named(cloud: TpuCloud, name: str = "mine", **changes: object) -> None:
    """Create a TPU VM of another user."""
    request = Request(name, (name,), "v4-16", "tpu-ubuntu2204-base", metadata={"ssh-keys": "eve:ssh-ed25519 BBBB"})
    cloud.create("us-central2-b", replace(request, **changes))  # type: ignore[arg-type]


def test_preempted_job_gets_new_tpu_vms_goes_on_and_gives_them_back(driving, cloud):
    job_id = driving.send(SAVES, capacity="spot")
    driving.running(job_id)
    cloud.preempt(f"{job_id}-0")
    job = driving.ended(job_id)
    assert (job.state, reasons(job)) == (State.COMPLETED, [Reason.PREEMPTED, Reason.DONE])
    assert [attempt.action for attempt in job.attempts] == ["rerun", "reapply"]
    assert (cloud.made, cloud.requests) == ({}, {})
    assert [driving.log(job_id, number) for number in (0, 1)] == [["attempt 0"] * 2, ["attempt 1"] * 2]


def test_one_slice_of_two_preempted_ends_the_other_and_both_come_anew(driving, cloud):
    job_id = driving.send(WAITS, slices=2, capacity="spot")
    driving.running(job_id)
    before = {node.id for node in cloud.made.values()}
    cloud.preempt(f"{job_id}-1")
    driving.running(job_id, 1)
    assert {node.id for node in cloud.made.values()} & before == set()
    assert driving.job(job_id).attempts[0].reason is Reason.PREEMPTED
    driving.stop(job_id)
    driving.ended(job_id)


def test_slices_are_told_of_each_other_and_hosts_of_their_number(driving):
    words = "$MEGASCALE_SLICE_ID/$MEGASCALE_NUM_SLICES $TPU_WORKER_ID $TPUKIT_SLICE_HOSTS [$TPU_WORKER_HOSTNAMES]"
    job_id = driving.send(f"echo {words}", slices=2)
    driving.ended(job_id)
    assert driving.log(job_id) == [f"{number}/2 {host} 2 []" for number in (0, 1) for host in (0, 1)]


def test_failed_program_is_charged_and_its_tpu_vms_are_given_back(driving, cloud):
    job_id = driving.send("echo no such file; exit 3")
    job = driving.ended(job_id)
    assert (job.state, job.reason, cloud.made, cloud.requests) == (State.FAILED, Reason.USER_ERROR, {}, {})


def test_program_that_removes_the_supervisors_files_runs_once_and_nothing_of_it_after_a_stop(driving, cloud):
    removes = 'rm -rf "${TPUKIT_PROGRESS%/jobs/*}"; ' + WAITS
    named(cloud)
    job_id = driving.send(removes, on=("mine",))

    def copies() -> list[int]:
        return [pid for pid in pods.strays(cloud.folder) if alive(pid) and os.getsid(pid) == pid]

    driving.until(job_id, lambda job: job.state == "running" or len(copies()) > 2, "it to run")
    for _ in range(5):
        driving.driver.round([job_id])
    assert len(driving.job(job_id).attempts) == 1
    assert len(copies()) == 2, "one on each of two hosts"
    driving.stop(job_id)
    assert driving.ended(job_id).state is State.CANCELLED
    assert pods.strays(cloud.folder) == []


def test_stopped_while_it_waits_in_the_queue_leaves_no_request(driving, cloud):
    cloud.scarce = True
    job_id = driving.send(WAITS)
    job = driving.until(job_id, lambda job: job.reason is Reason.NO_CAPACITY, "it to wait for capacity")
    assert "no such slice available" in job.message
    driving.stop(job_id)
    assert driving.ended(job_id).state is State.CANCELLED
    assert cloud.requests == {}


def test_tpu_vm_that_vanished_without_a_word_is_a_lost_host(driving, cloud):
    job_id = driving.send(SAVES, rule="reapply")
    driving.running(job_id)
    cloud.lose(f"{job_id}-0")
    del cloud.made[f"{job_id}-0"]
    del cloud.requests[job_id]
    job = driving.ended(job_id)
    assert (job.state, reasons(job)) == (State.COMPLETED, [Reason.HOST_LOST, Reason.DONE])
    assert "was deleted" in job.attempts[0].detail


def test_host_that_lets_nobody_in_is_waited_for_with_its_reason_and_loses_nothing(driving, cloud, monkeypatch):
    monkeypatch.setattr(outcome, "SILENT_SECONDS", 0.0)
    job_id = driving.send("true")
    cloud.shut = True
    driving.until(job_id, lambda job: "permission denied" in job.message, "to be told why")
    assert not driving.job(job_id).state.ended
    cloud.shut = False
    assert driving.ended(job_id).state is State.COMPLETED


def test_named_tpu_vm_is_used_as_it_is_and_stays(driving, cloud):
    named(cloud)
    job_id = driving.send("echo on $TPU_WORKER_ID", on=("mine",))
    assert driving.ended(job_id).state is State.COMPLETED
    assert driving.log(job_id) == ["on 0", "on 1"]
    assert cloud.made["mine"].metadata["ssh-keys"].splitlines()[0] == "eve:ssh-ed25519 BBBB"  # their key is kept


def test_named_tpu_vm_that_was_preempted_is_made_anew_under_its_name_and_stays(driving, cloud):
    named(cloud)
    job_id = driving.send(SAVES, on=("mine",), rule="reapply")
    driving.running(job_id)
    before = cloud.made["mine"].id
    cloud.preempt("mine")
    assert driving.ended(job_id).state is State.COMPLETED
    assert cloud.made["mine"].id != before


def test_named_tpu_vm_that_another_user_recreated_is_refused_and_left_alone(driving, cloud):
    named(cloud)
    job_id = driving.send(WAITS, on=("mine",), rule="reapply")
    driving.running(job_id)
    cloud.delete_node("us-central2-b", "mine", "1")
    named(cloud)
    job = driving.until(job_id, lambda job: "another user or tool" in job.message, "to be told whose it is")
    assert [attempt.reason for attempt in job.attempts] == [Reason.HOST_LOST, None]
    assert cloud.made["mine"].id == "2"
    assert cloud.made["mine"].metadata == {"ssh-keys": "eve:ssh-ed25519 BBBB"}
    driving.stop(job_id)
    assert driving.ended(job_id).state is State.CANCELLED
    assert list(cloud.made) == ["mine"]


def test_named_tpu_vm_that_another_user_recreated_before_the_first_attempt_is_refused(driving, cloud):
    named(cloud)
    job_id = driving.send(WAITS, on=("mine",))
    cloud.delete_node("us-central2-b", "mine", "1")
    named(cloud)
    driving.until(job_id, lambda job: "another user or tool" in job.message, "to be told whose it is")
    assert cloud.made["mine"].metadata == {"ssh-keys": "eve:ssh-ed25519 BBBB"}
    driving.stop(job_id)
    driving.ended(job_id)


def test_named_tpu_vm_that_was_recreated_on_behalf_of_the_same_store_is_used(driving, cloud):
    named(cloud)
    job_id = driving.send(SAVES, on=("mine",), rule="reapply")
    driving.running(job_id)
    cloud.delete_node("us-central2-b", "mine", "1")
    named(cloud, labels={target.SHARED_STORE: MARK})
    assert driving.ended(job_id).state is State.COMPLETED
    assert cloud.made["mine"].id == "2"


def test_named_tpu_vm_with_somebody_elses_job_is_left_alone(driving, cloud):
    named(cloud)
    first = driving.send(WAITS, on=("mine",))
    driving.running(first)
    second = driving.send("true", on=("mine",))
    driving.until(second, lambda job: first in job.message, "to be told who holds it")
    driving.stop(second)
    driving.ended(second)
    assert driving.observe(first).state is State.RUNNING
    driving.stop(first)
    driving.ended(first)


def test_named_tpu_vm_that_two_jobs_wait_for_is_made_anew_once_and_both_come_to_their_end(driving, cloud):
    named(cloud)
    first = driving.send(SAVES, on=("mine",), rule="reapply")
    driving.running(first)
    second = driving.send("true", on=("mine",), rule="reapply")
    driving.until(second, lambda job: first in job.message, "to be told who holds it")
    cloud.preempt("mine")

    def ended() -> bool:
        driving.driver.round([first, second])
        return all(driving.job(job_id).state.ended for job_id in (first, second))

    until(ended, lambda: f"both to end: {driving.notes}", every=0.05)
    assert [driving.job(job_id).state for job_id in (first, second)] == [State.COMPLETED] * 2
    assert cloud.made["mine"].id == "2"


def test_named_tpu_vm_on_which_another_job_runs_by_now_is_not_taken_from_it(driving, cloud):
    named(cloud)
    gate = driving.folder / "gate"
    first = driving.send(f"while [ ! -e {gate} ]; do sleep 0.1; done; {LEAVES}", on=("mine",), rule="reapply")
    driving.running(first)
    gate.touch()
    until(lambda: driving.observe(first).state.ended, "its hosts to have lost each other")
    second = driving.send(WAITS, on=("mine",))
    driving.running(second)
    driving.until(first, lambda job: second in job.message, "to be told who runs there")
    assert cloud.made["mine"].id == "1"
    for job_id in (first, second):
        driving.stop(job_id)
        driving.ended(job_id)


def test_named_tpu_vm_of_another_shape_or_none_is_refused_before_anything_is_sent(driving, cloud):
    named(cloud, accelerator="v4-8")
    for name, words in (("mine", "is a v4-8"), ("yours", "there is no TPU VM yours")):
        with pytest.raises(Invalid, match=words):
            driving.send("true", on=(name,))
    with pytest.raises(Invalid, match="2 slices, not 1"):
        driving.send("true", on=("mine",), slices=2)


def test_sweep_removes_requests_of_this_store_that_no_job_knows(driving, cloud, monkeypatch):
    job_id = driving.send(WAITS)
    driving.running(job_id)
    named(cloud)
    place, clock = driving.place, driving.clock
    handle = Handle.of(driving.job(job_id))
    assert place.sweep(lambda: Known([handle])) == place.sweep(Known) == []
    later = clock.monotonic() + MINIMUM_AGE
    monkeypatch.setattr(type(clock), "monotonic", lambda self: later)
    assert place.sweep(Known) == [f"queued resource {job_id}"]
    cloud.nodes("")
    assert list(cloud.made) == ["mine"]


class ShutProjects:
    """A cloud in which one project refuses every list."""

    def __init__(self, cloud: TpuCloud, shut: str) -> None:
        self.cloud, self.shut = cloud, shut

    def __call__(self, project: str) -> TpuCloud:
        if project == self.shut:
            raise Denied(f"{project} is closed")
        return self.cloud


def another_machine(driving: Driving, cloud: Callable[[str], TpuCloud]) -> TpuVmPlace:
    """Return a place that knows only the records, because it never created anything itself."""
    place = TpuVmPlace(driving.folder / "elsewhere", driving.clock, lambda: SENDER, cloud=cloud)
    driving.driver._places = {"tpu-vm": place}  # type: ignore[assignment]
    return place


def test_sweep_of_another_machine_finds_what_a_fenced_driver_left_in_a_zone_that_only_records_name(
    driving, cloud, monkeypatch
):
    job_id = driving.send("true")
    driving.ended(job_id)
    left = Request(job_id, (f"{job_id}-0",), "v4-16", "r", labels={target.JOB: job_id, target.STORE: MARK})
    cloud.request("us-central2-b", left)
    another_machine(driving, lambda _: cloud)
    assert driving.driver.sweep() == []
    later = driving.clock.monotonic() + MINIMUM_AGE
    monkeypatch.setattr(type(driving.clock), "monotonic", lambda self: later)
    assert driving.driver.sweep() == [f"tpu-vm: queued resource {job_id}"]


def test_sweep_goes_on_after_a_project_that_refuses_and_says_which(driving, cloud, monkeypatch):
    job_id = driving.send("true")
    driving.ended(job_id)
    place = another_machine(driving, ShutProjects(cloud, "dead-project"))
    place._sweeper.note(VmTarget("dead-project", "us-central2-b", "ada"))
    left = Request("left", ("left-0",), "v4-16", "r", labels={target.JOB: "left", target.STORE: MARK})
    cloud.request("us-central2-b", left)
    driving.driver.sweep()
    later = driving.clock.monotonic() + MINIMUM_AGE
    monkeypatch.setattr(type(driving.clock), "monotonic", lambda self: later)
    assert driving.driver.sweep() == ["tpu-vm: queued resource left"]
    assert any("dead-project was not swept" in note for note in driving.notes)


def test_sweep_leaves_vms_of_a_record_that_cannot_be_read(driving, cloud, monkeypatch):
    job_id = driving.send(WAITS)
    driving.running(job_id)
    broken = Page((), (Broken(job_id, "it was written by a newer version"),))
    monkeypatch.setattr(driving.store, "list", lambda *_, **__: broken)
    driving.driver.sweep()
    later = driving.clock.monotonic() + MINIMUM_AGE
    monkeypatch.setattr(type(driving.clock), "monotonic", lambda self: later)
    assert driving.driver.sweep() == []
    assert list(cloud.requests) == [job_id]


def test_attempt_of_an_earlier_driver_cannot_take_tpu_vms_of_a_later_one(driving, cloud):
    job_id = driving.send(WAITS, capacity="spot")
    driving.running(job_id)
    stale = Handle.of(driving.job(job_id))
    cloud.preempt(f"{job_id}-0")
    driving.running(job_id, 1)
    with pytest.raises(Conflict, match="made for attempt 1"):
        driving.place.submit(stale)
    driving.stop(job_id)
    driving.ended(job_id)


def test_many_jobs_of_a_zone_cost_one_list(driving, cloud):
    ids = [driving.send(WAITS, name=f"many-{number}") for number in range(2)]
    for job_id in ids:
        driving.running(job_id)
    cloud.lists = 0
    driving.place.observe([Handle.of(driving.job(job_id)) for job_id in ids])
    assert cloud.lists == 1
    for job_id in ids:
        driving.stop(job_id)
        driving.ended(job_id)


@pytest.mark.parametrize("rule", ["resume", "pre"])
def test_program_killed_on_a_host_that_is_there_resumes_on_the_same_tpu_vms_and_is_not_charged(driving, cloud, rule):
    job_id = driving.send(f"[ $TPUKIT_ATTEMPT = 1 ] || {WAITS}", rule=rule)
    driving.running(job_id)
    before = {node.id for node in cloud.made.values()}
    handle = Handle.of(driving.job(job_id))
    driving.place.lose(handle, handle.plan.host_names[1])
    driving.until(job_id, lambda job: len(job.attempts) == 2, "another attempt")
    assert {node.id for node in cloud.made.values()} == before
    job = driving.ended(job_id)
    assert reasons(job) == [Reason.PROCESS_LOST, Reason.DONE]
    assert (job.attempts[0].host, job.attempts[1].action) == (handle.plan.host_names[1], "resume")


def test_host_of_a_ready_tpu_vm_that_reboots_is_waited_for_and_the_job_resumes(driving, cloud):
    gate = driving.folder / "gate"
    leaves = f"while [ ! -e {gate} ]; do sleep 0.1; done; [ $TPUKIT_ATTEMPT = 1 ] || {{ {LEAVES}; }}"
    job_id = driving.send(leaves, rule="resume")
    driving.running(job_id)
    address = next(iter(cloud.made.values())).hosts[1].internal
    handle = Handle.of(driving.job(job_id))
    driving.place.lose(handle, handle.plan.host_names[1])
    cloud.silent.add(address)
    gate.touch()
    driving.until(job_id, lambda _: driving.seen[job_id].hosts[0].code == 134, "its peer to end")
    for _ in range(3):
        driving.driver.round([job_id])
    assert not driving.job(job_id).state.ended
    cloud.silent.clear()
    assert reasons(driving.ended(job_id)) == [Reason.PROCESS_LOST, Reason.DONE]


def test_checkpoints_in_the_workdir_of_a_host_are_seen_of_a_program_that_says_nothing(driving, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    old = "mkdir -p old.$$ && touch -d @1 old.$$ && mv -T old.$$ checkpoints/90"  # so that it never looks new
    new = "mkdir -p checkpoints/7 checkpoints/8.orbax-checkpoint-tmp"
    job_id = driving.send(f"cd $TPUKIT_WORKDIR && {new} && {old} && exit 0")
    job = driving.ended(job_id)
    assert (job.state, job.attempts[0].saved) == (State.COMPLETED, 7)


def test_workdir_on_the_disk_of_a_shared_tpu_vm_with_another_jobs_output_is_refused(driving, cloud, tmp_path):
    named(cloud)
    workdir, save = str(tmp_path / "runs"), "mkdir -p $TPUKIT_WORKDIR/checkpoints/7"
    first = driving.send(save, on=("mine",), workdir=workdir)
    assert driving.ended(first).state is State.COMPLETED
    second = driving.ended(driving.send("exit 9", on=("mine",), workdir=workdir))
    assert second.reason is Reason.CANNOT_START
    assert f"holds the output of job {first}" in second.message
    assert f"tpu job resume {first}" in second.message


def test_claim_of_a_workdir_on_a_host_by_job_resume_and_content(tmp_path):
    def claim(job: str, folder: str, *, resume: bool = False) -> str | None:
        request = {"do": "claim", "job": job, "workdir": str(tmp_path / folder), "resume": resume}
        return simulated_tpu_cloud._supervisor(tmp_path / "host").answer(request, io.BytesIO())["holder"]

    assert [claim("a", "x"), claim("a", "x"), claim("b", "x")] == [None, None, None]  # a left nothing
    (tmp_path / "x" / "losses.csv").touch()
    assert [claim("a", "x"), claim("b", "x"), claim("a", "x", resume=True), claim("b", "x")] == ["b", None, None, "a"]
    (tmp_path / "y" / "step_3").mkdir(parents=True)
    assert [claim("a", "y"), claim("a", "y", resume=True), claim("a", "y")] == ["", None, None]
    (tmp_path / "z").mkdir()
    (tmp_path / "z" / "vocabulary.txt").touch()
    assert claim("a", "z") is None


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install mount programs that log their calls to a file and keep mounts in a folder."""
    (tmp_path / "bin").mkdir()
    did = tmp_path / "mounted"
    for name, text in {
        "mountpoint": f'grep -q " $2\\$" {did} 2>/dev/null',
        "sudo": f'[ $2 != mount ] || {{ shift; echo "$@" >> {did}; }}',
        "gcsfuse": f'echo gcsfuse "$@" >> {did}',
    }.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return did


def test_disk_and_buckets_of_a_job_are_mounted_before_its_program_starts_and_once(driving, cloud, mounted):
    named(cloud)
    share = VmTarget("", "", "", ("mine",), disk="10.0.0.2:/share", mount="/mnt/share")
    job_id = driving.send(
        f"grep -q share {mounted} || exit 9; [ $TPUKIT_ATTEMPT = 1 ] || {{ {LEAVES}; }}",
        rule="resume",
        target=share,
        mounts=[{"bucket": "my-data", "path": "/data"}, {"bucket": "my-runs", "path": "/runs", "read_only": False}],
    )
    job = driving.ended(job_id)
    assert job.state is State.COMPLETED, job.message
    assert mounted.read_text().splitlines() == [
        "mount -t nfs -o nolock,soft 10.0.0.2:/share /mnt/share",
        "gcsfuse --implicit-dirs -o ro my-data /data",
        "gcsfuse --implicit-dirs --rename-dir-limit 200000 my-runs /runs",
    ]


def test_wandb_key_reaches_programs_and_no_file_of_the_store_log_or_host(driving, monkeypatch, tmp_path):
    key = "5ecre7" * 7
    monkeypatch.setenv("WANDB_API_KEY", key)
    monkeypatch.setenv("HOME", str(tmp_path))
    asks = "env | grep -q 5ecre7 && exit 8; stat -c %a $NETRC; sha256sum $NETRC; rm -r ${NETRC%/*}"
    job_id = driving.send(asks, tpu="v4-8")
    job = driving.ended(job_id)
    assert job.state is State.COMPLETED, (job.message, driving.log(job_id))
    line = f"machine api.wandb.ai login user password {key}\n"
    mode, digest = driving.log(job_id)
    assert (mode, digest.split()[0]) == ("600", hashlib.sha256(line.encode()).hexdigest())
    files = [file for file in tmp_path.rglob("*") if file.is_file() and not file.is_symlink()]
    assert any(file.name == "pod.json" for file in files) and any(file.name == "store.db" for file in files)
    assert not [file for file in files if key.encode() in file.read_bytes()]


def test_wandb_key_in_a_job_file_is_refused(driving):
    with pytest.raises(Invalid, match="everyone who can read the store"):
        driving.send("true", env={"WANDB_API_KEY": "5ecre7"})
