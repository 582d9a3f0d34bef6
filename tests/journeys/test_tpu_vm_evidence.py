"""Unobservable hosts of TPU VMs: conclusions of a driver, and what the next driver finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from support.simulated_tpu_cloud import Hosts, TpuCloud
from support.tpu_vm_driving import SENDER, Driving, reasons
from support.waiting import until
from tpukit.core import fence
from tpukit.core.errors import Conflict, Denied, LeaseLost, TpukitError, Transient
from tpukit.google.tpu_vm import Request
from tpukit.jobs.reasons import Reason, State
from tpukit.places.base import FollowUp, Handle
from tpukit.places.local import processes as pods
from tpukit.places.tpu_vm import TpuVmPlace, outcome, stopping
from tpukit.places.tpu_vm.renewals import RENEWED

WAITS = "while true; do sleep 0.1; done"
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


@pytest.fixture
def machine(home: Path, cloud: TpuCloud) -> Iterator[Callable[[str], Driving]]:
    """Yield a factory of drivers by name, each on a machine with its own key."""
    made: list[Driving] = []

    def driving(name: str) -> Driving:
        def place(root: Path, clock: object) -> TpuVmPlace:
            hosts = Hosts(cloud, key=f"ssh-ed25519 {name}")
            return TpuVmPlace(root, clock, lambda: SENDER, cloud=lambda _: cloud, channel=lambda *_: hosts)  # type: ignore[arg-type]

        made.append(Driving(home, place, name))
        return made[-1]

    yield driving
    for one in made:
        with suppress(TpukitError):
            one.close()


@pytest.fixture
def driving(machine: Callable[[str], Driving]) -> Driving:
    return machine("first")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw conclusions from silence without waiting."""
    monkeypatch.setattr(outcome, "SILENT_SECONDS", 0.0)


def addresses(cloud: TpuCloud) -> list[str]:
    return [host.internal for node in cloud.made.values() for host in node.hosts]


def rounds(driving: Driving, job_id: str, count: int = 5) -> None:
    for _ in range(count):
        driving.driver.round([job_id])


def lost() -> float:
    raise LeaseLost("another driver has it")


def test_driver_with_another_key_goes_on_with_the_same_attempt_on_the_same_vm(machine, cloud):
    first, second = machine("first"), machine("second")
    job_id = first.send(WAITS)
    first.running(job_id)
    before = dict(cloud.made)
    first.driver.close()
    heard = second.until(job_id, lambda job: second.seen.get(job_id) and second.seen[job_id].started, "to see it run")
    assert (heard.state, len(heard.attempts)) == (State.RUNNING, 1)
    assert {name: node.id for name, node in cloud.made.items()} == {name: node.id for name, node in before.items()}
    (keys,) = {node.metadata["ssh-keys"] for node in cloud.made.values()}
    assert keys.splitlines() == ["ada:ssh-ed25519 first", "ada:ssh-ed25519 second"]
    second.stop(job_id)
    assert second.ended(job_id).state is State.CANCELLED


def test_driver_with_another_key_stops_a_job_that_it_has_never_seen(machine, cloud):
    first, second = machine("first"), machine("second")
    job_id = first.send(WAITS)
    first.running(job_id)
    first.driver.close()
    second.stop(job_id)
    job = second.ended(job_id)
    assert (job.state, cloud.made) == (State.CANCELLED, {})


def test_key_is_not_admitted_by_a_driver_that_lost_its_lease(machine, cloud):
    first, second = machine("first"), machine("second")
    job_id = first.send(WAITS)
    first.running(job_id)
    seen = second.observe(job_id)
    assert (seen.state, seen.follow_up) == (State.RUNNING, FollowUp(admit=True))
    with fence.held(lost), pytest.raises(LeaseLost):
        second.place.follow_up(Handle.of(second.job(job_id)), seen.follow_up)
    assert [node.metadata["ssh-keys"] for node in cloud.made.values()] == ["ada:ssh-ed25519 first"]


def test_key_that_hosts_do_not_take_yet_is_no_evidence_of_anything(machine, cloud):
    first, second = machine("first"), machine("second")
    job_id = first.send(WAITS)
    first.running(job_id)
    first.driver.close()
    cloud.shut = True
    second.until(job_id, lambda job: "permission denied" in job.message, "to be told why")
    rounds(second, job_id)
    assert (second.job(job_id).state, len(second.job(job_id).attempts)) == (State.RUNNING, 1)
    cloud.shut = False
    second.until(job_id, lambda job: second.seen[job_id].started, "to see it run")
    assert len(second.job(job_id).attempts) == 1


