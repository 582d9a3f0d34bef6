"""What there is of the workers of one zone: one list of its TPU VMs and requests, and all their hosts asked at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from tpukit.cloud.tpu_vm import Node, Queued, TpuVms
from tpukit.errors import TpukitError
from tpukit.fleet.decide import READY, Host, Seen
from tpukit.fleet.progress import Made, Progress
from tpukit.fleet.reach import Reach
from tpukit.fleet.records import FLEET, SLOT, Worker
from tpukit.places.tpu_vm.channel import Login

KEY_READERS = 16


def observe(
    client: TpuVms, reach: Reach, workers: Mapping[str, Worker], progress: Callable[[str], Progress]
) -> Mapping[str, Seen]:
    """By key. `progress`: of the output of a fleet."""
    if not workers:
        return {}
    zone = next(iter(workers.values())).zone
    nodes = {node.name: node for node in client.nodes(zone)}
    queued: dict[str, Queued] = {}
    if not all(worker.tpu in nodes and nodes[worker.tpu].state == "READY" for worker in workers.values()):
        queued = {name: one for one in client.queued(zone) for name in (one.name, *one.nodes)}
        # A request that is ACTIVE has its TPU VM: seen in this order, one without has lost it.
        nodes = {node.name: node for node in client.nodes(zone)}
    elsewhere = _elsewhere(client, zone, [one for one in workers.values() if one.tpu not in {**nodes, **queued}])
    hosts = _hosts(reach, zone, workers, nodes)
    made = {output: progress(output) for output in {one.work.output for one in workers.values() if one.work}}
    return {
        key: replace(
            _seen(worker, nodes.get(worker.tpu), queued.get(worker.tpu), hosts.get(key), made),
            elsewhere=elsewhere.get(worker.slot, ""),
        )
        for key, worker in workers.items()
    }


def located(client: TpuVms, fleet: str, zones: Sequence[str]) -> dict[str, str]:
    """Zones of what the fleet has, by slot. All zones are asked at once."""
    with ThreadPoolExecutor(max(1, min(8, len(zones)))) as pool:
        nodes, queued = list(pool.map(client.nodes, zones)), list(pool.map(client.queued, zones))
    there: dict[str, str] = {}
    for zone, of_zone, requests in zip(zones, nodes, queued, strict=True):
        for labels in (*(one.labels for one in requests), *(one.labels for one in of_zone)):
            if labels.get(FLEET) == fleet and SLOT in labels:
                there[labels[SLOT]] = zone
    return there


def _elsewhere(client: TpuVms, zone: str, missing: Sequence[Worker]) -> Mapping[str, str]:
    """Where those are that are not in their zone: a driver elsewhere may have moved them."""
    zones = sorted({one for worker in missing for one in worker.zones} - {zone})
    there = located(client, missing[0].fleet, zones) if zones else {}
    return {worker.slot: there[worker.slot] for worker in missing if there.get(worker.slot) in worker.zones}


def is_ours(worker: Worker, labels: Mapping[str, str]) -> bool:
    return labels.get(FLEET) == worker.fleet and labels.get(SLOT) == worker.slot


def _seen(
    worker: Worker, node: Node | None, queued: Queued | None, host: Host | None, made: Mapping[str, Progress]
) -> Seen:
    return Seen(
        node.state if node else None,
        node.id if node else "",
        queued.state if queued else None,
        queued.error if queued else "",
        foreign=any(one is not None and not is_ours(worker, one.labels) for one in (node, queued)),
        host=host,
        shards=made[worker.work.output].workers.get(worker.slot, Made()).shards if worker.work else 0,
    )


def _hosts(
    reach: Reach, zone: str, workers: Mapping[str, Worker], nodes: Mapping[str, Node]
) -> Mapping[str, Host | None]:
    asked = [
        (key, worker, nodes[worker.tpu])
        for key, worker in workers.items()
        if worker.wanted == "work" and worker.tpu in nodes and nodes[worker.tpu].state in READY
        if is_ours(worker, nodes[worker.tpu].labels)
    ]

    def login(node: Node) -> Login | None:
        try:
            reach.admit(zone, node)
            return reach.login(zone, node)
        except TpukitError:
            return None  # it is asked again in the next round

    if not asked:
        return {}
    with ThreadPoolExecutor(min(KEY_READERS, len(asked))) as pool:
        logins = list(pool.map(login, [node for _, _, node in asked]))
    there: Sequence[tuple[str, Worker, Login]] = [
        (key, worker, one) for (key, worker, _), one in zip(asked, logins, strict=True) if one is not None
    ]
    answers = reach.ask([(worker, one) for _, worker, one in there])
    return {key: answer for (key, _, _), answer in zip(there, answers, strict=True)}
