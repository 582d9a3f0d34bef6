"""The Cloud TPU API's view of a job's TPU VMs, and its meaning for an attempt."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit.google.tpu_vm import Host, Node, Queued
from tpukit.jobs import plan
from tpukit.jobs.plan import VmTarget
from tpukit.jobs.reasons import Reason
from tpukit.jobs.records import Attempt
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.places.base import Handle
from tpukit.places.tpu_vm import target
from tpukit.places.tpu_vm.machines import NODES, assess

STORE = target.store_label("this-store")
SPEC = JobSpec.from_json({"name": "train", "tpu": "v4-16", "slices": 2, "command": ["x"], "capacity": "spot"})
PLAN = replace(plan.make(SPEC, Settings(), "tpu-vm"), target=VmTarget("p", "us-central2-b", "ada"))
NODE_STATES = ["READY", "CREATING", "PREEMPTED", "TERMINATED", "REPAIRING", "STOPPED", "DELETING", "", None]
QUEUED_STATES = ["CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE", "SUSPENDING", "SUSPENDED"]
QUEUED_STATES += ["FAILED", "DELETING"]


def node(name: str, state: str = "READY", number: str = "1", made_for: int = 0) -> Node:
    labels = {target.JOB: PLAN.id, target.ATTEMPT: str(made_for)}
    return Node(name, number, state, hosts=(Host("10.0.0.2"), Host("10.0.0.3")), labels=labels, queued=PLAN.id)


def queued(state: str, made_for: int = 0, error: str = "") -> Queued:
    labels = {target.JOB: PLAN.id, target.ATTEMPT: str(made_for)}
    return Queued(PLAN.id, state, by_service=True, error=error, labels=labels, nodes=target.nodes(PLAN))


def test_request_that_expired_is_made_again_for_the_same_attempt():
    request = replace(queued("FAILED"), expired=True)
    seen = seen_by(handle(), [None, None], request)
    assert (seen.failed, seen.waits, seen.ready, seen.queued) == (None, "", False, (request,))


@pytest.mark.parametrize(("on", "seconds"), [((), 86400), (("mine", "yours"), 0)])
def test_request_of_a_job_expires_with_the_limit_for_unattended_hardware(on, seconds):
    assert target.is_own(PLAN)
    own = replace(PLAN, target=VmTarget("p", "us-central2-b", "ada", on))
    assert {one.valid_seconds for one in target.requests(own, 0, "store", "key")} == {seconds}


def handle(number: int = 0, action: str = "rerun", begun: bool = False) -> Handle:
    learned = {NODES: ["1", "1"]} if begun else {}
    return Handle(PLAN, Attempt(number, stage=0, origin=0, action=action, learned=learned))


def seen_by(who: Handle, states: list[str | None], request: Queued | None = None):
    names = target.nodes(PLAN)
    nodes = {name: node(name, state) for name, state in zip(names, states, strict=True) if state is not None}
    return assess(who, nodes, {request.name: request} if request else {}, STORE)


@given(
    states=st.lists(st.sampled_from(NODE_STATES), min_size=2, max_size=2),
    request=st.sampled_from([None, *QUEUED_STATES]),
    number=st.integers(0, 2),
    action=st.sampled_from(["rerun", "resume", "reapply"]),
    begun=st.booleans(),
)
def test_exactly_one_thing_follows_from_whatever_google_says(states, request, number, action, begun):
    seen = seen_by(handle(number, action, begun), states, queued(request) if request else None)
    assert seen.ready + bool(seen.waits) + (seen.failed is not None) <= 1
    assert seen.held == (any(state is not None for state in states) or request is not None)
    if begun:
        assert seen.ready
        assert set(seen.gone) == {index for index, state in enumerate(states) if state not in ("READY", "")}
    if seen.ready and not begun:
        assert all(state in ("READY", "") for state in states)
        assert action != "reapply" or number == 0  # TPU VMs of attempt 0 are not new to a later attempt


@pytest.mark.parametrize(
    ("state", "reason"),
    [("PREEMPTED", Reason.PREEMPTED), ("REPAIRING", Reason.MAINTENANCE), ("TERMINATED", Reason.HOST_LOST)],
)
def test_node_that_is_not_ready_is_gone_and_named(state, reason):
    gone = seen_by(handle(begun=True), ["READY", state]).gone
    assert gone[1].reason is reason and state in gone[1].words


def test_missing_node_of_a_request_that_google_suspended_was_preempted():
    assert seen_by(handle(begun=True), [None, None], queued("SUSPENDED")).gone[0].reason is Reason.PREEMPTED
    assert seen_by(handle(begun=True), [None, None]).gone[0].reason is Reason.HOST_LOST


def test_node_that_google_ended_with_its_request_was_taken_back():
    gone = seen_by(handle(begun=True), ["TERMINATED", "TERMINATED"], queued("SUSPENDING")).gone
    assert [(one.reason, "TERMINATED" in one.words) for one in gone.values()] == [(Reason.PREEMPTED, True)] * 2


@pytest.mark.parametrize("state", ["CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", ""])
def test_request_that_google_has_not_come_to_yet_is_waited_for(state):
    seen = seen_by(handle(), [None, None], queued(state))
    assert seen.waits and seen.short == (state == "WAITING_FOR_RESOURCES")


def test_request_for_later_says_when_that_is():
    later = replace(queued("ACCEPTED"), after="2027-01-15 08:00 UTC")
    assert seen_by(handle(), [None, None], later).waits.endswith("starts at 2027-01-15 08:00 UTC")


@pytest.mark.parametrize("state", ["SUSPENDING", "SUSPENDED", "DELETING"])
def test_request_that_never_comes_back_is_not_waited_for_but_made_anew(state):
    seen = seen_by(handle(), [None, None], queued(state))
    assert not seen.waits and seen.failed is None and seen.queued


def test_node_made_anew_under_the_same_name_is_not_the_one_that_the_attempt_began_on():
    names = target.nodes(PLAN)
    seen = assess(handle(begun=True), {names[0]: node(names[0]), names[1]: node(names[1], number="2")}, {}, STORE)
    assert list(seen.gone) == [1]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("Quota limit 'TPUV4PerProject' has been exceeded. Limit: 0", Reason.NO_QUOTA),
        ('There is no more capacity in the zone "us-central2-b"', Reason.NO_CAPACITY),
        ("An internal error has occurred.", Reason.HOST_LOST),
    ],
)
def test_failed_request_says_why(error, reason):
    failed = seen_by(handle(), [None, None], queued("FAILED", error=error)).failed
    assert failed is not None and failed.reason is reason


NAMED = replace(PLAN, target=VmTarget("p", "us-central2-b", "ada", ("mine",)))
ANOTHER = {target.JOB: "another-abcde", target.ATTEMPT: "3", target.SHARED_STORE: STORE}


def reapplied() -> Handle:
    """Return an attempt that recreates TPU VM `mine`, after one that began on number 1."""
    before = Attempt(0, stage=0, origin=0, learned={NODES: ["1"]})
    return Handle(NAMED, Attempt(1, stage=1, origin=0, action="reapply"), (before,))


@pytest.mark.parametrize(
    ("state", "number", "request_state", "follows"),
    [
        ("READY", "1", "ACTIVE", "made"),  # the previous attempt had that one
        ("REPAIRING", "1", "ACTIVE", "made"),
        ("PREEMPTED", "2", "SUSPENDED", "made"),  # unusable
        (None, "", "SUSPENDED", "made"),
        (None, "", "FAILED", "made"),
        (None, "", None, "made"),
        ("READY", "2", "ACTIVE", "ready"),  # recreated by someone else
        ("READY", "2", None, "ready"),
        ("CREATING", "2", "PROVISIONING", "waits"),  # being recreated
        (None, "", "WAITING_FOR_RESOURCES", "waits"),
    ],
)
def test_named_tpu_vm_is_recreated_unless_the_same_store_did_so(state, number, request_state, follows):
    nodes = {"mine": Node("mine", number, state, hosts=(Host("10.0.0.2"),), labels=ANOTHER)} if state else {}
    requests = {"mine": Queued("mine", request_state, labels=ANOTHER, nodes=("mine",))} if request_state else {}
    seen = assess(reapplied(), nodes, requests, STORE)
    said = "ready" if seen.ready else "waits" if seen.waits else "failed" if seen.failed else "made"
    assert said == follows


@pytest.mark.parametrize(
    ("labels", "number", "strangers"),
    [
        ({}, "1", ()),  # the one that the record names
        ({}, "2", ("mine",)),
        ({target.SHARED_STORE: STORE}, "2", ()),  # `tpu vm`, or another job of this store
        ({target.SHARED_STORE: "another"}, "2", ("mine",)),
        ({target.JOB: NAMED.id, target.ATTEMPT: "1"}, "2", ()),  # an earlier version of tpukit, for this job
        ({target.JOB: NAMED.id, target.ATTEMPT: "1", target.SHARED_STORE: "another"}, "2", ("mine",)),
    ],
)
@pytest.mark.parametrize("state", ["READY", "CREATING", "PREEMPTED"])
def test_named_tpu_vm_is_known_by_its_id_or_by_the_label_of_the_store(labels, number, strangers, state):
    nodes = {"mine": Node("mine", number, state, hosts=(Host("10.0.0.2"),), labels=labels)}
    sent = replace(NAMED, target=VmTarget("p", "us-central2-b", "ada", ("mine",), ids=("1",)))
    seen = assess(Handle(sent, Attempt(0, stage=0, origin=0)), nodes, {}, STORE)
    assert seen.strangers == strangers
    assert (seen.nodes == (None,)) is bool(strangers)
    assert not (strangers and (seen.ready or seen.waits or seen.failed))


def test_queued_resource_of_another_user_has_the_name_of_a_tpu_vm_that_is_gone():
    request = Queued("mine", "ACCEPTED", nodes=("mine",), id="later")
    assert assess(reapplied(), {}, {"mine": request}, STORE).strangers == ("mine",)
    theirs = Queued("mine", "SUSPENDED", nodes=("mine",), id="then")
    sent = replace(NAMED, target=VmTarget("p", "us-central2-b", "ada", ("mine",), ids=("1", "then")))
    assert assess(replace(reapplied(), plan=sent), {}, {"mine": theirs}, STORE).queued == (theirs,)


def test_named_tpu_vm_in_a_record_of_an_earlier_version_is_known_by_its_name_until_the_job_begins():
    nodes = {"mine": Node("mine", "7", "READY", hosts=(Host("10.0.0.2"),))}
    assert assess(Handle(NAMED, Attempt(0, stage=0, origin=0)), nodes, {}, STORE).ready
