"""Sweep TPU VMs that this store created and no active job needs, because queued resources cost quota.

The zones to list come from the records of active and ended jobs, and from a file of this machine: a driver that was
fenced may have created something in a zone that only the record names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tpukit.core.clock import Clock
from tpukit.core.errors import NotFound, TpukitError
from tpukit.google.tpu_vm import TpuVms
from tpukit.jobs.plan import VmTarget
from tpukit.places.base import Claim, Known
from tpukit.places.suspects import Suspects
from tpukit.places.tpu_vm import target


@dataclass(frozen=True, slots=True)
class _Found:
    """A queued resource, or a TPU VM without one, that carries this store's mark."""

    project: str
    zone: str
    name: str
    id: str
    job: str
    queued: bool

    @property
    def words(self) -> str:
        return f"{'queued resource' if self.queued else 'TPU VM'} {self.name}"

    @property
    def key(self) -> str:
        return f"{self.project} {self.zone} {self.words} {self.id}"


@dataclass(frozen=True, slots=True)
class Sweeper:
    file: Path  # zones in which this machine knows of resources
    clock: Clock
    sender: Callable[[], str]
    suspects: Suspects = field(default_factory=Suspects)

    def note(self, where: VmTarget) -> None:
        """Store a zone, for when no record names it any more."""
        line = f"{where.project} {where.zone}\n"
        with suppress(OSError):  # then this machine finds it in records alone
            known = self.file.read_text(encoding="utf-8") if self.file.exists() else ""
            if line not in known:
                self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                with self.file.open("a", encoding="utf-8") as zones:
                    zones.write(line)

    def sweep(
        self,
        client: Callable[[str], TpuVms],
        known: Callable[[], Known],
        complain: Callable[[str], None],
        claim: Claim,
    ) -> Sequence[str]:
        there: dict[str, _Found] = {}
        for project, zone in self._zones(known()):
            try:
                there |= {one.key: one for one in self._listed(client(project), project, zone)}
            except TpukitError as error:
                complain(f"{zone} of {project} was not swept: {error}")
        jobs = known()  # after listing: what was created since is not in `there`
        active = {handle.plan.id for handle in jobs.handles} | jobs.unreadable
        named = {name for handle in jobs.handles for name in target.nodes(handle.plan)}
        unowned = [key for key, one in there.items() if one.job not in active and one.name not in named]
        removed = []
        for key in sorted(self.suspects.confirmed(unowned, self.clock.monotonic())):
            one = there[key]
            try:
                remove = client(one.project).delete_queued if one.queued else client(one.project).delete_node
                with claim(one.job) as free, suppress(NotFound):
                    if free:
                        remove(one.zone, one.name, one.id)
                        removed.append(one.words)
            except TpukitError as error:
                complain(f"{one.words} in {one.zone} of {one.project} was not removed: {error}")
        return removed

    def _zones(self, known: Known) -> list[tuple[str, str]]:
        plans = [*(handle.plan for handle in known.handles), *known.ended]
        for where in {plan.vms for plan in plans if plan.vms is not None and plan.vms.zone}:
            self.note(where)
        noted: Iterable[str] = ()
        with suppress(OSError):
            noted = self.file.read_text(encoding="utf-8").splitlines()
        zones = {(plan.vms.project, plan.vms.zone) for plan in plans if plan.vms is not None and plan.vms.zone}
        for words in (line.split() for line in noted):
            if len(words) == 2:  # a line cut off by a full disk is ignored
                zones.add((words[0], words[1]))
        return sorted(zones)

    def _listed(self, client: TpuVms, project: str, zone: str) -> list[_Found]:
        mine = target.store_label(self.sender())
        requests = [
            _Found(project, zone, one.name, one.id, one.labels.get(target.JOB, ""), queued=True)
            for one in client.queued(zone)
            if one.labels.get(target.STORE) == mine and one.state != "DELETING"
        ]
        nodes = [
            _Found(project, zone, one.name, one.id, one.labels.get(target.JOB, ""), queued=False)
            for one in client.nodes(zone)
            if one.labels.get(target.STORE) == mine and not one.queued and one.state != "DELETING"
        ]
        return [*requests, *nodes]
