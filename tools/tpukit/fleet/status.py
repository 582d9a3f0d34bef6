"""What a fleet is now, for people: two lists of each zone and one of the bucket, however many workers there are. No
host is asked, and nothing is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from msgspec.structs import replace

from tpukit.cloud.tpu_vm import Node, Queued, TpuVms
from tpukit.fleet.decide import Seen, foreign_words, tpu_state
from tpukit.fleet.observe import is_ours
from tpukit.fleet.records import FLEET, SLOT, Work, Worker, home_of

ZONES_AT_ONCE = 16
Listed = tuple[dict[str, Node], dict[str, Queued]]


def status(
    client: TpuVms, fleet: str, known: Sequence[Worker], zones: Sequence[str], work: Work | None = None
) -> list[Worker]:
    """The workers that are known, and those of the fleet in these zones that another machine made, as they are now."""
    every = sorted({*zones, *(one.zone for one in known)})
    with ThreadPoolExecutor(ZONES_AT_ONCE) as pool:
        nodes = pool.map(client.nodes, every)
        queued = pool.map(client.queued, every)
        listed = {zone: _by_name(there, asked) for zone, there, asked in zip(every, nodes, queued, strict=True)}
    slots = {one.slot for one in known}
    workers = [*known, *(one for one in _others(fleet, listed, work) if one.slot not in slots)]
    now = [_now(one, *listed[one.zone]) for one in workers]
    return sorted(now, key=lambda one: (one.zones[0], one.number))


def _by_name(nodes: Iterable[Node], queued: Iterable[Queued]) -> Listed:
    return {one.name: one for one in nodes}, {name: one for one in queued for name in (one.name, *one.nodes)}


def _others(fleet: str, listed: dict[str, Listed], work: Work | None) -> Iterable[Worker]:
    made: dict[str, Worker] = {}
    for zone, (nodes, queued) in listed.items():
        for labels, type_ in (
            *((one.labels, one.accelerator) for one in nodes.values()),
            *((one.labels, "") for one in queued.values()),
        ):
            if labels.get(FLEET) == fleet and (home := home_of(labels.get(SLOT, ""))):
                zones = list(dict.fromkeys((home[0], zone)))
                worker = Worker(fleet, zones, home[1], type_, 0.0, zone, wanted="work" if work else "ready", work=work)
                made.setdefault(worker.slot, worker)
    return made.values()


def _now(worker: Worker, nodes: dict[str, Node], queued: dict[str, Queued]) -> Worker:
    node, request = nodes.get(worker.tpu), queued.get(worker.tpu)
    if any(one is not None and not is_ours(worker, one.labels) for one in (node, request)):
        return replace(worker, message=foreign_words(worker))
    seen = Seen(node.state if node else None, queued=request.state if request else None)
    return replace(worker, tpu_state=tpu_state(seen))
