"""The kernel with drivers that are suspended, blind or stuck, and another one on the same store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from support.kernel_bench import THINGS, Bench, run
from support.waiting import PATIENCE, until
from tpukit.core import fence
from tpukit.core.clock import ManualClock, SystemClock
from tpukit.core.errors import Denied, Invalid, LeaseLost, NotYet, Transient
from tpukit.kernel import Leases, http
from tpukit.kernel.controller import BLIND_SECONDS, MOST_ABANDONED, OBSERVE_SECONDS, STEP_SECONDS
from tpukit.kernel.leases import SECONDS
from tpukit.kernel.store import Holder, change

OTHER = Holder("other", "another machine", 1, "then")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, ManualClock())
    yield made
    made.store.close()


def take_over(bench: Bench) -> None:
    bench.clock.suspend(SECONDS + 1)
    assert bench.store.acquire("things/x", OTHER, SECONDS)


def test_check_outside_a_fence_allows_everything():
    assert fence.deadline(10.0) == 10.0


def test_carry_in_a_thread_checks_the_fence_of_the_caller():
    results: list[float] = []
    with fence.held(lambda: 7.0):
        carried = fence.carry(lambda: results.append(fence.check()))
    thread = threading.Thread(target=carried)
    thread.start()
    thread.join(PATIENCE)
    assert results == [7.0]


def test_check_of_a_fresh_lease_reads_no_store(bench, monkeypatch):
    leases = Leases(bench.store, Holder("me"), bench.clock)
    lease = leases.hold("things/x")
    monkeypatch.setattr(bench.store, "renew", lambda *_: pytest.fail("read"))
    assert leases.check(lease) == SECONDS
    bench.clock.sleep(SECONDS * 2 / 3)
    assert leases.check(lease) == SECONDS / 3


def test_check_after_a_suspension_renews_a_lease_that_is_free(bench):
    leases = Leases(bench.store, Holder("me"), bench.clock)
    lease = leases.hold("things/x")
    bench.clock.suspend(10 * SECONDS)
    assert leases.check(lease) == SECONDS


def test_check_after_a_suspension_refuses_a_lease_that_another_driver_took(bench):
    leases = Leases(bench.store, Holder("me"), bench.clock)
    lease = leases.hold("things/x")
    take_over(bench)
    with pytest.raises(LeaseLost):
        leases.check(lease)


def test_check_with_the_token_of_an_earlier_hold_refuses(bench):
    leases = Leases(bench.store, Holder("me"), bench.clock)
    first = leases.hold("things/x")
    leases.release("things/x")
    assert leases.hold("things/x").token != first.token
    with pytest.raises(LeaseLost):
        leases.check(first)


def test_driver_suspended_after_its_decision_does_not_act(bench):
    """The decision was written; the other driver continues from it."""
    bench.add("x")
    kernel = bench.kernel()
    put = bench.store.put

    def put_then_sleep(*args, **options):
        written = put(*args, **options)
        take_over(bench)
        return written

    bench.store.put = put_then_sleep
    kernel.round()
    assert (bench.get("x").count, bench.use.acted, bench.complaints) == (1, [], [])


def test_adapter_below_an_act_sends_nothing_after_the_lease_was_lost(bench):
    bench.add("x")
    sent: list[str] = []

    def act(key: str) -> None:
        take_over(bench)
        fence.check()
        sent.append(key)

    bench.use.on_act = act
    bench.kernel().round()
    assert (sent, bench.complaints) == ([], [])


def test_adapter_below_an_observation_sends_nothing_after_a_lease_was_lost(bench):
    bench.add("x")
    sent: list[str] = []

    def observe(group: str) -> None:
        take_over(bench)
        fence.check()
        sent.append(group)

    bench.use.on_observe = observe
    bench.kernel().round()
    assert (sent, bench.get("x").count, bench.complaints) == ([], 0, [])


@pytest.mark.parametrize("where", ["on_observe", "on_act"])
@pytest.mark.parametrize("error", [Transient("unreachable"), Denied("no rights"), ValueError("a bug")])
def test_driver_that_cannot_see_or_act_for_long_lets_another_driver_try(bench, where, error):
    bench.add("x", count=-1000)

    def fail(_: str) -> None:
        raise error

    setattr(bench.use, where, fail)
    blind = bench.kernel(holder=Holder("blind", "machine"))
    taken = []
    for _ in range(int(BLIND_SECONDS * 4)):
        blind.round()
        blind._leases.renew()  # as the background thread does
        bench.clock.sleep(1.0)
        taken.append(bench.store.acquire("things/x", OTHER, SECONDS) is not None)
    assert not any(taken[: int(BLIND_SECONDS / 2)]), "a short failure keeps the key"
    assert any(taken), "a long one does not"


def test_driver_that_waits_for_something_unfinished_keeps_its_key(bench):
    bench.add("x", count=-1000)

    def fail(_: str) -> None:
        raise NotYet("it is being created")

    bench.use.on_act = fail
    kernel = bench.kernel(holder=Holder("waiting", "machine"))
    for _ in range(int(BLIND_SECONDS * 3)):
        kernel.round()
        kernel._leases.renew()
        bench.clock.sleep(1.0)
        assert bench.store.acquire("things/x", OTHER, SECONDS) is None


@pytest.mark.parametrize("where", ["on_observe", "on_act"])
def test_change_by_a_person_during_a_back_off_is_driven_at_once(bench, where):
    bench.add("x", count=-1000)
    tries: list[str] = []

    def fail(name: str) -> None:
        tries.append(name)
        raise Denied("no rights")

    setattr(bench.use, where, fail)
    kernel = bench.kernel()
    run(bench, kernel, rounds=50)
    before = len(tries)
    kernel.round()
    assert len(tries) == before, "it waits"
    change(bench.store, THINGS, "x", lambda thing: replace(thing, message="stop"))
    kernel.round()
    assert len(tries) == before + 1
    kernel.round()
    assert len(tries) == before + 1, "once"


def test_step_that_takes_long_does_not_keep_other_keys_of_its_group_waiting(tmp_path):
    """A host's setup command may run for half an hour."""
    bench = Bench(tmp_path, SystemClock())
    bench.add("slow")
    bench.add("quick")
    release = threading.Event()
    bench.use.on_act = lambda key: release.wait(PATIENCE) if key == "slow" else None
    kernel = bench.kernel(workers=2)

    def driven() -> bool:
        kernel.round()
        return bench.get("quick").state == "off"

    until(driven)
    assert bench.get("slow").count == 1
    assert kernel.hanging(-1.0).keys() == {"a slow"}
    release.set()
    assert kernel.settle(PATIENCE)
    kernel.close()
    bench.store.close()


