"""Tests of the contract of every place. A test module imports them and provides the fixture `stand`."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import replace as with_plan
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from support.waiting import until
from tpukit.core.errors import NotYet, TpukitError, Transient
from tpukit.jobs import plan
from tpukit.jobs.plan import Plan
from tpukit.jobs.reasons import Reason, State
from tpukit.jobs.records import Attempt
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.places.base import Handle, Known, Observation, Place

WAITS = "echo begun $TPU_WORKER_ID; while true; do sleep 0.1; done"
FIRST = Attempt(0, stage=0, origin=0)


@dataclass
class Gate:
    """A gate at which a script waits until the test opens it, however slow its hosts are."""

    file: Path

    def __post_init__(self) -> None:
        self.file.mkdir()

    @property
    def script(self) -> str:
        return f"until [ -e {self.file}/open ]; do sleep 0.1; done"

    def open(self) -> None:
        (self.file / "open").touch()


@dataclass
class Stand:
    """A place under test, and a way to get another instance that knows only the record."""

    place: Place
    another: Callable[[], Place]
    settings: Settings
    gates: Path  # a folder that hosts see
    fields: dict[str, Any] | None = None
    count: int = 0

    def plan(self, script: str, **fields: Any) -> Plan:
        self.count += 1
        document = {
            "name": f"try-{self.count}",
            "tpu": "v4-16",
            "command": ["sh", "-c", script],
            "max": {"grace": "5s"},
            **(self.fields or {}),
            **fields,
        }
        made = plan.make(JobSpec.from_json(document), self.settings, self.place.name)
        made = self.place.prepare(made)
        taken = self.place.taken(made)
        fresh = plan.make(made.spec, made.settings, made.place, taken=taken)
        return with_plan(made, id=fresh.id)

    def gate(self) -> Gate:
        return Gate(self.gates / str(len(list(self.gates.iterdir()))))

    def observe(self, handle: Handle) -> Observation:
        (seen,) = self.place.observe([handle])
        if isinstance(seen, TpukitError):
            raise seen
        return seen

    def submit(self, handle: Handle) -> None:
        """Submit until the place accepts: an earlier attempt may have to leave first."""

        def taken() -> bool:
            try:
                self.place.submit(handle)
            except (NotYet, Transient):
                return False
            return True

        until(taken, "the place to take it")

    def until(self, handle: Handle, state: State) -> tuple[Handle, Observation]:
        """Wait for a state, and return the attempt as a driver would record it by then, and its observation."""
        box = [handle]

        def reached() -> Observation | None:
            seen = self.observe(box[0])
            learned = {**box[0].attempt.learned, **seen.learned}
            box[0] = Handle(handle.plan, replace(box[0].attempt, learned=learned))
            if seen.state is State.PENDING:  # as a driver does; some places need machines first
                with suppress(NotYet, Transient):
                    self.place.submit(box[0])
            if seen.follow_up:
                self.place.follow_up(box[0], seen.follow_up)
            if seen.state is State.RUNNING:
                box[0] = Handle(handle.plan, replace(box[0].attempt, state=State.RUNNING))
            return seen if seen.state is state else None

        seen = until(reached, f"{handle.plan.id} to be {state}")
        return box[0], seen

    def stop(self, handle: Handle, grace: float = 5.0) -> Observation:
        """Stop as a driver does, repeatedly until nothing of the attempt is left."""
        told = Handle(handle.plan, replace(handle.attempt, stopping=Reason.CANCELLED))

        def gone() -> Observation | None:
            self.place.stop(told, grace)
            seen = self.observe(told)
            return None if seen.active else seen

        return until(gone, f"{handle.plan.id} to be gone")


def handle_of(made: Plan, attempt: Attempt = FIRST) -> Handle:
    return Handle(made, attempt)


def test_attempt_that_was_never_sent_is_pending_and_nothing_of_it_is_there(stand):
    seen = stand.observe(handle_of(stand.plan("true")))
    assert (seen.state, seen.active) == (State.PENDING, False)


def test_attempt_runs_with_all_its_hosts_and_ends_well(stand):
    began, gate = time.time(), stand.gate()
    handle = handle_of(stand.plan(gate.script))
    stand.submit(handle)
    running, seen = stand.until(handle, State.RUNNING)
    assert [host.name for host in seen.hosts] == handle.plan.host_names
    assert seen.active
    assert began - 5 < seen.started < time.time() + 5
    gate.open()
    ended, over = stand.until(running, State.COMPLETED)
    assert over.reason is Reason.DONE
    until(lambda: not stand.observe(ended).active, "its hosts to leave")
    assert seen.started <= over.ended <= time.time() + 5


def test_submit_twice_is_once(stand):
    gate = stand.gate()
    handle = handle_of(stand.plan(f"echo once; {gate.script}"))
    stand.submit(handle)
    stand.submit(handle)
    running, _ = stand.until(handle, State.RUNNING)
    stand.submit(running)
    gate.open()
    ended, _ = stand.until(running, State.COMPLETED)
    lines = [(line.host, line.text) for line in stand.place.logs(ended)]
    assert sorted(lines) == [(name, "once") for name in handle.plan.host_names]


def test_tail_is_the_last_lines_of_a_host_and_little_more_than_was_asked_for(stand):
    handle = handle_of(stand.plan("seq 1 20000; echo last; sleep 0.1"))
    stand.submit(handle)
    ended, _ = stand.until(handle, State.COMPLETED)
    last = stand.place.tail(ended, handle.plan.host_names[0], 300)
    assert list(last[-2:]) == ["20000", "last"]
    assert len(last) <= 60


def test_program_that_fails_on_one_host_is_its_error_and_the_host_is_named(stand):
    script = "[ $TPU_WORKER_ID = 1 ] && { sleep 1; echo it broke; exit 3; }; sleep 60"
    handle = handle_of(stand.plan(script))
    stand.submit(handle)
    ended, seen = stand.until(handle, State.FAILED)
    assert (seen.reason, seen.host) == (Reason.USER_ERROR, handle.plan.host_names[1])
    until(lambda: not stand.observe(ended).active, "its peers to leave")
    assert "exit code 3" in seen.detail
    assert "it broke" in seen.detail
    assert "it broke" in [line.text for line in stand.place.logs(ended, handle.plan.host_names[1])]


def test_stopped_attempt_is_gone_before_the_place_says_so(stand):
    handle = handle_of(stand.plan(WAITS))
    stand.submit(handle)
    running, _ = stand.until(handle, State.RUNNING)
    seen = stand.stop(running)
    assert not seen.active
    stand.place.stop(running, 1.0)  # again, with no host left to stop
    assert not stand.observe(running).active


def test_program_that_knows_nothing_of_us_shows_its_steps_and_is_not_done_when_it_leaves_with_0(stand):
    script = "trap 'exit 0' TERM; echo step 7 loss 2.5; echo saved checkpoint at step 6; while :; do sleep 0.1; done"
    handle = handle_of(stand.plan(script))
    stand.submit(handle)
    running, _ = stand.until(handle, State.RUNNING)

    def shown() -> Any:
        seen = stand.observe(running)
        return seen if all(host.step is not None for host in seen.hosts) else None

    seen = until(shown, "its lines to be read")
    assert {(host.step, host.loss) for host in seen.hosts} == {(7, 2.5)}
    assert seen.saved == 6
    assert stand.stop(running).reason is not Reason.DONE


def test_attempt_that_is_stopped_before_it_was_sent_never_runs(stand):
    handle = handle_of(stand.plan(WAITS))
    assert not stand.stop(handle).active


def test_next_attempt_begins_where_the_last_one_left_and_has_logs_of_its_own(stand):
    script = "echo attempt $TPUKIT_ATTEMPT stage $TPUKIT_STAGE; [ $TPUKIT_ATTEMPT = 1 ] || exit 3"
    handle = handle_of(stand.plan(script))
    stand.submit(handle)
    first, _ = stand.until(handle, State.FAILED)
    again = Handle(handle.plan, Attempt(1, stage=1, origin=0, action="resume"))
    stand.submit(again)
    second, _ = stand.until(again, State.COMPLETED)
    for attempt, said in ((first, "attempt 0 stage 0"), (second, "attempt 1 stage 1")):
        assert {line.text for line in stand.place.logs(attempt)} == {said}


def test_reapplied_attempt_runs_anew(stand):
    handle = handle_of(stand.plan("[ $TPUKIT_ATTEMPT = 1 ] || kill -9 $$; sleep 1", rule="reapply"))
    stand.submit(handle)
    stand.until(handle, State.FAILED)
    again = Handle(handle.plan, Attempt(1, stage=1, origin=0, action="reapply"))
    stand.submit(again)
    stand.until(again, State.COMPLETED)


def test_another_driver_sees_the_same_and_can_stop_it(stand):
    """The second driver has only the record, and no memory of the first one."""
    handle = handle_of(stand.plan(WAITS))
    stand.submit(handle)
    running, seen = stand.until(handle, State.RUNNING)
    mine = stand.place
    stand.place = stand.another()
    try:
        _, same = stand.until(running, State.RUNNING)
        assert [host.name for host in same.hosts] == [host.name for host in seen.hosts]
        assert abs(same.started - seen.started) < 2
        assert not stand.stop(running).active
    finally:
        stand.place = mine
    assert not stand.observe(running).active


def test_many_attempts_are_observed_with_one_call(stand):
    plans = [stand.plan(f"sleep {index}", slices=1) for index in range(2)]
    never = stand.plan("true")
    for made in plans:
        stand.submit(handle_of(made))
    for made in plans:
        stand.until(handle_of(made), State.COMPLETED)
    seen = stand.place.observe([handle_of(made) for made in (*plans, never)])
    assert [one.state for one in seen] == [State.COMPLETED, State.COMPLETED, State.PENDING]


def test_logs_of_a_running_attempt_come_as_they_are_printed_and_end_with_it(stand):
    gate = stand.gate()
    handle = handle_of(stand.plan(f"echo line 1; echo line 2; {gate.script}; echo line 3"))
    stand.submit(handle)
    running, _ = stand.until(handle, State.RUNNING)
    host = handle.plan.host_names[0]
    lines = []
    for line in stand.place.logs(running, host, follow=True):
        lines.append(line.text)
        if line.text == "line 2":
            gate.open()
    assert lines == ["line 1", "line 2", "line 3"]


def test_sweep_touches_nothing_that_is_known_and_nothing_that_is_young(stand):
    handle = handle_of(stand.plan(WAITS))
    stand.submit(handle)
    running, _ = stand.until(handle, State.RUNNING)
    assert [name for name in stand.place.sweep(lambda: Known([running])) if handle.plan.id in name] == []
    assert [name for name in stand.place.sweep(Known) if handle.plan.id in name] == []
    assert stand.observe(running).state is State.RUNNING
    stand.stop(running)


def test_capabilities_workdir_and_notes_are_there_for_those_who_ask(stand):
    made = stand.plan("true")
    assert isinstance(stand.place.capabilities.uses_this_machine, bool)
    assert stand.place.workdir(made, 0) != stand.place.workdir(made, 2)
    assert all(isinstance(note, str) for note in stand.place.notes(made))
    assert stand.place.group(made) is not None
    assert stand.place.check(made) in ([], ())
