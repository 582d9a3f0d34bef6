"""Contract of the local place, with real processes.

Every call can be repeated, peers of a failed host end as with JobSet, and the reason takes all hosts into account.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.waiting import alive, until
from tpukit.core.clock import ManualClock, SystemClock
from tpukit.core.errors import Invalid
from tpukit.jobs import plan
from tpukit.jobs.reasons import Reason, State
from tpukit.jobs.records import Attempt
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.places import peers
from tpukit.places.base import Handle, Known, Observation
from tpukit.places.local import place as local
from tpukit.places.local import processes as pods
from tpukit.places.local.place import LocalPlace
from tpukit.places.suspects import MINIMUM_AGE


@pytest.fixture
def place(home: Path) -> LocalPlace:
    return LocalPlace(home, SystemClock())


def handle(script: str, *, tpu: str = "v4-16", number: int = 0, **fields: Any) -> Handle:
    spec = JobSpec.from_json({"name": "train", "tpu": tpu, "command": ["sh", "-c", script], **fields})
    return Handle(plan.make(spec, Settings(), "local"), Attempt(number, stage=number, origin=0))


def ended(place: LocalPlace, attempt: Handle) -> Observation:
    """Observe the attempt until it has ended, as the loop does. Observing drives it on."""

    def look() -> Observation | None:
        (found,) = place.observe([attempt])
        time.sleep(0.05)
        return found if found.state.ended else None

    return until(look)


def folder(place: LocalPlace, attempt: Handle, host: int = 0) -> Path:
    return place.host_folder(attempt, plan.host_name(attempt.plan.id, 0, host))


def host_of(attempt: Handle, index: int) -> str:
    return plan.host_name(attempt.plan.id, 0, index)


ROLE = "[ $TPU_WORKER_ID = {0} ] && {{ {1}; }}; "
FOREVER = "while :; do sleep 0.05; done"
WAIT = "while [ ! -e $TPUKIT_WORKDIR/go ]; do sleep 0.02; done"


def roles(*scripts: str) -> str:
    """Return a program that acts differently on each host."""
    return "".join(ROLE.format(index, script) for index, script in enumerate(scripts))


def test_submit_twice_is_once(place):
    attempt = handle("echo ran")
    place.submit(attempt)
    place.submit(attempt)
    assert ended(place, attempt).reason is Reason.DONE
    place.submit(attempt)
    assert [line.text for line in place.logs(attempt)] == ["ran", "ran"]  # one per host


def test_submit_cut_off_in_the_middle_is_pending_and_completed_by_the_next(place, home, monkeypatch):
    gate = home / "gate"
    attempt = handle(f"echo ran; until [ -e {gate} ]; do sleep 0.05; done")
    start = pods.start
    monkeypatch.setattr(local.pods, "start", lambda all_of_them: start(list(all_of_them)[:1]))
    place.submit(attempt)
    (seen,) = place.observe([attempt])
    assert seen.state is State.PENDING
    assert [host.state for host in seen.hosts] == ["running", "waiting"]
    monkeypatch.undo()
    place.submit(attempt)
    gate.touch()
    assert ended(place, attempt).reason is Reason.DONE
    assert len(list(place.logs(attempt))) == 2


def test_submit_before_and_stop_after_never_leave_anything(place, monkeypatch):
    attempt = handle(FOREVER)
    start = pods.start
    monkeypatch.setattr(local.pods, "start", lambda all_of_them: start(list(all_of_them)[:1]))
    place.submit(attempt)
    monkeypatch.undo()
    place.stop(attempt, 0.2)
    assert ended(place, attempt).reason is Reason.CANCELLED
    place.submit(attempt)  # too late
    assert ended(place, attempt).reason is Reason.CANCELLED


def test_observe_what_was_never_submitted_is_pending(place):
    (seen,) = place.observe([handle("true")])
    assert (seen.state, [host.state for host in seen.hosts]) == (State.PENDING, ["waiting", "waiting"])


def test_submit_where_the_workdir_cannot_be_made_is_for_a_person_to_mend(place, home):
    (home / "file").touch()
    attempt = handle("true", workdir=str(home / "file" / "work"))
    assert "is a file" in str(place.check(attempt.plan)[0])
    with pytest.raises(Invalid, match="attempt 0 could not be started"):
        place.submit(attempt)
    (home / "file").unlink()
    assert place.check(attempt.plan) == []
    place.submit(attempt)
    assert ended(place, attempt).reason is Reason.DONE


@pytest.mark.parametrize(
    ("scripts", "reason", "culprit"),
    [
        (["exit 0", "exit 0"], Reason.DONE, None),
        (["exit 1", FOREVER], Reason.USER_ERROR, 0),
        (["exit 134", "sleep 0.1; exit 1"], Reason.USER_ERROR, 1),
        (["exit 134", "exit 134"], Reason.PEER_LOST, None),
        (["kill -9 $$", "sleep 0.1; exit 134"], Reason.HOST_LOST, 0),
        (["trap 'exit 143' TERM; " + FOREVER, "exit 143"], Reason.PREEMPTED, 1),
        (["exit 0", "sleep 0.2; exit 5"], Reason.USER_ERROR, 1),
        (["trap '' TERM; " + FOREVER, "echo 'Check failed: a == b'; exit 134"], Reason.USER_ERROR, 1),
    ],
    ids=["well", "one fails", "follower first", "all abort", "killed", "told to leave", "one is done", "own abort"],
)
def test_end_is_told_from_all_hosts_together(place, scripts, reason, culprit):
    attempt = handle(roles(*scripts))
    place.submit(attempt)
    seen = ended(place, attempt)
    assert seen.reason is reason
    if culprit is not None:
        assert seen.host == host_of(attempt, culprit)


LISTEN = "import os, socket; socket.create_server(('127.0.0.1', int(os.environ['JAX_COORDINATOR_PORT']) + {}))"


@pytest.mark.parametrize(
    ("offset", "reason"),
    [(0, Reason.PORT_LOST), (1, Reason.PORT_IN_USE)],
    ids=["chosen by tpukit", "the program's own"],
)
def test_port_that_another_program_took_is_charged_only_where_the_program_chose_it(place, offset, reason):
    attempt = handle(f'exec {sys.executable} -c "{LISTEN.format(offset)}"', tpu="v4-8")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        note = folder(place, attempt).parent / "port"
        note.parent.mkdir(parents=True)
        note.write_text(str(taken.getsockname()[1] - offset))
        place.submit(attempt)
        seen = ended(place, attempt)
    assert (seen.reason, seen.host) == (reason, host_of(attempt, 0))


def test_port_that_was_lost_is_another_one_in_the_next_attempt(place):
    first, second = (handle("echo $JAX_COORDINATOR_PORT", tpu="v4-8", number=number) for number in (0, 1))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        note = folder(place, first).parent / "port"
        note.parent.mkdir(parents=True)
        note.write_text(str(taken.getsockname()[1]))
        place.submit(first)
        place.submit(second)
        assert [line.text for line in place.logs(first, follow=True)] == [note.read_text()]
        assert [line.text for line in place.logs(second, follow=True)] != [note.read_text()]
    ended(place, first)
    ended(place, second)


def test_peers_that_gave_up_on_a_hung_host_have_it_killed_and_named(place, monkeypatch):
    monkeypatch.setattr(peers, "ABANDONED_SECONDS", 0.5)
    attempt = handle(roles(f"{WAIT}; exit 134", "trap '' TERM; touch $TPUKIT_WORKDIR/go; kill -STOP $$"))
    place.submit(attempt)
    seen = ended(place, attempt)
    assert (seen.reason, seen.host) == (Reason.HANG, host_of(attempt, 1))


def test_peers_of_a_host_that_was_told_to_leave_get_the_grace_to_save(place):
    """Give peers of a preempted host the grace period to save. Peers of a failed host get less."""
    saving = "trap 'sleep 3; echo saved; exit 143' TERM; echo ready; " + FOREVER
    attempt = handle(roles(saving, "trap 'exit 143' TERM; echo ready; " + FOREVER), max={"grace": "20s"})
    place.submit(attempt)
    until(lambda: len(list(place.logs(attempt))) == 2)
    os.kill(pods.status(folder(place, attempt, 1)).pid, signal.SIGTERM)
    seen = ended(place, attempt)
    assert (seen.reason, seen.host) == (Reason.PREEMPTED, host_of(attempt, 1))
    assert "saved" in [line.text for line in place.logs(attempt, host_of(attempt, 0))]


def test_hosts_killed_with_their_watchers_are_lost_and_leave_nothing(place):
    attempt = handle("setsid sleep 600 & sleep 600")
    place.submit(attempt)
    until(lambda: len(pods.strays(folder(place, attempt).parent)) == 6)
    os.kill(pods.status(folder(place, attempt, 0)).shim, signal.SIGKILL)
    seen = ended(place, attempt)
    assert (seen.reason, seen.host) == (Reason.HOST_LOST, host_of(attempt, 0))
    assert pods.strays(folder(place, attempt).parent) == []


@pytest.mark.parametrize(
    "said", ["", "{", "[]", "7", '{"step": "many"}', '{"step": null, "loss": "NaN", "saved": 1.5}', "\x00\xff"]
)
def test_progress_that_makes_no_sense_is_not_believed(place, said):
    attempt = handle("printf '%s' \"$SAID\" > $TPUKIT_PROGRESS", tpu="v4-8", env={"SAID": said.replace("\0", " ")})
    place.submit(attempt)
    seen = ended(place, attempt)
    assert seen.reason is Reason.DONE
    assert seen.hosts[0].step is None


def test_progress_is_seen(place):
    said = json.dumps({"step": 4, "loss": 0.5, "steps_per_s": 2, "saved": 3, "time": 1700000000.5, "more": []})
    attempt = handle(f"echo '{said}' > $TPUKIT_PROGRESS", tpu="v4-8")
    place.submit(attempt)
    seen = ended(place, attempt)
    (host,) = seen.hosts
    assert (host.step, host.loss, host.steps_per_s, host.saved, host.moved) == (4, 0.5, 2.0, 3, 1700000000.5)
    assert seen.saved == 3


HOSTILE = {
    "a FIFO": "mkfifo $TPUKIT_PROGRESS",
    "a device": "ln -s /dev/zero $TPUKIT_PROGRESS",
    "a folder": "mkdir $TPUKIT_PROGRESS",
    "numbers too large": 'echo \'{"step": 1e400, "loss": 1e400, "saved": 99999999999999999999}\' > $TPUKIT_PROGRESS',
    "nesting too deep": "head -c 60000 /dev/zero | tr '\\0' '[' > $TPUKIT_PROGRESS",
}


@pytest.mark.parametrize("script", HOSTILE.values(), ids=HOSTILE)
def test_progress_of_a_hostile_program_is_none_and_its_job_ends(place, script):
    attempt = handle(script, tpu="v4-8")
    place.submit(attempt)
    seen = ended(place, attempt)
    (host,) = seen.hosts
    assert seen.reason is Reason.DONE
    assert (host.step, host.loss, host.saved) == (None, None, -1)


def test_uploader_does_not_decide_success_and_does_not_outlive_the_hosts(place, monkeypatch):
    monkeypatch.setattr(local, "UPLOADER_GRACE", 0.3)
    attempt = handle("true", tpu="v4-8", tensorboard=True)
    _replace_uploader(monkeypatch, "trap '' TERM; echo up; " + FOREVER)
    place.submit(attempt)
    uploader = place.host_folder(attempt, f"{attempt.plan.id}-tensorboard-0-0")
    seen = ended(place, attempt)
    assert seen.reason is Reason.DONE
    assert not alive(pods.status(uploader).pid)


def test_uploader_that_fails_does_not_fail_the_job(place, monkeypatch):
    attempt = handle("sleep 0.3", tpu="v4-8", tensorboard=True)
    _replace_uploader(monkeypatch, "exit 1")
    place.submit(attempt)
    assert ended(place, attempt).reason is Reason.DONE


def test_uploader_whose_start_was_cut_off_never_begins_after_the_end(place, monkeypatch):
    attempt = handle("true", tpu="v4-8", tensorboard=True)
    _replace_uploader(monkeypatch, FOREVER)
    start = pods.start
    monkeypatch.setattr(local.pods, "start", lambda all_of_them: start(list(all_of_them)[1:]))
    place.submit(attempt)
    monkeypatch.undo()
    assert ended(place, attempt).reason is Reason.DONE
    _replace_uploader(monkeypatch, FOREVER)
    place.submit(attempt)
    assert ended(place, attempt).reason is Reason.DONE


def test_sweep_ends_only_what_no_attempt_knows(home):
    clock = ManualClock()
    place = LocalPlace(home, clock)
    known, unknown = handle("sleep 600", tpu="v4-8"), handle("exec sleep 600", tpu="v4-8", number=1)
    place.submit(known)
    place.submit(unknown)
    pids = [pods.status(folder(place, attempt)).pid for attempt in (known, unknown)]
    assert place.sweep(lambda: Known([known])) == [], "seen once"
    assert place.sweep(lambda: Known([known])) == [], "seen twice at once"
    clock.sleep(MINIMUM_AGE)
    removed = place.sweep(lambda: Known([known]))
    assert removed[0] == host_of(unknown, 0)
    until(lambda: not alive(pids[1]))
    until(lambda: pods.status(folder(place, unknown)).phase is pods.Phase.ENDED)
    assert alive(pids[0])
    assert place.sweep(lambda: Known([known])) == []
    assert place.sweep(Known) == []
    clock.sleep(MINIMUM_AGE)
    assert place.sweep(Known) != []
    until(lambda: not alive(pids[0]))


def test_sweep_of_a_second_store_leaves_the_hosts_of_the_first_alone(home):
    """Use two state folders over one data folder."""
    clock = ManualClock()
    first, second = (LocalPlace(home, clock, store) for store in ("first", "second"))
    attempt = handle("exec sleep 600", tpu="v4-8")
    first.submit(attempt)
    for _ in range(3):
        assert second.sweep(Known) == []
        clock.sleep(MINIMUM_AGE)
    first.stop(attempt, 0)
    ended(first, attempt)


def test_sweep_asks_who_is_known_after_it_has_looked(place):
    """Start an attempt in between. It is recorded before it begins, so it is known by then."""
    attempt = handle("sleep 600", tpu="v4-8")
    begun: list[Handle] = []

    def known() -> Known:
        place.submit(attempt)
        begun.append(attempt)
        return Known(begun)

    assert place.sweep(known) == []
    assert pods.status(folder(place, attempt)).phase is pods.Phase.RUNNING
    place.stop(attempt, 0)
    ended(place, attempt)


def test_logs_followed_give_whole_lines_as_they_come(place):
    attempt = handle("printf 'a\\nhal'; sleep 0.6; printf 'f\\nb'", tpu="v4-8")
    place.submit(attempt)
    assert [line.text for line in place.logs(attempt, follow=True)] == ["a", "half", "b"]


def test_rerun_has_a_workdir_of_its_own(place):
    attempt = handle("true", tpu="v4-8")
    again = replace(attempt, attempt=Attempt(2, stage=0, origin=2))
    assert place.workdir(again.plan, 2) != place.workdir(attempt.plan, 0)
    assert place.workdir(again.plan, 2).startswith(place.workdir(attempt.plan, 0))


def _replace_uploader(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    made: Callable[..., pods.Pod] = LocalPlace._uploader
    monkeypatch.setattr(
        LocalPlace, "_uploader", lambda *arguments: replace(made(*arguments), argv=("sh", "-c", script))
    )


def test_interpreter_of_the_job_is_the_one_that_runs_tpu(place):
    attempt = handle("command -v python", tpu="v4-8")
    place.submit(attempt)
    ended(place, attempt)
    (line,) = place.logs(attempt)
    assert Path(line.text).parent == Path(sys.executable).parent


RAISES = """
import atexit
import jax, numpy
from jax.experimental import multihost_utils
from tpukit import host as tpu
me = tpu.start()
atexit.register(print, "the tracker is closed")
for step in range(3):
    multihost_utils.process_allgather(numpy.ones(1))
    if step == 1 and not me.first:
        raise ValueError("bad shape (3, 4)")
"""


def test_host_that_raises_in_the_middle_of_jax_ends_at_once_and_is_named_with_its_words(place, tmp_path):
    """JAX alone would wait five minutes for its peers, who wait for it, and then abort them all alike."""
    (tmp_path / "train.py").write_text(RAISES)
    tools = Path(local.__file__).parents[3]
    attempt = handle(f"exec {sys.executable} {tmp_path / 'train.py'}", env={"PYTHONPATH": str(tools)})
    place.submit(attempt)
    seen = ended(place, attempt)
    assert (seen.reason, seen.host) == (Reason.USER_ERROR, host_of(attempt, 1))
    assert seen.detail == "exit code 1, 'ValueError: bad shape (3, 4)'"
    assert "the tracker is closed" in [line.text for line in place.logs(attempt, host_of(attempt, 1))]
