"""The current status of a fleet, for display: two list requests per zone and one of the bucket, for any fleet size.

No host is asked, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from tpukit.fleet import listing
from tpukit.fleet.decide import foreign_words
from tpukit.fleet.listing import Zone
from tpukit.fleet.records import OWNER, UNLABELLED, Work, Worker, home_of, mark_of
from tpukit.fleet.seen import Seen, tpu_state
from tpukit.google.tpu_vm import TpuVms


def status(
    client: TpuVms, fleet: str, known: Sequence[Worker], zones: Sequence[str], work: Work | None = None
) -> list[Worker]:
    """Return the known workers and those that another machine made in these zones, in their current state.

    A worker in a zone that cannot be listed has a message that says so.
    """
    every = sorted({*zones, *(one.zone for one in known)})
    listed = listing.read_all(client, every)
    slots = {one.slot for one in known}
    workers = [*known, *(one for one in _others(fleet, listed, work) if one.slot not in slots)]
    now = [_now(one, listed[one.zone]) for one in workers]
    return sorted(now, key=lambda one: (one.zones[0], one.number))


def _others(fleet: str, listed: Mapping[str, Zone], work: Work | None) -> Iterable[Worker]:
    made: dict[str, Worker] = {}
    for slot, pieces in listing.of_fleet(fleet, listed.values()).pieces.items():
        home, piece = home_of(slot), pieces[0]
        if home is None:
            continue
        zones = list(dict.fromkeys((home[0], piece.zone)))
        type_ = piece.node.accelerator if piece.node else ""
        whose = mark_of(piece.labels[0])
        worker = Worker(
            *(fleet, zones, home[1], type_, 0.0, piece.zone),
            wanted="work" if work else "ready",
            work=work,
            owner=piece.labels[0].get(OWNER, ""),
            adopted=[whose, UNLABELLED],  # shown regardless of its owner
        )
        worker = replace(worker, distinct=worker.tpu != piece.name)
        made[slot] = worker
    return made.values()


def _now(worker: Worker, zone: Zone) -> Worker:
    if zone.error is not None:
        return replace(worker, tpu_state="UNKNOWN", message=f"{zone.name} cannot be listed: {zone.error}")
    piece = zone.pieces.get(worker.tpu)
    if piece is not None and not all(worker.owns(labels) for labels in piece.labels):
        return replace(worker, message=foreign_words(worker, piece.labels[0].get(OWNER, "")))
    found = piece.found if piece else None
    seen = Seen(found.node, queued=found.queued) if found else Seen()
    return replace(worker, tpu_state=tpu_state(seen))
