"""A followed job: a table that redraws itself on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType

from rich.console import Group
from rich.live import Live
from rich.text import Text

from tpukit import report
from tpukit.errors import TpukitError
from tpukit.places.base import Handle, HostView, Place
from tpukit.report import tables
from tpukit.store import Job, Store

LINES_SECONDS = 2.0
"""Between two rounds of plain lines."""


class Screen:
    """May be left and entered again, as when Ctrl-C asks a question in between."""

    def __init__(self, store: Store, places: Mapping[str, Place], job_id: str) -> None:
        self._store, self._places, self._id = store, places, job_id
        self._console = tables.console(stderr=True)
        self._live: Live | None = None
        self._told = 0  # events shown so far
        self._last_lines = 0.0
        self._shown: dict[str, str] = {}
        self._seen: tuple[HostView, ...] = ()

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()
            self._live = None

    def update(self, now: float) -> tuple[HostView, ...]:
        """Show the job as it is now; its hosts, for whoever wants to act on what is shown."""
        job = self._store.get(self._id)
        hosts = self._hosts(job)
        self._tell_events()
        if self._live:
            head = Text.assemble((job.id, "bold"), " ", (job.state, tables.STYLES[job.state]), f" {_since(job, now)}")
            self._live.update(Group(head, tables.hosts(hosts)), refresh=True)
        elif now - self._last_lines >= LINES_SECONDS or job.state.ended:
            self._last_lines = now
            self._lines(hosts)
        return hosts

    def _hosts(self, job: Job) -> tuple[HostView, ...]:
        """As they were last seen where the place cannot be asked just now: whoever drives the job says why."""
        if job.attempts:
            with suppress(TpukitError):
                self._seen = self._places[job.place].observe([Handle.of(job)])[0].hosts
        return self._seen

    def _tell_events(self) -> None:
        events = self._store.events(self._id)
        for event in events[self._told :]:
            self._console.print(Text(f"{report.clock_time(event.at)[11:]} {event.text}"), soft_wrap=True)
        self._told = len(events)

    def _lines(self, hosts: tuple[HostView, ...]) -> None:
        """One line per host that moved since the last time."""
        for host in hosts:
            if host.step is None:
                continue
            line = f"{host.name} step {host.step}"
            if host.loss is not None:
                line += f" loss {report.number(host.loss, 4)}"
            if host.steps_per_s is not None:
                line += f" {report.number(host.steps_per_s, 2)} steps/s"
            if self._shown.get(host.name) != line:
                self._shown[host.name] = line
                self._console.print(Text(line), soft_wrap=True)


def _since(job: Job, now: float) -> str:
    return f"{'after' if job.ended else 'for'} {report.duration((job.ended or now) - job.created)}"
