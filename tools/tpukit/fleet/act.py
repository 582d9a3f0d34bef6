"""Doing what was decided for a worker. Each act may be interrupted anywhere and repeated.

An act carries the ids of what was seen: where something else has the name by now, nothing is done, and the next round
looks again. The clients check the fence immediately before they send.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from tpukit.cloud.tpu_vm import Node, Request, TpuVms
from tpukit.errors import Conflict, LeaseLost, NotFound, NotYet
from tpukit.fleet import listing
from tpukit.fleet.reach import Reach
from tpukit.fleet.records import Work, Worker
from tpukit.fleet.seen import Create, Delete, Launch, Stop, Target
from tpukit.places.tpu_vm.channel import Login

Act = Create | Delete | Launch | Stop


@dataclass(frozen=True, slots=True)
class Acting:
    client: TpuVms
    reach: Reach
    runtime: Callable[[str], str]  # of TPUs of a type
    archive: Callable[[Work], bytes]  # the code
    queued: bool = True

    def act(self, worker: Worker, act: Act) -> None:
        if isinstance(act, Create):
            self._create(worker)
        elif isinstance(act, Delete):
            for target in act.targets:
                self._delete(worker, target)
        else:
            login = self.login(worker, act.node_id)
            if isinstance(act, Stop):
                self.reach.stop(worker, login, act.attempt)
            else:
                self._launch(worker, login)

    def _create(self, worker: Worker) -> None:
        request = Request(
            worker.tpu,
            (worker.tpu,),
            accelerator=worker.tpu_type,
            runtime=self.runtime(worker.tpu_type),
            spot=worker.spot,
            labels=worker.labels,
            metadata={"ssh-keys": self.reach.ssh_keys},
            external_ips=self.reach.external_ips,
        )
        try:
            (self.client.request if self.queued else self.client.create)(worker.zone, request)
        except LeaseLost:
            raise
        except Conflict:
            return  # the answer to an earlier request was lost, or another driver was faster

    def _delete(self, worker: Worker, target: Target) -> None:
        """Delete what is there if it is ours and what was seen: another driver may have recreated it since."""
        zone = listing.read(self.client, target.zone)
        if zone.error is not None:
            raise zone.error
        piece = zone.pieces.get(target.name)
        if piece is None or not all(worker.owns(labels) for labels in piece.labels):
            return
        node, queued = piece.node, piece.queued
        if node is not None and node.id != target.node_id:
            return
        made_it = bool(node and queued and node.queued == queued.name)
        if queued is not None and queued.id != target.queued_id and not (made_it and not target.queued_id):
            return
        with suppress(NotFound):
            if queued is not None and queued.state != "DELETING":
                self.client.delete_queued(target.zone, queued.name, queued.id)
            elif queued is None and node is not None and node.state != "DELETING":
                self.client.delete_node(target.zone, node.name, node.id)

    def _launch(self, worker: Worker, login: Login) -> None:
        work = worker.work
        assert work is not None
        first = worker.number * len(worker.zones) + sorted(worker.zones).index(worker.zones[0])
        self.reach.launch(
            worker, login, self.archive(work), argv(work, worker.alias), {"TPUKIT_FLEET_WORKER": str(first)}
        )

    def login(self, worker: Worker, node_id: str = "") -> Login:
        """Return how the worker's host is reached. With `node_id`, only that TPU VM is meant."""
        node = self._node(worker)
        if node is None or (node_id and node.id != node_id):
            raise NotYet(f"{worker.tpu} is being recreated")
        login = self.reach.login(worker.zone, node)
        if login is None:
            raise NotYet(f"{worker.tpu} cannot be reached yet")
        return login

    def _node(self, worker: Worker) -> Node | None:
        named = (one for one in self.client.nodes(worker.zone) if one.name == worker.tpu)
        return next((one for one in named if worker.owns(one.labels)), None)


def argv(work: Work, name: str) -> list[str]:
    """Return the command that a worker runs, as a person could type it on the host."""
    options = [word for pair in work.options.items() for word in ("--option", "=".join(pair))]
    return [
        *("python3", "-m", "tpukit.host.worker", "--worker", name),
        *("--data", work.data, "--output", work.output, "--program", work.program, *options),
        *("--shard-samples", str(work.shard_samples), "--patience", f"{work.patience:g}"),
        *("--claim-seconds", f"{work.claim_seconds:g}"),
        *(("--requirements", work.requirements) if work.requirements else ()),
    ]
