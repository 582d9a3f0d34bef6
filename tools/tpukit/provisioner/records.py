"""The cluster as the kernel's store: one record for each pool that exists or is needed.

Records are read from labels of pools and an annotation of the JobSet. Only that annotation is written, after a failure:
a pool that comes up causes no write, and a new replica needs nothing from the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from tpukit.core.errors import Conflict, NotFound
from tpukit.kernel.store import Entry, Event, Kind, Lease, Page
from tpukit.kube import Cluster
from tpukit.provisioner.decide import Step
from tpukit.provisioner.events import About, Events
from tpukit.provisioner.observation import NEVER, Tries
from tpukit.provisioner.pool_names import TRIES

T = TypeVar("T", bound=msgspec.Struct)


class SliceRecord(msgspec.Struct, frozen=True):
    pool: str
    namespace: str = ""
    jobset: str = ""
    uid: str = ""
    pod: str = ""
    pod_uid: str = ""
    tries: Tries = NEVER
    state: str = "active"
    order: float = 0.0


SLICES: Kind[SliceRecord] = Kind("slices", SliceRecord, state="state", order="order")


class Writes(Protocol):
    """A check of whether this replica may write."""

    def leading(self) -> bool: ...


class ClusterRecords:
    """Records of the last observation, which `list` refreshes."""

    def __init__(
        self,
        cluster: Cluster,
        events: Events,
        leader: Writes,
        steps: Callable[[], Mapping[str, Step]],
        recorded: Callable[[str, Tries], None],
        announced: Callable[[str, str], None],
    ) -> None:
        self._cluster, self._events, self._leader = cluster, events, leader
        self._steps = steps  # the steps, from a fresh observation
        self._announced = announced  # called for each event, with pool and reason
        self._recorded = recorded  # called after each write, which mirrors take a moment to show
        self._entries: dict[str, Entry[SliceRecord]] = {}

    def list(self, kind: Kind[Any], **_query: Any) -> Page[Any]:
        """Return the records; none on replicas that do not lead."""
        if not self._leader.leading():
            self._entries = {}
            return Page(())
        self._entries = {name: Entry(name, _record(step), 0) for name, step in self._steps().items()}
        return Page(tuple(self._entries.values()))

    def get(self, kind: Kind[Any], key: str) -> Entry[Any]:
        try:
            return self._entries[key]
        except KeyError as error:
            raise NotFound(f"pool {key} does not exist and is not needed") from error

    def put(
        self,
        kind: Kind[Any],
        entry: Entry[Any],
        value: Any,
        *,
        lease: Lease | None = None,
        events: Sequence[Event] = (),
    ) -> Entry[Any]:
        record: SliceRecord = value
        if not self._leader.leading():
            raise Conflict("another replica is the leader now")
        if record.tries != entry.value.tries:
            self._write(record)
        about = About(record.namespace, record.jobset, record.uid, record.pod, record.pod_uid)
        for event in events:
            reason, _, text = event.text.partition(": ")
            self._events.tell(about, reason, text)
            self._announced(record.pool, reason)
        latest = Entry(entry.key, record, entry.revision + 1)
        self._entries[entry.key] = latest
        return latest

    def lease(self, name: str) -> Lease | None:
        return None

    def _write(self, record: SliceRecord) -> None:
        """Write the tries to exactly this JobSet, and not to a later one with its name."""
        empty = record.tries == NEVER
        text = None if empty else msgspec.json.encode(record.tries).decode()
        change = {"metadata": {"uid": record.uid, "annotations": {f"{TRIES}/{record.pool}": text}}}
        self._cluster.patch("JobSet", record.jobset, change, record.namespace)
        self._recorded(record.pool, record.tries)


def _record(step: Step) -> SliceRecord:
    need, owner = step.need, step.owner
    if need is not None:
        return SliceRecord(step.pool, need.namespace, need.jobset, need.uid, need.pod, need.pod_uid, step.before)
    assert owner is not None
    return SliceRecord(step.pool, owner.namespace, owner.jobset, owner.uid, tries=step.before)
