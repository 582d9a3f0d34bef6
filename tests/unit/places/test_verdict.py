"""The reason for the end of an attempt, from its hosts: cases of real JAX processes, and invariants."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit.jobs.reasons import MEANINGS, Budget, Reason
from tpukit.places import log_tail
from tpukit.places.verdict import HostEnd, Verdict, verdict

GLOO = (
    "jax.errors.JaxRuntimeError: UNKNOWN: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:41222"
)
SIGTERM = "Training stopped: Job received termination signal (SIGTERM)."
HEARTBEAT = "E1115 coordination_service_agent.cc:650] Polled an error: heartbeat timeout of task /job:jax_worker/task:1"


def ends(*given: HostEnd) -> list[HostEnd]:
    """Return the hosts in the order in which they ended; for lost ones the order is unknown."""
    return [replace(end, order=0.0 if end.lost else index + 1.0) for index, end in enumerate(given)]


CASES = {
    "all well": (ends(HostEnd("a", 0), HostEnd("b", 0)), Reason.DONE, ""),
    "single host well": (ends(HostEnd("a", 0)), Reason.DONE, ""),
    "told to leave by us, all leave with 0": (
        ends(HostEnd("a", 0, signalled_by_us=True), HostEnd("b", 0, signalled_by_us=True)),
        Reason.CANCELLED,
        "",
    ),
    "told to leave by us, but it had reached its end": (
        ends(HostEnd("a", 0, signalled_by_us=True, finished=True), HostEnd("b", 0, signalled_by_us=True)),
        Reason.DONE,
        "",
    ),
    "one host told to leave, all leave with 0": (
        ends(HostEnd("a", 0), HostEnd("b", 0, signalled_by_us=True)),
        Reason.PREEMPTED,
        "b",
    ),
    "MaxText was sent SIGTERM by somebody": (
        ends(HostEnd("a", 0, tail=[SIGTERM]), HostEnd("b", 0, tail=[SIGTERM])),
        Reason.PREEMPTED,
        "a",
    ),
    "a program that only says what it would do on SIGTERM": (
        ends(HostEnd("a", 0, tail=["will save on SIGTERM", "step 3 loss 1.0"])),
        Reason.DONE,
        "",
    ),
    "user's exit 1, peers abort": (
        ends(HostEnd("b", 1, tail=["ValueError: bad shape"]), HostEnd("a", 134), HostEnd("c", 134, tail=[HEARTBEAT])),
        Reason.USER_ERROR,
        "b",
    ),
    "user's exit 1, a peer aborts before it is gone": (
        ends(HostEnd("a", 134), HostEnd("b", 1, tail=["ValueError: bad shape"])),
        Reason.USER_ERROR,
        "b",
    ),
    "user's exit 1, a peer dies of the broken connection with 1": (
        ends(HostEnd("a", 1, tail=["Traceback", GLOO]), HostEnd("b", 1, tail=["ValueError: bad shape"])),
        Reason.USER_ERROR,
        "b",
    ),
    "user's exit 1, peers have to be killed by us": (
        ends(HostEnd("b", 1), HostEnd("a", 137, signalled_by_us=True), HostEnd("c", 143, signalled_by_us=True)),
        Reason.USER_ERROR,
        "b",
    ),
    "two programs fail by themselves": (ends(HostEnd("b", 3), HostEnd("a", 1)), Reason.USER_ERROR, "b"),
    "kill -9 of process 0, peers abort": (
        ends(HostEnd("a", 137), HostEnd("b", 134), HostEnd("c", 134)),
        Reason.HOST_LOST,
        "a",
    ),
    "kill -9 of a worker, peers notice after the heartbeat": (
        ends(HostEnd("b", 137), HostEnd("a", 134, tail=[HEARTBEAT])),
        Reason.HOST_LOST,
        "b",
    ),
    "kill -9 of a worker, a peer dies with 1": (
        ends(HostEnd("b", 137), HostEnd("a", 1, tail=[GLOO])),
        Reason.HOST_LOST,
        "b",
    ),
    "host vanished with its watcher": (
        ends(HostEnd("a", 134), HostEnd("b", 137, lost=True)),
        Reason.HOST_LOST,
        "b",
    ),
    "everything vanished": (
        ends(HostEnd("a", 137, lost=True), HostEnd("b", 137, lost=True)),
        Reason.HOST_LOST,
        "a",
    ),
    "SIGTERM to one host, all save and leave": (
        ends(HostEnd("b", 143), HostEnd("a", 143)),
        Reason.PREEMPTED,
        "b",
    ),
    "SIGTERM to one host, peers leave because we say so": (
        ends(HostEnd("b", 143), HostEnd("a", 143, signalled_by_us=True)),
        Reason.PREEMPTED,
        "b",
    ),
    "SIGTERM to one host that dies of it, its peer aborts": (
        ends(HostEnd("b", 143), HostEnd("a", 134)),
        Reason.PREEMPTED,
        "b",
    ),
    "all abort": (ends(HostEnd("b", 134), HostEnd("a", 134)), Reason.PEER_LOST, "b"),
    "hung host is given up by its peers and killed": (
        ends(HostEnd("a", 134, tail=[HEARTBEAT]), HostEnd("c", 134), HostEnd("b", 137, signalled_by_us=True)),
        Reason.HANG,
        "b",
    ),
    "missing binary": (
        ends(HostEnd("a", 128, error="trian: No such file or directory"), HostEnd("b", 128, error="trian: No such")),
        Reason.BAD_COMMAND,
        "a",
    ),
    "missing binary on one host, peer lives until told": (
        ends(HostEnd("b", 128, error="train: Permission denied"), HostEnd("a", 137, signalled_by_us=True)),
        Reason.BAD_COMMAND,
        "b",
    ),
    "no room for the log": (
        ends(HostEnd("a", 128, error="python: No space left on device")),
        Reason.DISK_FULL,
        "a",
    ),
    "kernel out of memory": (
        ends(HostEnd("b", 137, out_of_memory=True), HostEnd("a", 134)),
        Reason.OUT_OF_MEMORY,
        "b",
    ),
    "chip out of memory": (
        ends(HostEnd("a", 1, tail=["RESOURCE_EXHAUSTED: Out of memory allocating 34359738368 bytes"])),
        Reason.OUT_OF_MEMORY,
        "a",
    ),
    "Python out of memory": (ends(HostEnd("a", 1, tail=["MemoryError"]), HostEnd("b", 134)), Reason.OUT_OF_MEMORY, "a"),
    "disk full as the program says": (
        ends(HostEnd("b", 1, tail=["OSError: [Errno 28] No space left on device"]), HostEnd("a", 134)),
        Reason.DISK_FULL,
        "b",
    ),
    "chips that the container may not open": (
        ends(
            HostEnd(
                "b",
                1,
                tail=[
                    "RuntimeError: Unable to initialize backend 'tpu': UNKNOWN: TPU initialization failed: "
                    "open(/dev/vfio/1): Permission denied: Permission denied; Couldn't open iommu group /dev/vfio/1"
                ],
            ),
            HostEnd("a", 134),
        ),
        Reason.CHIPS_DENIED,
        "b",
    ),
    "chips whose memory may not be locked": (
        ends(HostEnd("a", 1, tail=["vfio: failed to map DMA: Cannot allocate memory (RLIMIT_MEMLOCK is 65536)"])),
        Reason.CHIPS_DENIED,
        "a",
    ),
    "chips that another program holds": (
        ends(HostEnd("a", 1, tail=["open(/dev/vfio/1): Device or resource busy; Couldn't open iommu group"])),
        Reason.HOST_LOST,
        "a",
    ),
    "disk full as the disk says": (ends(HostEnd("a", 1, disk_full=True)), Reason.DISK_FULL, "a"),
    "disk full and yet all well": (ends(HostEnd("a", 0, disk_full=True)), Reason.DONE, ""),
    "port in use": (
        ends(HostEnd("a", 1, tail=["OSError: [Errno 98] Address already in use"]), HostEnd("b", 134)),
        Reason.PORT_IN_USE,
        "a",
    ),
    "single host fails": (ends(HostEnd("a", 1)), Reason.USER_ERROR, "a"),
    "single host aborts: it has no peer to lose": (ends(HostEnd("a", 134)), Reason.USER_ERROR, "a"),
    "single host is killed": (ends(HostEnd("a", 137)), Reason.HOST_LOST, "a"),
    "killed on a host that is there": (
        ends(HostEnd("a", 137, there=True), HostEnd("b", 134)),
        Reason.PROCESS_LOST,
        "a",
    ),
    "lost on a host that is there": (ends(HostEnd("a", 137, lost=True, there=True)), Reason.PROCESS_LOST, "a"),
    "out of memory on a host that is there": (
        ends(HostEnd("a", 137, out_of_memory=True, there=True)),
        Reason.OUT_OF_MEMORY,
        "a",
    ),
    "single host whose runtime lost its connection": (
        ends(
            HostEnd("a", 134, tail=["E1115 11:11:15.658635 30370 coordination_service_agent.cc:288] Polled an error"])
        ),
        Reason.PEER_LOST,
        "a",
    ),
    "single host is told to leave by somebody else": (ends(HostEnd("a", 143)), Reason.PREEMPTED, "a"),
    "single host speaks of a connection": (
        ends(HostEnd("a", 1, tail=["ConnectionError: connection refused"])),
        Reason.USER_ERROR,
        "a",
    ),
    "some are done when one fails": (ends(HostEnd("a", 0), HostEnd("b", 2)), Reason.USER_ERROR, "b"),
    "all told by us": (
        ends(HostEnd("a", 143, signalled_by_us=True), HostEnd("b", 137, signalled_by_us=True)),
        Reason.CANCELLED,
        "",
    ),
    "all told by us, one fails while it saves": (
        ends(HostEnd("a", 1, signalled_by_us=True), HostEnd("b", 143, signalled_by_us=True)),
        Reason.CANCELLED,
        "",
    ),
}


@pytest.mark.parametrize(("given", "reason", "host"), CASES.values(), ids=CASES)
def test_verdict_known_case(given, reason, host):
    found = verdict(given)
    assert (found.reason, found.host) == (reason, host)


def test_verdict_user_error_quotes_the_last_words_of_its_host():
    last = HostEnd("a", 3, tail=["Traceback (most recent call last):", "KeyError: 'layers'", ""])
    assert verdict([last]).detail == """exit code 3, "KeyError: 'layers'\""""


