"""Follow a job: a table that redraws itself on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType

from rich.console import Group
from rich.live import Live
from rich.text import Text

from tpukit.core.errors import TpukitError
from tpukit.jobs import report
from tpukit.jobs.records import JOBS, Job
from tpukit.jobs.report import tables
from tpukit.kernel.store import Store
from tpukit.places.base import Handle, HostView, Observation, Place

LINES_SECONDS = 2.0
"""Seconds between two rounds of plain lines."""
OBSERVE_SECONDS = 1.0
"""Seconds between two observations, where another process drives the job."""


class Screen:
    """The live view of a job. May be left and entered again, for example for a question after Ctrl-C.

    It keeps the last known state while the store or the place is unreachable, and is silent once its output is closed.
    """

    def __init__(self, store: Store, places: Mapping[str, Place], job_id: str) -> None:
        self._store, self._places, self._id = store, places, job_id
        self._console = tables.console(stderr=True)
        self._live: Live | None = None
        self._shown_events = 0
        self._last_lines = 0.0
        self._last_observed = 0.0
        self._shown: dict[str, str] = {}
        self._unseen = ""
        self._hosts: tuple[HostView, ...] = ()
        self._observed = False

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        live, self._live = self._live, None
        if live:
            with suppress(OSError):
                live.stop()

    def observe(self, seen: Observation) -> None:
        """Take over the driver's latest observation, so that the place is not asked again."""
        self._hosts, self._observed = seen.hosts, True

    def update(self, now: float) -> tuple[HostView, ...]:
        """Show the current state of the job, and return its hosts."""
        try:
            job = self._store.get(JOBS, self._id).value
        except TpukitError:
            return self._hosts
        self._ask_place(job, now)
        try:
            self._show(job, now)
        except OSError:  # a closed pipe or terminal does not affect the job
            self._console.quiet = True
        return self._hosts

    def _show(self, job: Job, now: float) -> None:
        self._show_events()
        attempt = job.attempt
        unseen = report.unseen(self._hosts, attempt.started, now) if attempt and not job.state.ended else ""
        if unseen and unseen != self._unseen:
            self._console.print(Text(unseen), soft_wrap=True)
        self._unseen = unseen or self._unseen
        if self._live:
            progress = report.progress(self._hosts)
            head = Text.assemble(
                *((job.id, "bold"), " ", (job.state, tables.STYLES[job.state]), f" {_since(job, now)}"),
                f"  {progress}" if progress else "",
            )
            self._live.update(Group(head, tables.hosts(self._hosts)), refresh=True)
        elif now - self._last_lines >= LINES_SECONDS or now < self._last_lines or job.state.ended:
            self._last_lines = now
            self._lines(self._hosts)

    def _ask_place(self, job: Job, now: float) -> None:
        """Observe the job if its driver has not. If the place is unreachable, keep the hosts as they were."""
        observed, self._observed = self._observed, False
        due = abs(now - self._last_observed) >= OBSERVE_SECONDS or job.state.ended
        if observed:
            self._last_observed = now
        elif job.attempts and due and job.place in self._places:
            self._last_observed = now
            with suppress(TpukitError):
                (seen,) = self._places[job.place].observe([Handle.of(job)])
                if not isinstance(seen, TpukitError):
                    self._hosts = seen.hosts

    def _show_events(self) -> None:
        with suppress(TpukitError):
            events = self._store.events(JOBS, self._id, after=self._shown_events)
            self._shown_events += len(events)
            for event in events:
                self._console.print(Text(f"{report.clock_time(event.at)[11:]} {event.text}"), soft_wrap=True)

    def _lines(self, hosts: tuple[HostView, ...]) -> None:
        """Print a line for each host that moved, and the job's progress whenever it changes by 1 %."""
        progress = report.progress(hosts)
        share = progress.partition("(")[2].partition(" ")[0]
        if progress and self._shown.get("") != share:
            self._shown[""] = share
            self._console.print(Text(f"{self._id} {progress}"), soft_wrap=True)
        for host in hosts:
            if host.step is None:
                continue
            line = f"{host.name} step {host.step}"
            if host.loss is not None:
                line += f" loss {report.measure(host.loss, 4)}"
            if host.steps_per_s is not None:
                line += f" {report.measure(host.steps_per_s, 2)} steps/s"
            if self._shown.get(host.name) != line:
                self._shown[host.name] = line
                self._console.print(Text(line), soft_wrap=True)


def _since(job: Job, now: float) -> str:
    return f"{'after' if job.ended else 'for'} {report.duration((job.ended or now) - job.created)}"
