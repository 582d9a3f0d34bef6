"""Observation of the workers of one zone: its TPU VMs and requests, all hosts concurrently, and other zones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tpukit.core.errors import LeaseLost, TpukitError
from tpukit.fleet import listing
from tpukit.fleet.listing import Recent, Zone, located
from tpukit.fleet.progress import Made, Progress
from tpukit.fleet.reach import Reach, Sight
from tpukit.fleet.records import FLEET, OWNER, Worker, mark_of
from tpukit.fleet.seen import READY, Seen
from tpukit.google.tpu_vm import Node, TpuVms

__all__ = ["located", "observe"]
WITNESSES = 3
"""Other TPU VMs of a fleet that are asked for a sign of life if none of the working ones answers."""


def observe(
    client: TpuVms, reach: Reach, workers: Mapping[str, Worker], progress: Callable[[str], Progress], recent: Recent
) -> Mapping[str, Seen]:
    """Return the observations by key.

    `progress` reads the output of a fleet; `recent` caches lists of other zones.
    """
    if not workers:
        return {}
    here = _zone(client, next(iter(workers.values())).zone, workers, recent)
    others = recent.zones(sorted({zone for one in workers.values() for zone in one.everywhere} - {here.name}))
    sights = _sights(reach, here, workers)
    outputs = {one.work.output for one in workers.values() if one.work and one.wanted == "work"}
    made = {output: progress(output) for output in outputs}
    return {key: _seen(worker, here, others, sights.get(key), made) for key, worker in workers.items()}


def _zone(client: TpuVms, zone: str, workers: Mapping[str, Worker], recent: Recent) -> Zone:
    """List TPU VMs, and requests if a worker is not READY or is to be deleted.

    Only a complete list is cached: other groups look for second TPU VMs of their workers in it.
    """
    nodes = listing.pieces(zone, client.nodes(zone), ())
    states = {name: piece.node.state for name, piece in nodes.items() if piece.node}
    # A worker whose first name another user has may have left a request under that name.
    calm = [states.get(one.tpu) == "READY" and one.wanted != "gone" for one in workers.values()]
    if all(calm) and not any(one.moving or one.distinct for one in workers.values()):
        return Zone(zone, nodes)
    whole = listing.read(client, zone)
    if whole.error is not None:
        raise whole.error
    recent.note(whole)
    return whole


def _seen(
    worker: Worker, here: Zone, others: Mapping[str, Zone], sight: Sight | None, made: Mapping[str, Progress]
) -> Seen:
    piece = here.pieces.get(worker.tpu)
    found = piece.found if piece else None
    ours = [worker.owns(labels) for labels in piece.labels] if piece else []
    progress = made.get(worker.work.output) if worker.work else None
    every = (here, *(others[zone] for zone in worker.everywhere if zone != here.name))
    seen = Seen(
        foreign=not all(ours),
        mixed=any(ours) and not all(ours),
        owner=next((each[OWNER] for each in piece.labels if each.get(OWNER)), "") if piece else "",
        elsewhere=tuple(
            one.found
            for zone in every
            for one in zone.pieces.values()
            if one is not piece and all(worker.owns(labels) for labels in one.labels)
        ),
        hidden=tuple(zone.name for zone in every if zone.error is not None),
        shards=progress.workers.get(worker.slot, Made()).shards if progress else 0,
        beat=progress.beats.get(worker.slot, "") if progress else "",
    )
    if found and piece:
        error = piece.queued.error if piece.queued else ""
        seen = replace(seen, node=found.node, node_id=found.node_id, queued=found.queued, queued_id=found.queued_id)
        seen = replace(seen, error=error)
    if sight:
        seen = replace(seen, host=sight.host, unseen=sight.why, silent=sight.silent, witness=sight.witness)
    return seen


def _sights(reach: Reach, zone: Zone, workers: Mapping[str, Worker]) -> Mapping[str, Sight]:
    """Ask the hosts of READY TPU VMs; if some are silent and none answers, also others of the fleet in this zone."""
    asked = {
        key: (worker, piece.node)
        for key, worker in workers.items()
        if worker.wanted == "work" and (piece := zone.pieces.get(worker.tpu)) and piece.node
        if piece.node.state in READY and all(worker.owns(labels) for labels in piece.labels)
    }
    sights = dict(zip(asked, reach.look(zone.name, list(asked.values())), strict=True))
    if any(one.silent for one in sights.values()) and not any(one.host for one in sights.values()):
        witness = bool(_witnesses(reach, zone, {worker.tpu: worker for worker, _ in asked.values()}))
    else:
        witness = any(one.host for one in sights.values())
    return {key: replace(one, witness=witness and not one.host) for key, one in sights.items()}


def _witnesses(reach: Reach, zone: Zone, asked: Mapping[str, Worker]) -> Sequence[str]:
    """Return other TPU VMs of these fleets and owners that answer over the same channel."""
    ours = {(one.fleet, mark) for one in asked.values() for mark in (one.mark, *one.adopted)}
    others = [
        piece.node
        for piece in zone.pieces.values()
        if piece.node and piece.node.state in READY and piece.name not in asked
        if all((labels.get(FLEET), mark_of(labels)) in ours for labels in piece.labels)
    ]
    return [node.name for node in others[:WITNESSES] if _answers(reach, zone.name, node)]


def _answers(reach: Reach, zone: str, node: Node) -> bool:
    try:
        return reach.answers(zone, node)
    except LeaseLost:
        raise
    except TpukitError:
        return False