def test_verdict_long_last_words_are_cut():
    assert len(verdict([HostEnd("a", 1, tail=["x" * 10_000])]).detail) < 250


def test_verdict_missing_binary_says_what_the_system_said():
    assert verdict([HostEnd("a", 128, error="trian: No such file")]).detail == "trian: No such file"


@pytest.mark.parametrize("given", [case[0] for case in CASES.values()], ids=CASES)
def test_verdict_order_of_hosts_does_not_matter(given):
    assert {verdict(order) for order in permutations(given)} == {verdict(given)}


codes = st.sampled_from([0, 1, 2, 128, 134, 137, 139, 143])
tails = st.sampled_from(
    [[], ["ValueError"], [GLOO], [HEARTBEAT], ["No space left on device"], ["address already in use"]]
)


@st.composite
def worlds(draw: st.DrawFn) -> list[HostEnd]:
    count = draw(st.integers(1, 5))
    orders = draw(st.permutations(range(1, count + 1)))
    hosts = []
    for index in range(count):
        code = draw(codes)
        lost = code == 137 and draw(st.booleans())
        hosts.append(
            HostEnd(
                f"h{index}",
                code,
                order=0.0 if lost else float(orders[index]),
                lost=lost,
                signalled_by_us=code != 0 and not lost and draw(st.booleans()),
                error="x: No such file" if code == 128 else "",
                tail=draw(tails) if code else [],
            )
        )
    return hosts