@pytest.mark.parametrize("where", ["on_observe", "on_act"])
def test_call_that_never_returns_is_abandoned_and_changes_nothing_when_it_does(tmp_path, where):
    clock = ManualClock()
    bench = Bench(tmp_path, clock)
    bench.add("x")
    stuck, release, refused = threading.Event(), threading.Event(), threading.Event()

    def hang(_: str) -> None:
        if stuck.is_set():
            return
        stuck.set()
        release.wait(PATIENCE)
        try:
            fence.check()
        except LeaseLost:
            refused.set()
            raise

    setattr(bench.use, where, hang)
    kernel = bench.kernel(workers=1)
    kernel.round()
    assert stuck.wait(PATIENCE)
    clock.sleep(max(OBSERVE_SECONDS, STEP_SECONDS) + 1)
    kernel._leases.renew()

    def driven() -> bool:
        kernel.round()
        clock.sleep(1.0)
        return bench.get("x").state == "off"

    until(driven)
    assert any("no response" in text for _, text in bench.complaints)
    release.set()
    assert refused.wait(PATIENCE)
    kernel.close()
    bench.store.close()


def test_kernel_with_too_many_calls_that_never_returned_is_not_alive(tmp_path):
    clock = ManualClock()
    bench = Bench(tmp_path, clock)
    bench.add("x")
    release = threading.Event()
    bench.use.on_observe = lambda group: release.wait(PATIENCE) and None
    kernel = bench.kernel(workers=1)

    def abandoned() -> bool:
        kernel.round()
        clock.sleep(OBSERVE_SECONDS + 1)
        return kernel.abandoned >= MOST_ABANDONED

    assert kernel.alive()
    until(abandoned)
    assert not kernel.alive()
    release.set()
    kernel.close()
    bench.store.close()


