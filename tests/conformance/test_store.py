"""What every home of the store promises, shown on each of them with many processes at once."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import tpukit
from tpukit.errors import Conflict, NotFound
from tpukit.reasons import Reason, State
from tpukit.store import Attempt, Event, Job, Store
from waiting import until

OPENERS = {"sqlite": "from tpukit.store.sqlite import open_store\nstore = open_store(Path(sys.argv[1]))"}
PREAMBLE = """
import sys, time
from dataclasses import replace
from pathlib import Path
from tpukit.errors import Conflict
from tpukit.store import Job
def job(name, created=0.0): return Job(name, "local", "team", "me", created, plan={})
def count(job): return replace(job, message=str(int(job.message or 0) + 1))
name = sys.argv[2]
"""


@dataclass
class Home:
    """One home, opened here or in other processes."""

    opener: str
    folder: Path
    processes: list[subprocess.Popen[str]]
    opened: list[Any]

    def open(self) -> Store:
        scope: dict[str, Any] = {}
        exec(
            f"import sys\nfrom pathlib import Path\n{self.opener.replace('sys.argv[1]', repr(str(self.folder)))}", scope
        )
        self.opened.append(scope["store"])
        return scope["store"]

    def process(self, name: str, script: str, *, ready: bool = False) -> subprocess.Popen[str]:
        """A process with `store` open in it; with `ready` it has printed a line when this returns."""
        argv = [sys.executable, "-c", f"{PREAMBLE}\n{self.opener}\n{script}", str(self.folder), name]
        environment = {"PYTHONPATH": str(Path(tpukit.__file__).parents[1])}
        process = subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
        self.processes.append(process)
        if ready:
            assert process.stdout is not None
            assert process.stdout.readline()
        return process

    def finish(self) -> list[str]:
        """What the processes printed, when all of them have ended well."""
        outputs = [process.communicate(timeout=60)[0] for process in self.processes]
        assert [process.returncode for process in self.processes] == [0] * len(outputs)
        return outputs


@pytest.fixture(params=OPENERS)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    made = Home(OPENERS[request.param], tmp_path / "store", [], [])
    yield made
    for store in made.opened:
        store.close()
    for process in made.processes:
        process.kill()
        process.communicate()


@pytest.fixture
def store(home: Home) -> Store:
    return home.open()


def job(name: str = "a-1", created: float = 1.0, **fields: Any) -> Job:
    return Job(name, "local", "team", "me", created, **{"plan": {"spec": {"name": "a"}}, **fields})


def ids(jobs: Any) -> list[str]:
    return [found.id for found in jobs]


def test_add_then_get_gives_every_field_back(store, home):
    attempts = (
        Attempt(0, 0, 0, State.FAILED, False, 1.5, 2.5, 7, Reason.HANG, Reason.HANG, "h0", "said ☃ 'this'"),
        Attempt(1, 1, 0, State.RUNNING, True, 3.5),
    )
    whole = job(
        tags=("x", "y"),
        state=State.RUNNING,
        reason=Reason.HOST_LOST,
        message='a "message"\nof two lines',
        ended=9.25,
        wanted="stop",
        attempts=attempts,
        plan={"spec": {"deep": [1, None, {"ü": 0.1}]}},
    )
    store.add(whole)
    assert store.get("a-1") == whole
    assert home.open().get("a-1") == whole
    assert isinstance(store.get("a-1").attempts[0].reason, Reason)


def test_add_writes_an_event(store):
    store.add(job(created=12.5))
    assert store.events("a-1") == [Event("a-1", 12.5, "sent to local by me")]


def test_add_id_that_is_taken_conflicts_and_changes_nothing(store):
    store.add(job())
    with pytest.raises(Conflict, match="a-1"):
        store.add(job(created=5.0))
    assert store.get("a-1").created == 1.0
    assert len(store.events("a-1")) == 1


def test_get_unknown_job_is_not_found(store):
    with pytest.raises(NotFound, match="there is no job nope") as error:
        store.get("nope")
    assert error.value.hint


def test_jobs_are_newest_first_and_can_be_cut_short(store):
    for index in (2, 0, 1):
        store.add(job(f"a-{index}", created=float(index)))
    assert ids(store.jobs()) == ["a-2", "a-1", "a-0"]
    assert ids(store.jobs(limit=2)) == ["a-2", "a-1"]


def test_jobs_active_are_oldest_first_and_without_those_that_ended(store):
    for index in range(4):
        store.add(job(f"a-{index}", created=float(index)))
    store.change("a-1", lambda found: replace(found, state=State.COMPLETED))
    assert ids(store.jobs(active=True)) == ["a-0", "a-2", "a-3"]
    assert ids(store.jobs(active=True, limit=2)) == ["a-0", "a-2"]
    store.change("a-1", lambda found: replace(found, state=State.PENDING))
    assert ids(store.jobs(active=True)) == ["a-0", "a-1", "a-2", "a-3"]


def test_jobs_created_at_the_same_moment_are_all_there(store):
    for index in range(5):
        store.add(job(f"a-{index}", created=1.0))
    assert sorted(ids(store.jobs())) == sorted(ids(store.jobs(active=True))) == [f"a-{index}" for index in range(5)]


def test_taken_gives_ids_with_the_prefix_letter_by_letter(store):
    for name in ("a-1", "a-2", "ab-1", "A-1", "a%-1", "b-1"):
        store.add(job(name))
    assert store.taken("a-") == {"a-1", "a-2"}
    assert store.taken("a%") == {"a%-1"}
    assert store.taken("a_") == frozenset()
    assert len(store.taken("")) == 6


def test_change_writes_job_and_event_together(store):
    store.add(job())
    changed = store.change("a-1", lambda found: replace(found, message="hi"), note="something", at=3.0)
    assert changed.message == store.get("a-1").message == "hi"
    assert store.events("a-1")[1:] == [Event("a-1", 3.0, "something")]


def test_change_without_a_note_writes_no_event(store):
    store.add(job())
    store.change("a-1", lambda found: replace(found, message="hi"))
    assert len(store.events("a-1")) == 1


def test_change_that_raises_leaves_no_trace(store):
    store.add(job())

    def refuse(found: Job) -> Job:
        raise Conflict("no")

    with pytest.raises(Conflict, match="no"):
        store.change("a-1", refuse, note="never")
    assert store.get("a-1") == job()
    assert len(store.events("a-1")) == 1
    store.change("a-1", lambda found: found, note="still usable")


def test_change_unknown_job_is_not_found(store):
    with pytest.raises(NotFound):
        store.change("nope", lambda found: found, note="never")
    assert store.events("nope") == []


def test_events_are_in_the_order_in_which_they_were_written(store):
    store.add(job("a-1"))
    store.add(job("b-1"))
    for index in range(20):  # clocks may go back: the order of writing counts
        store.change("a-1", lambda found: found, note=f"a{index}", at=100.0 - index)
        store.change("b-1", lambda found: found, note=f"b{index}", at=5.0)
    assert [event.text for event in store.events("a-1")[1:]] == [f"a{index}" for index in range(20)]
    assert [event.text for event in store.events("b-1")[1:]] == [f"b{index}" for index in range(20)]


def test_many_processes_open_a_new_store_at_once(home):
    for index in range(8):
        home.process(f"a-{index}", "store.add(job(name))")
    home.finish()
    assert sorted(ids(home.open().jobs())) == [f"a-{index}" for index in range(8)]


def test_many_processes_change_one_job_and_no_change_is_lost(home, store):
    store.add(job("shared"))
    for index in range(5):
        home.process(f"p{index}", "for i in range(40): store.change('shared', count, note=f'{name} {i}', at=1.0)")
    home.finish()
    assert store.get("shared").message == "200"
    texts = [event.text for event in store.events("shared")[1:]]
    assert len(texts) == 200
    for index in range(5):
        assert [text for text in texts if text.startswith(f"p{index} ")] == [f"p{index} {i}" for i in range(40)]


def test_many_processes_add_the_same_id_and_one_wins(home):
    home.open()
    script = "\ntry:\n    store.add(job('same'))\n    print('won')\nexcept Conflict:\n    print('lost')"
    for index in range(6):
        home.process(f"p{index}", script)
    assert sorted(output.strip() for output in home.finish()) == ["lost"] * 5 + ["won"]


def test_readers_go_on_while_somebody_writes(home, store):
    store.add(job())
    slow = "store.change('a-1', lambda job: (print('writing', flush=True), sys.stdin.readline(), count(job))[2])"
    writer = home.process("w", slow, ready=True)
    assert store.get("a-1").message == ""
    assert ids(store.jobs()) == ["a-1"]
    writer.communicate("go\n", timeout=20)
    assert store.get("a-1").message == "1"


def test_writer_waits_for_another_writer(home, store):
    store.add(job())
    slow = "store.change('a-1', lambda job: (print('writing', flush=True), sys.stdin.readline(), count(job))[2])"
    writer = home.process("w", slow, ready=True)
    threading.Timer(0.3, lambda: writer.stdin.write("go\n") and writer.stdin.flush()).start()
    changed = store.change("a-1", lambda found: replace(found, message=str(int(found.message) + 1)))
    assert changed.message == "2"


def test_process_killed_while_it_writes_leaves_no_half(home, store):
    store.add(job())
    slow = (
        "store.change('a-1', lambda job: (print('writing', flush=True), sys.stdin.readline(), count(job))[2], note='n')"
    )
    writer = home.process("w", slow, ready=True)
    writer.send_signal(signal.SIGKILL)
    writer.wait(timeout=20)
    store.change("a-1", lambda found: replace(found, message="mine"))
    assert len(store.events("a-1")) == 1


def test_hold_is_for_one_at_a_time(home, store):
    other = home.open()
    with store.hold("a-1") as mine:
        assert mine
        with other.hold("a-1") as theirs, store.hold("a-1") as again, other.hold("b-1") as another:
            assert (theirs, again, another) == (False, False, True)
    with other.hold("a-1") as theirs:
        assert theirs


def test_hold_is_given_up_when_what_was_done_fails(home, store):
    with pytest.raises(ZeroDivisionError), store.hold("a-1"):
        raise ZeroDivisionError
    with home.open().hold("a-1") as held:
        assert held


def test_hold_is_given_up_at_once_when_its_process_is_killed(home, store):
    script = "with store.hold('a-1') as held: print(held, flush=True); time.sleep(60)"
    holder = home.process("h", script, ready=True)
    with store.hold("a-1") as mine:
        assert not mine
    holder.send_signal(signal.SIGKILL)
    holder.wait(timeout=20)
    with store.hold("a-1") as mine:
        assert mine


def test_hold_is_not_handed_down_to_what_its_process_starts(home, store):
    """Hosts outlive whoever started them; they may not keep the job from being driven."""
    script = (
        "import subprocess\n"
        "with store.hold('a-1'):\n"
        "    child = subprocess.Popen(['sleep', '60'])\n"
        "    print(child.pid, flush=True); sys.stdin.readline(); child.kill()"
    )
    holder = home.process("h", script)
    pid = int(holder.stdout.readline())
    try:
        holder.send_signal(signal.SIGKILL)
        holder.wait(timeout=20)
        with store.hold("a-1") as mine:
            assert mine
    finally:
        subprocess.run(["kill", "-9", str(pid)], check=True)


def test_hold_many_processes_never_overlap(home, store):
    """Each writes that it begins and that it ends while it holds: no two may be between the two."""
    script = (
        "done = 0\n"
        "while done < 15:\n"
        "    with store.hold('a-1') as held:\n"
        "        if held:\n"
        "            store.change('a-1', lambda job: job, note=f'begin {name}')\n"
        "            store.change('a-1', lambda job: job, note=f'end {name}')\n"
        "            done += 1\n"
    )
    store.add(job())
    for index in range(4):
        home.process(f"p{index}", script)
    home.finish()
    texts = [event.text for event in store.events("a-1")[1:]]
    assert len(texts) == 120
    for begin, end in zip(texts[::2], texts[1::2], strict=True):
        assert (begin.split()[0], end.split()[0]) == ("begin", "end")
        assert begin.split()[1] == end.split()[1]


def test_close_then_open_finds_everything(home):
    first = home.open()
    first.add(job())
    first.close()
    assert until(lambda: ids(home.open().jobs())) == ["a-1"]