@given(worlds(), st.randoms(use_true_random=False))
def test_verdict_any_world_order_never_changes_it(world, random):
    shuffled = list(world)
    random.shuffle(shuffled)
    assert verdict(shuffled) == verdict(world)


@given(worlds())
def test_verdict_any_world_names_a_host_that_failed_by_itself(world):
    found = verdict(world)
    if found.reason in (Reason.DONE, Reason.CANCELLED):
        assert found == Verdict(found.reason)
        assert all(end.code == 0 or end.signalled_by_us for end in world)
    else:
        culprit = next(end for end in world if end.host == found.host)
        assert culprit.code != 0
        assert not culprit.signalled_by_us or found.reason is Reason.HANG or culprit.error


@given(st.lists(st.sampled_from([134, 137, 143]), min_size=2, max_size=6), st.data())
def test_verdict_hardware_alone_is_never_charged_to_the_user(codes, data):
    world = [
        HostEnd(f"h{index}", code, order=float(index), tail=data.draw(st.sampled_from([[], [GLOO], [HEARTBEAT]])))
        for index, code in enumerate(codes)
    ]
    assert MEANINGS[verdict(world).reason].budget is Budget.HARDWARE


@given(worlds())
def test_verdict_killed_from_outside_is_never_a_user_error(world):
    if any(end.lost or (end.code == 137 and not end.signalled_by_us) for end in world) and not any(
        end.error for end in world
    ):
        assert verdict(world).reason is Reason.HOST_LOST


@given(
    st.lists(st.sampled_from([0, 134, 143]), min_size=1, max_size=5), st.integers(0, 5), st.sampled_from([1, 2, 139])
)
def test_verdict_one_program_fails_and_all_others_follow_is_a_user_error(followers, where, code):
    world = [HostEnd(f"h{index}", follower, order=index + 1.0) for index, follower in enumerate(followers)]
    world.insert(where, HostEnd("culprit", code, order=0.5))
    found = verdict(world)
    assert (found.reason, found.host) == (Reason.USER_ERROR, "culprit")


def test_final_output_of_wandb_is_a_sign_of_an_end_but_not_behind_an_exception():
    over = [
        "step 9 loss 0.1",
        "wandb: Run history:",
        "wandb: loss █▁",
        "wandb: Run summary:",
        *["wandb: metric 1"] * 40,
    ]
    raised = ["Traceback (most recent call last):", '  File "main.py", line 1, in <module>', "ValueError: no"]
    assert log_tail.finished(over)
    assert not log_tail.finished([*raised, *over])
    assert not log_tail.finished(["wandb: Syncing run", "wandb: View run history: no"])