@pytest.mark.parametrize("tpu", ["v4-8", "v4-16"])
def test_blocked_ssh_leaves_the_attempt_and_its_vm_as_they_are_and_says_so(driving, cloud, tpu):
    job_id = driving.send(WAITS, tpu=tpu, rule="reapply")
    driving.running(job_id)
    before = dict(cloud.made)
    cloud.silent.update(addresses(cloud))
    job = driving.until(job_id, lambda job: "not reachable over SSH" in job.message, "to be told why")
    assert "READY" in job.message
    rounds(driving, job_id)
    with pytest.raises(Transient, match="no route to host"):
        driving.observe(job_id)
    assert (driving.job(job_id).state, reasons(driving.job(job_id))) == (State.RUNNING, [None])
    assert cloud.made == before
    cloud.silent.clear()
    driving.until(job_id, lambda job: not job.message, "to see it run")
    assert len(driving.job(job_id).attempts) == 1


def test_job_whose_hosts_are_unreachable_is_not_forgotten_while_the_api_says_that_its_vm_is_there(driving, cloud):
    job_id = driving.send(WAITS)
    driving.running(job_id)
    cloud.silent.update(addresses(cloud))
    handle = Handle.of(driving.job(job_id))
    with pytest.raises(Conflict, match=f"{job_id}-0 exists"):
        driving.place.forget(handle)
    for name in list(cloud.made):
        cloud.lose(name)
    cloud.made.clear()
    cloud.requests.clear()
    assert job_id in driving.place.forget(handle)


@pytest.mark.parametrize("silent", [1, 2])
def test_stopped_job_whose_hosts_are_unreachable_ends_when_its_own_vms_are_deleted_through_the_api(
    driving, cloud, silent, monkeypatch
):
    monkeypatch.setattr(stopping, "UNREACHABLE_SECONDS", 0.5)
    job_id = driving.send(WAITS)
    driving.running(job_id)
    cloud.silent.update(addresses(cloud)[-silent:])
    driving.stop(job_id)
    assert driving.ended(job_id).state is State.CANCELLED
    assert (cloud.made, cloud.requests) == ({}, {})
    assert any("were deleted through the API" in note for note in driving.notes)


def test_stopped_job_on_a_named_vm_that_is_unreachable_says_what_is_not_known_and_leaves_the_vm(
    driving, cloud, monkeypatch
):
    monkeypatch.setattr(stopping, "UNREACHABLE_SECONDS", 0.0)
    cloud.create("us-central2-b", Request("mine", ("mine",), "v4-16", "tpu-ubuntu2204-base"))
    job_id = driving.send(WAITS, on=("mine",))
    driving.running(job_id)
    cloud.silent.update(addresses(cloud))
    driving.stop(job_id)
    job = driving.until(job_id, lambda job: "is not known" in job.message, "to be told")
    assert "tpu vm delete mine" in job.message
    rounds(driving, job_id)
    assert (driving.job(job_id).state.ended, list(cloud.made)) == (False, ["mine"])
    cloud.silent.clear()
    assert driving.ended(job_id).state is State.CANCELLED
    assert pods.strays(cloud.folder) == []


def test_one_silent_host_of_a_job_that_runs_is_waited_for(driving, cloud):
    job_id = driving.send(WAITS, rule="reapply")
    driving.running(job_id)
    cloud.silent.add(addresses(cloud)[1])
    rounds(driving, job_id)
    assert (driving.job(job_id).state, reasons(driving.job(job_id))) == (State.RUNNING, [None])
    assert [host.state for host in driving.seen[job_id].hosts] == ["running"] * 2


