"""TPU VMs that this store made and that belong to no active job: queued resources cost quota until they are deleted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tpukit.clock import Clock
from tpukit.cloud.tpu_vm import TpuVms
from tpukit.errors import NotFound
from tpukit.places.base import Handle
from tpukit.places.suspects import Suspects
from tpukit.places.tpu_vm import target
from tpukit.plan import VmTarget


@dataclass(frozen=True, slots=True)
class Sweeper:
    file: Path  # zones that something was ever made in, by this machine
    clock: Clock
    sender: Callable[[], str]
    suspects: Suspects = field(default_factory=Suspects)

    def note(self, where: VmTarget) -> None:
        """Who never sent anything to a zone has nothing there."""
        line = f"{where.project} {where.zone}\n"
        with suppress(OSError):  # then this machine does not sweep there
            known = self.file.read_text(encoding="utf-8") if self.file.exists() else ""
            if line not in known:
                self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                with self.file.open("a", encoding="utf-8") as zones:
                    zones.write(line)

    def sweep(self, client: Callable[[str], TpuVms], known: Callable[[], Sequence[Handle]]) -> Sequence[str]:
        try:
            zones = [line.split() for line in self.file.read_text(encoding="utf-8").splitlines()]
        except OSError:
            return []
        mine = target.store_label(self.sender())
        there: dict[str, tuple[str, str, str, bool, str]] = {}
        for project, zone in zones:
            for request in client(project).queued(zone):
                if request.labels.get(target.STORE) == mine and request.state != "DELETING":
                    job = request.labels.get(target.JOB, "")
                    there[f"queued resource {request.name}"] = project, zone, job, True, request.id
            for node in client(project).nodes(zone):
                if node.labels.get(target.STORE) == mine and not node.queued and node.state != "DELETING":
                    job = node.labels.get(target.JOB, "")
                    there[f"TPU VM {node.name}"] = project, zone, job, False, node.id
        active = {handle.plan.id: handle.plan for handle in known()}
        named = {name for plan in active.values() for name in target.nodes(plan)}
        unowned = [
            name
            for name, (_, _, job, _, _) in there.items()
            if job not in active and name.rpartition(" ")[2] not in named
        ]
        removed = []
        for name in sorted(self.suspects.confirmed(unowned, self.clock.monotonic())):
            project, zone, _, queued, expected = there[name]
            with suppress(NotFound):
                if queued:
                    client(project).delete_queued(zone, name.rpartition(" ")[2], expected)
                else:
                    client(project).delete_node(zone, name.rpartition(" ")[2], expected)
                removed.append(name)
        return removed