def test_failed_keys_that_are_removed_leave_nothing_behind(bench):
    kernel = bench.kernel()
    bench.use.on_act = lambda key: (_ for _ in ()).throw(Transient("unreachable"))
    for number in range(50):
        bench.add(f"key-{number}")
    kernel.round()
    for number in range(50):
        bench.store.delete(THINGS, bench.store.get(THINGS, f"key-{number}"))
    bench.clock.sleep(BLIND_SECONDS)
    kernel.round()
    assert (kernel._keys._known, kernel._keys._revisions, kernel._leases._held) == ({}, {}, {})
    assert bench.store.leases() == []


def test_key_that_can_never_act_is_not_yielded_but_ended(bench):
    bench.add("x")
    bench.use.on_act = lambda key: (_ for _ in ()).throw(Invalid("no"))
    bench.kernel().round()
    assert bench.get("x").state == "off"


@pytest.mark.parametrize("held_before", [False, True])
def test_driver_suspended_before_it_takes_a_lease_observes_what_another_one_left(bench, held_before):
    """Between its list and its lease, another driver began the next attempt and died.

    An observation of the previous attempt must not be applied to the next one.
    """
    bench.add("x")
    kernel, acquire = bench.kernel(), bench.store.acquire
    if held_before:
        kernel.round()
    before = bench.get("x").count

    def sleep_then_acquire(*args, **options):
        bench.store.acquire = acquire
        bench.clock.suspend(SECONDS + 1)
        lease = acquire("things/x", OTHER, SECONDS)
        entry = bench.store.get(THINGS, "x")
        bench.store.put(THINGS, entry, replace(entry.value, count=before + 1), lease=lease)
        bench.clock.suspend(SECONDS + 1)
        return acquire(*args, **options)

    observed: list[int] = []
    observe = bench.use.observe

    def observing(group, entries):
        observed.extend(entry.value.count for entry in entries)
        return observe(group, entries)

    bench.use.observe = observing
    bench.clock.sleep(SECONDS / 2)
    bench.store.acquire = sleep_then_acquire
    kernel.round()
    assert observed == [before + 1]


def test_driver_that_takes_the_lease_of_a_key_that_another_one_ended_leaves_it_alone(bench):
    bench.add("x")
    kernel, acquire = bench.kernel(), bench.store.acquire

    def sleep_then_acquire(*args, **options):
        bench.store.acquire = acquire
        change(bench.store, THINGS, "x", lambda thing: replace(thing, state="off"))
        return acquire(*args, **options)

    bench.store.acquire = sleep_then_acquire
    kernel.round()
    assert (bench.use.acted, bench.complaints, bench.store.leases()) == ([], [], [])


def test_healthz_names_the_group_whose_call_does_not_return():
    service = SimpleNamespace(alive=lambda: True, ready=lambda: True, hanging=lambda: {"my-cluster": 130.0})
    server = http.start(service, SimpleNamespace(), 0)
    try:
        assert http.check("live", server.server_address[1]) == "ok\nno response from my-cluster for 130 s"
    finally:
        server.shutdown()
        server.server_close()
