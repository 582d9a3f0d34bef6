"""Progress of a Terraform run: events folded into one row for each resource. No I/O: the caller passes the time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tpukit.cluster.terraform_events import Diagnostic, Event, Failed, Finished, Planned, Progressed, Started, Summary

State = Literal["waiting", "running", "done", "failed"]


@dataclass(slots=True)
class Row:
    address: str
    action: str
    state: State
    since: float = 0.0
    seconds: float = 0.0  # duration

    def elapsed(self, now: float) -> float:
        return now - self.since if self.state == "running" else self.seconds


@dataclass(slots=True)
class Progress:
    rows: dict[str, Row] = field(default_factory=dict)
    planned: list[Planned] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    summary: Summary | None = None

    def feed(self, event: Event, now: float) -> Row | None:
        """Apply an event and return the row that it changed, if any."""
        match event:
            case Planned(address, _, action):
                self.planned.append(event)
                self.rows[address] = Row(address, action, "waiting")
            case Started(address, action):
                # A replacement is a delete and a create of one address.
                self.rows[address] = Row(address, action, "running", now)
                return self.rows[address]
            case Progressed(address, seconds) if address in self.rows:
                row = self.rows[address]
                row.since = min(row.since, now - seconds)
                return row
            case Finished(address, action, seconds) | Failed(address, action, seconds):
                row = self.rows.get(address) or Row(address, action, "running", now - seconds)
                row.state = "done" if isinstance(event, Finished) else "failed"
                row.action, row.seconds = action, max(seconds, now - row.since)
                self.rows[address] = row
                return row
            case Diagnostic():
                self.diagnostics.append(event)
            case Summary():
                self.summary = event
        return None

    def count(self, state: State) -> int:
        return sum(row.state == state for row in list(self.rows.values()))

    def errors(self) -> list[Diagnostic]:
        return [found for found in self.diagnostics if found.severity == "error"]

    def warnings(self) -> list[Diagnostic]:
        return [found for found in self.diagnostics if found.severity == "warning"]