def test_limit_for_unattended_hardware_is_renewed_by_the_metadata_where_one_host_is_silent(driving, cloud):
    job_id = driving.send(WAITS, max={"unattended": "8s"})
    driving.running(job_id)
    rounds(driving, job_id)
    node = next(iter(cloud.made.values()))
    assert RENEWED not in node.metadata
    cloud.silent.add(addresses(cloud)[1])
    driving.until(job_id, lambda _: RENEWED in cloud.made[node.name].metadata, "the limit to be renewed")
    first = cloud.made[node.name].metadata[RENEWED]
    driving.until(job_id, lambda _: cloud.made[node.name].metadata[RENEWED] != first, "it to be renewed again")
    assert cloud.made[node.name].metadata["ssh-keys"] == node.metadata["ssh-keys"]
    assert driving.job(job_id).state is State.RUNNING


def test_silent_host_whose_peers_lost_it_is_a_lost_host(driving, cloud):
    gate = driving.folder / "gate"
    job_id = driving.send(f"while [ ! -e {gate} ]; do sleep 0.1; done; {LEAVES}")
    driving.running(job_id)
    cloud.silent.add(addresses(cloud)[1])
    gate.touch()
    job = driving.ended(job_id)
    assert (job.reason, job.attempts[0].host[-1], cloud.made) == (Reason.HOST_LOST, "1", {})


def test_silent_host_takes_no_blame_for_a_peer_that_failed_by_itself(driving, cloud):
    gate = driving.folder / "gate"
    job_id = driving.send(f"while [ ! -e {gate} ]; do sleep 0.1; done; echo it broke; exit 3")
    driving.running(job_id)
    cloud.silent.add(addresses(cloud)[1])
    gate.touch()
    job = driving.ended(job_id)
    assert (job.reason, job.attempts[0].host[-1]) == (Reason.USER_ERROR, "0")


def test_silent_host_whose_peers_are_done_is_waited_for(driving, cloud):
    gate = driving.folder / "gate"
    job_id = driving.send(f"while [ ! -e {gate} ]; do sleep 0.1; done")
    driving.running(job_id)
    cloud.silent.add(addresses(cloud)[1])
    gate.touch()
    driving.until(job_id, lambda job: driving.seen[job_id].hosts[0].code == 0, "one host to be done")
    rounds(driving, job_id)
    assert not driving.job(job_id).state.ended
    cloud.silent.clear()
    assert driving.ended(job_id).state is State.COMPLETED


def test_observing_a_failed_host_tells_its_peers_nothing_and_following_up_needs_the_lease(driving, cloud):
    gate = driving.folder / "gate"
    job_id = driving.send(f"[ $TPU_WORKER_ID = 0 ] && {WAITS}; while [ ! -e {gate} ]; do sleep 0.1; done; exit 3")
    driving.running(job_id)
    handle = Handle.of(driving.job(job_id))
    gate.touch()
    seen = until(lambda: found if (found := driving.observe(job_id)).follow_up else None, "peers to have to leave")
    assert seen.follow_up.leave == (handle.plan.host_names[0],)
    with fence.held(lost), pytest.raises(LeaseLost):
        driving.place.follow_up(handle, seen.follow_up)
    assert driving.observe(job_id).follow_up == seen.follow_up, "nothing was told to leave"
    job = driving.ended(job_id)
    assert (job.reason, job.attempts[0].host) == (Reason.USER_ERROR, handle.plan.host_names[1])


def test_named_vm_whose_hosts_cannot_be_asked_is_not_deleted_to_be_recreated(driving, cloud):
    request = Request("mine", ("mine",), "v4-16", "tpu-ubuntu2204-base")
    cloud.create("us-central2-b", request)
    gate = driving.folder / "gate"
    job_id = driving.send(f"while [ ! -e {gate} ]; do sleep 0.1; done; {LEAVES}", on=("mine",), rule="reapply")
    driving.running(job_id)
    gate.touch()
    until(lambda: driving.observe(job_id).state.ended, "its hosts to have lost each other")
    ended = driving.until(job_id, lambda job: job.attempts[-1].ended, "the attempt to end")
    cloud.silent.update(addresses(cloud))
    job = driving.until(job_id, lambda job: "mine" in job.message and len(job.attempts) == 2, "to be told why")
    rounds(driving, job_id)
    assert cloud.made["mine"].id == "1", (ended.message, job.message)


def test_denied_hosts_of_a_named_vm_are_denied_and_not_lost(driving, cloud):
    job_id = driving.send(WAITS)
    driving.running(job_id)
    cloud.shut = True
    with pytest.raises(Denied, match="not reachable over SSH"):
        driving.observe(job_id)
