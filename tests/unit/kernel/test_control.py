"""The kernel by itself, with a use unrelated to jobs: isolation, order, leases, retries."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from support.kernel_bench import THINGS, Bench, Thing, run
from support.waiting import PATIENCE, until
from tpukit.core.clock import ManualClock, SystemClock
from tpukit.core.errors import (
    Conflict,
    Denied,
    Invalid,
    NoCapacity,
    NotFound,
    NotYet,
    Transient,
)
from tpukit.kernel import Hooks, backoff
from tpukit.kernel.leases import SECONDS
from tpukit.kernel.store import Holder, change
from tpukit.kernel.store.process import this_process


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, ManualClock())
    yield made
    made.store.close()


def test_round_observes_the_keys_of_a_group_with_one_call(bench):
    for key, group in (("x", "a"), ("y", "a"), ("z", "b")):
        bench.add(key, group)
    assert bench.kernel().round() == 3
    assert sorted(bench.use.observed) == [("a", ["x", "y"]), ("b", ["z"])]


def test_key_that_cannot_be_driven_from_here_is_left_alone(bench):
    bench.add("x", group="")
    kernel = bench.kernel()
    assert (kernel.round(), kernel.drivable, bench.get("x").count) == (1, 0, 0)


def test_decision_is_written_before_it_is_acted_on(bench):
    bench.add("x")
    seen = []
    bench.use.on_act = lambda key: seen.append(bench.get(key).count)
    bench.kernel().round()
    assert seen == [1]


@pytest.mark.parametrize("where", ["on_observe", "on_decide", "on_act"])
@pytest.mark.parametrize(
    "error", [Transient("away"), Denied("no"), ValueError("a bug"), KeyError("x"), OSError(28, "full")]
)
def test_error_of_one_key_or_group_costs_the_others_nothing(bench, where, error):
    bench.add("bad", "broken")
    bench.add("good", "sound")

    def fail(what: object) -> None:
        if what in ("bad", "broken") or (isinstance(what, Thing) and what.group == "broken"):
            raise error

    setattr(bench.use, where, fail)
    run(bench, bench.kernel(), rounds=30)
    assert (bench.get("good").state, bench.get("good").count) == ("off", 3)
    assert len(bench.complaints) == 1, "said once"


def test_error_that_lasts_is_on_the_record_and_gone_when_it_passes(bench):
    bench.add("x")
    failing = [True]

    def fail(group: str) -> None:
        if failing:
            raise Transient("the cluster is away")

    bench.use.on_observe = fail
    kernel = bench.kernel()
    run(bench, kernel, rounds=40)
    assert bench.get("x").message == "the cluster is away"
    assert kernel.trouble() == {"a": "the cluster is away"}
    failing.clear()
    run(bench, kernel)
    assert (bench.get("x").state, bench.get("x").message, kernel.trouble()) == ("off", "", {})


def test_act_that_can_never_be_done_becomes_the_end_of_the_record(bench):
    bench.add("x")
    bench.use.on_act = lambda key: (_ for _ in ()).throw(Invalid("its folder is a file"))
    run(bench, bench.kernel())
    assert (bench.get("x").state, bench.get("x").message) == ("off", "its folder is a file")
    assert bench.store.lease("things/x") is None


def test_record_that_changes_while_it_is_decided_on_is_read_again(bench):
    bench.add("x")
    once = [1]

    def meddle(thing: Thing) -> None:
        if once:
            once.clear()
            change(bench.store, THINGS, "x", lambda thing: replace(thing, message="changed"))

    bench.use.on_decide = meddle
    bench.kernel().round()
    assert (bench.get("x").count, bench.complaints) == (1, [])


def test_key_held_by_another_is_driven_when_the_lease_lapses_and_not_before(bench):
    bench.add("x")
    bench.store.acquire("things/x", Holder("other", "another machine", 1, "then"), SECONDS)
    kernel = bench.kernel()
    kernel.round()
    assert bench.get("x").count == 0
    bench.clock.sleep(SECONDS + 1)
    kernel.round()
    assert bench.get("x").count == 1


def test_driver_that_lost_its_lease_while_it_decided_writes_nothing(bench):
    bench.add("x")
    other = Holder("other", "another machine", 1, "then")

    def lapse(thing: Thing) -> None:
        if not bench.store.lease("things/x") or bench.store.lease("things/x").holder != other:
            bench.clock.sleep(SECONDS + 1)
            assert bench.store.acquire("things/x", other, SECONDS)

    bench.use.on_decide = lapse
    bench.kernel().round()
    assert (bench.get("x").count, bench.use.acted) == (0, [])


def test_leases_are_prolonged_while_a_kernel_lives_and_given_back_at_its_end(bench):
    bench.add("x")
    kernel = bench.kernel()
    kernel.round()
    first = bench.store.lease("things/x")
    for _ in range(10):
        bench.clock.sleep(SECONDS / 2)
        kernel._leases.renew()
    last = bench.store.lease("things/x")
    assert last.token == first.token
    assert last.ends > bench.clock.now()
    kernel.close()
    assert bench.store.lease("things/x") is None


def test_group_that_hangs_costs_other_groups_nothing(tmp_path):
    """Simulates an API server that accepts and never responds."""
    bench = Bench(tmp_path, SystemClock())
    for index in range(3):
        bench.add(f"stuck-{index}", "hangs")
        bench.add(f"fine-{index}", "works")
    release = threading.Event()
    bench.use.on_observe = lambda group: release.wait(PATIENCE) if group == "hangs" else None
    kernel = bench.kernel(workers=2)

    def driven() -> bool:
        kernel.round()
        return all(bench.get(f"fine-{index}").state == "off" for index in range(3))

    until(driven)
    assert [bench.get(f"stuck-{index}").count for index in range(3)] == [0, 0, 0]
    release.set()
    assert kernel.settle(PATIENCE)
    kernel.close()
    bench.store.close()


def test_keys_of_a_group_are_acted_on_in_parallel_and_each_one_serially(tmp_path):
    bench = Bench(tmp_path, SystemClock())
    for index in range(4):
        bench.add(f"key-{index}")
    together = threading.Barrier(4, timeout=PATIENCE)  # breaks unless all four act at once
    running: set[str] = set()

    def act(key: str) -> None:
        assert key not in running, "twice at once"
        running.add(key)
        together.wait()
        running.discard(key)

    bench.use.on_act = act
    kernel = bench.kernel(workers=4)
    until(lambda: not kernel.round() or None)
    assert kernel.settle(PATIENCE)
    assert sorted(bench.use.acted) == sorted([f"key-{index}" for index in range(4)] * 3)
    assert bench.complaints == []
    kernel.close()
    bench.store.close()


def test_key_whose_round_ends_it_while_the_next_one_reads_the_records_is_ended_once(tmp_path, monkeypatch):
    bench = Bench(tmp_path, SystemClock())
    bench.store.create(THINGS, "x", Thing(count=2))
    ended: list[Thing] = []
    kernel = bench.kernel(workers=1, hooks=Hooks(ended=ended.append))
    deciding, go = threading.Event(), threading.Event()
    bench.use.on_decide = lambda thing: (deciding.set(), go.wait(PATIENCE), None)[2]
    kernel.round()
    assert deciding.wait(PATIENCE)
    read = bench.store.list

    def read_slowly(*asked: Any, **options: Any) -> Any:
        page = read(*asked, **options)
        go.set()
        assert kernel.settle(PATIENCE)
        return page

    monkeypatch.setattr(bench.store, "list", read_slowly)
    assert kernel.round() == 1, "as it was read"
    assert kernel.settle(PATIENCE)
    assert [thing.state for thing in ended] == ["off"]
    kernel.close()
    bench.store.close()


def test_two_kernels_on_one_store_count_each_key_once(tmp_path):
    first, second = Bench(tmp_path, SystemClock()), Bench(tmp_path, SystemClock())
    for index in range(6):
        first.add(f"key-{index}")
    me = this_process()
    kernels = [
        bench.kernel(workers=3, holder=Holder(name, me.machine, me.pid, me.started))
        for bench, name in ((first, "one"), (second, "two"))
    ]

    def driven() -> bool:
        return not sum([kernel.round() for kernel in kernels])

    until(driven)
    assert all(kernel.settle(PATIENCE) for kernel in kernels)
    assert sorted(first.use.acted + second.use.acted) == sorted([f"key-{index}" for index in range(6)] * 3)
    for kernel, bench in zip(kernels, (first, second), strict=True):
        kernel.close()
        bench.store.close()


# Backoff after errors

ERRORS = [
    Transient("t"),
    Conflict("c"),
    Invalid("i"),
    Denied("d"),
    NotYet("n"),
    NotFound("f"),
    NoCapacity("n"),
    OSError(),
]


@given(st.sampled_from(ERRORS), st.integers(1, 10_000), st.floats(0, 1))
def test_backoff_is_bounded_and_never_negative(error, failures, dice):
    assert 0.0 <= backoff.after(error, failures, lambda: dice).seconds <= backoff.SLOW


@given(st.sampled_from(ERRORS), st.integers(1, 50))
def test_backoff_never_shrinks_as_failures_go_on(error, failures):
    fair = [backoff.after(error, count, lambda: 1.0).seconds for count in (failures, failures + 1)]
    assert fair[0] <= fair[1]


@given(st.integers(1, 20))
def test_backoff_spreads_those_who_failed_together(failures):
    low, high = (backoff.after(Transient("t"), failures, lambda dice=dice: dice).seconds for dice in (0.0, 1.0))
    assert low < high


def test_backoff_heeds_what_the_server_asks_for():
    error = Transient("slow down", retry_after=90.0)
    assert backoff.after(error, 1, lambda: 0.0).seconds >= 90.0


def test_backoff_of_a_conflict_is_to_read_again_at_once_and_slower_only_when_it_lasts():
    assert backoff.after(Conflict("c"), 1, lambda: 1.0).seconds == 0.0
    assert backoff.after(Conflict("c"), 9, lambda: 1.0).seconds > 1.0
