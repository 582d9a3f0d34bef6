"""Jobs from Python: submit them, follow them, read their logs, stop and resume them.

    import tpukit

    job = tpukit.submit("job.yaml", overrides={"config.lr": 0.01})
    job.follow()
    for line in job.logs(tail=20):
        print(line.host, line.text)

The store and the places are those of the `tpu` command on this machine, so both see the same jobs. Errors are
`tpukit.TpukitError`; remarks go to the logger `tpukit`.

A job is driven by `follow`, `wait` and `stop`, unless another process such as `tpu serve` drives it. On a place that
restarts jobs by itself (gke), a job also goes on while no process drives it.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tpukit import places
from tpukit.core.clock import SystemClock
from tpukit.core.errors import Conflict
from tpukit.jobs.reasons import Reason, State
from tpukit.jobs.use_cases import following, logs, looking, requests, submission
from tpukit.jobs.use_cases import session as sessions

if TYPE_CHECKING:
    from tpukit.jobs.records import Job as Record
    from tpukit.jobs.report.live import Screen
    from tpukit.jobs.use_cases.session import Session
    from tpukit.places.base import HostView, Line

_log = logging.getLogger("tpukit")


def submit(
    file: str | os.PathLike[str],
    *,
    place: str = places.DEFAULT,
    overrides: Mapping[str, object] | None = None,
    tags: Sequence[str] = (),
    machines: Sequence[str] = (),
    resume: bool = False,
) -> Job:
    """Submit the job in a file, as `tpu run --detach` does, and return it.

    Args:
        file: The job file. Paths in it are relative to its folder.
        place: Where the job runs: `local`, `gke` or `tpu-vm`.
        overrides: Fields of the job file to replace, such as `{"slices": 4, "config.lr": 0.01}`. A string is read as
            `--set` reads it; other values are used as they are.
        tags: Tags to add to those of the file.
        machines: TPU VMs to run on, where the place lets you name them.
        resume: Start from the checkpoints that another job left in the workdir.

    Raises:
        Invalid: The file, an option, or the job in this place cannot be used as written.
        Transient: The store or the place did not answer.
    """
    session = _session()
    submission.check_tags("tags", tags)
    sets = [
        f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in (overrides or {}).items()
    ]
    plan = submission.make_plan(Path(file), sets, place, tags)
    plan = submission.on_machines(session, plan, ",".join(machines))
    plan = submission.settle(session, replace(plan, resume=resume))
    submission.warn(session, plan)
    plan = submission.record(session, submission.stage_code(plan))
    job = Job(session.get(plan.id))
    job._hand_over()
    return job


def jobs(*, active: bool = False, tag: str = "", place: str = "", most: int = 50) -> list[Job]:
    """Return jobs of the store, newest first.

    Args:
        active: Only jobs that have not ended.
        tag: Only jobs with this tag.
        place: Only jobs of this place.
        most: Maximum number of jobs; 0 for all of them.
    """
    session = _session()
    limit = 0 if tag or place else most
    found, _ = looking.matching(session, active=active, tag=tag, place=place, limit=limit)
    return [Job(one) for one in looking.as_seen_by_places(session, found[: most or None])]


def job(name: str) -> Job:
    """Return a job by id, by the beginning of an id, or by name (the newest job of that name).

    Raises:
        NotFound: No job has this name, or several ids begin so.
    """
    return Job(_session().find(name))


class Job:
    """A submitted job. `state`, `reason` and `message` are as of the last call of a method, or of `refresh`."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def __repr__(self) -> str:
        return f"<tpukit.Job {self.id} {self.state}>"

    @property
    def id(self) -> str:
        return self._record.id

    @property
    def place(self) -> str:
        return self._record.place

    @property
    def tags(self) -> tuple[str, ...]:
        return self._record.tags

    @property
    def state(self) -> State:
        return self._record.state

    @property
    def reason(self) -> Reason | None:
        """Why the job or its last attempt ended, or what it waits for."""
        return self._record.reason

    @property
    def message(self) -> str:
        return self._record.message

    @property
    def attempts(self) -> int:
        """Number of attempts so far."""
        folded = self._record.folded
        return (folded.count if folded else 0) + len(self._record.attempts)

    def refresh(self) -> Job:
        """Read the job again, from its place too if that runs it without a driver, and return it."""
        session = _session()
        self._record, _ = looking.up_to_date(session, session.get(self.id))
        return self

    def hosts(self) -> tuple[HostView, ...]:
        """Return the hosts of the last attempt, with their steps. Empty before the first attempt."""
        from tpukit.core.errors import TpukitError
        from tpukit.places.base import Handle

        session = _session()
        record = session.get(self.id)
        if not record.attempts:
            return ()
        (seen,) = session.places[record.place].observe([Handle.of(record)])
        if isinstance(seen, TpukitError):
            raise seen
        return seen.hosts

    def follow(self) -> State:
        """Show the job until it ends, and return its state.

        Shows a table that redraws itself on a terminal, and plain lines elsewhere, on stderr. Drives the job unless
        another process does. KeyboardInterrupt ends only the following: the job goes on.
        """
        from tpukit.jobs.report.live import Screen

        session = _session()
        self._watch(Screen(session.store, session.places, self.id))
        return self.state

    def wait(self, timeout: float | None = None) -> State:
        """Wait until the job ends, and return its state. Drives the job unless another process does.

        Raises:
            TimeoutError: The job has not ended after `timeout` seconds. It goes on.
        """
        if not self._watch(None, timeout):
            raise TimeoutError(f"{self.id} is still {self.state} after {timeout} s")
        return self.state

    def logs(
        self, host: str = "", *, attempt: int | None = None, follow: bool = False, tail: int | None = None
    ) -> Iterator[Line]:
        """Yield the lines that hosts printed, each with its `host`, `text` and `at` (0 where the place has no times).

        Args:
            host: Only this host: its name, or SLICE-HOST such as `0-1`.
            attempt: Number of the attempt (default: the newest).
            follow: Also yield new lines, until the hosts have ended.
            tail: Yield only the last lines of each host first.

        Raises:
            NotFound: There is no such attempt or host.
        """
        session = _session()
        return logs.of_job(session, session.get(self.id), host=host, attempt=attempt, follow=follow, tail=tail)

    def stop(self, *, wait: bool = True) -> State:
        """Stop the job. Its hosts get their grace time to save. A job that has ended stays as it is.

        Args:
            wait: Return when nothing of the job runs.

        Raises:
            Conflict: With `wait`: this machine cannot reach the job, and no process drives it. It is marked to be
                stopped.
        """
        session = _session()
        requests.stop(session, self.id)
        record = session.get(self.id)
        reaches, driver = session.reaches(record), session.driven_by_another(self.id)
        if record.state.ended:
            pass
        elif wait and (reaches or driver):
            requests.wait_for_ends(session, [self.id])
        elif reaches and not driver:
            requests.stop_once(session, self.id)
        elif wait:
            raise Conflict(
                f"{self.id} is marked to be stopped: this machine cannot reach its hosts, and no process drives it",
                hint="start `tpu serve` on its machine",
            )
        self._record = session.get(self.id)
        return self.state

    def resume(self) -> Job:
        """Begin another attempt of an ended job from its last checkpoint, and return the job.

        Raises:
            Conflict: The job has not ended.
            Invalid: Its code was removed.
        """
        return self._again("resume")

    def rerun(self) -> Job:
        """Begin another attempt of an ended job from the beginning, and return the job. Raises as `resume` does."""
        return self._again("rerun")

    def _again(self, wanted: str) -> Job:
        session = _session()
        self._record = requests.again(session, session.get(self.id), wanted)
        self._hand_over()
        return self

    def _hand_over(self) -> None:
        one = following.Following(_session(), self.id)
        try:
            one.hand_over()
        finally:
            one.close()
        self._record = _session().get(self.id)

    def _watch(self, screen: Screen | None, timeout: float | None = None) -> bool:
        session = _session()
        one = following.Following(session, self.id)
        try:
            return one.watch(screen, None if timeout is None else session.clock.monotonic() + timeout)
        finally:
            one.close()
            self._record = session.get(self.id)


@cache
def _session() -> Session:
    """Return the session of this process. The store and the places stay open, as connections are."""
    clock = SystemClock()
    store = cache(sessions.open_store)
    return sessions.Session(
        store,
        lambda: sessions.open_places(clock, lambda: sessions.sender_of(store())),
        clock,
        sessions.this_process(),
        sessions.this_user(),
        lambda job_id, text: _log.warning("%s: %s", job_id, text),
        _log.warning,
    )
