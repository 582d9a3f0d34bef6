"""Execution of decisions for a worker. Each act may be interrupted anywhere and repeated.

An act carries the ids of the observed objects: if another object has the name by now, nothing is done, and the next
round observes again. The clients check the fence immediately before they send.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tpukit.core.errors import Conflict, LeaseLost, NotFound, NotYet
from tpukit.fleet import listing
from tpukit.fleet.reach import Reach
from tpukit.fleet.records import FLEET, OWNER, SLOT, STORE, Work, Worker
from tpukit.fleet.seen import Create, Delete, Launch, Stop, Target
from tpukit.google.tpu_vm import Node, Request, TpuVms
from tpukit.places.tpu_vm import boot_limit
from tpukit.places.tpu_vm.channel import Login

GRACE_SECONDS = 30
Act = Create | Delete | Launch | Stop


@dataclass(frozen=True, slots=True)
class Acting:
    client: TpuVms
    reach: Reach
    runtime: Callable[[str], str]  # for TPUs of a type
    archive: Callable[[Work], bytes]  # returns the code
    queued: bool = True
    project: str = ""  # project of the TPU VMs, for the limit on hosts without a driver

    def act(self, worker: Worker, act: Act) -> None:
        if isinstance(act, Create):
            self._create(worker)
        elif isinstance(act, Delete):
            for target in act.targets:
                self._delete(worker, target)
        else:
            node, login = self._reached(worker, act.node_id)
            if isinstance(act, Stop):
                self.reach.stop(worker, login, act.attempt)
            else:
                self._launch(worker, node, login)

    def _create(self, worker: Worker) -> None:
        url = boot_limit.hardware_url(self.project, worker.zone, worker.tpu, worker.tpu * self.queued)
        seconds = worker.unattended + GRACE_SECONDS if worker.unattended and self.project else 0
        limit = boot_limit.metadata([url], worker.labels, seconds)
        request = Request(
            worker.tpu,
            (worker.tpu,),
            accelerator=worker.tpu_type,
            runtime=self.runtime(worker.tpu_type),
            spot=worker.spot,
            labels=worker.labels,
            metadata={"ssh-keys": self.reach.ssh_keys, **limit},
            external_ips=self.reach.external_ips,
            valid_seconds=int(worker.unattended),  # without a driver the TPU VM would be unused
        )
        try:
            (self.client.request if self.queued else self.client.create)(worker.zone, request)
        except LeaseLost:
            raise
        except Conflict:
            return  # the response to an earlier request was lost, or another driver was faster

    def _delete(self, worker: Worker, target: Target) -> None:
        """Delete the observed objects if they are ours: another driver may have recreated them since."""
        zone = listing.read(self.client, target.zone)
        if zone.error is not None:
            raise zone.error
        named = (one for one in zone.pieces.values() if one.name == target.name)
        piece = next((one for one in named if all(worker.owns(labels) for labels in one.labels)), None)
        if piece is None:
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

    def _launch(self, worker: Worker, node: Node, login: Login) -> None:
        work = worker.work
        assert work is not None
        first = worker.number * len(worker.zones) + sorted(worker.zones).index(worker.zones[0])
        env = {"TPUKIT_FLEET_WORKER": str(first)}
        limit = unattended(self.project, worker, node)
        self.reach.launch(worker, login, self.archive(work), argv(work, worker.alias), env, limit)

    def login(self, worker: Worker) -> Login:
        """Return the login of the worker's host."""
        return self._reached(worker)[1]

    def _reached(self, worker: Worker, node_id: str = "") -> tuple[Node, Login]:
        """Return the worker's TPU VM and the login of its host; with `node_id`, only for that TPU VM."""
        node = self._node(worker)
        if node is None or (node_id and node.id != node_id):
            raise NotYet(f"{worker.tpu} is being recreated")
        login = self.reach.login(worker.zone, node)
        if login is None:
            raise NotYet(f"{worker.tpu} is not reachable yet")
        return node, login

    def _node(self, worker: Worker) -> Node | None:
        named = (one for one in self.client.nodes(worker.zone) if one.name == worker.tpu)
        return next((one for one in named if worker.owns(one.labels)), None)


def unattended(project: str, worker: Worker, node: Node) -> Mapping[str, Any]:
    """Return the limits that the host enforces when no driver has asked for the worker for too long.

    The host then ends the program and, if its service account may do so, deletes the TPU VM that still carries these
    labels.
    """
    if not worker.unattended or not project:
        return {}
    url = boot_limit.hardware_url(project, worker.zone, node.name, node.queued)
    labels = {name: node.labels.get(name, "") for name in (FLEET, SLOT, OWNER, STORE) if name in node.labels}
    return {"seconds": worker.unattended, "grace": GRACE_SECONDS, "hardware": {"url": url, "labels": labels}}


def argv(work: Work, name: str) -> list[str]:
    """Return the command that a worker runs, which also works when typed on the host."""
    options = [word for pair in work.options.items() for word in ("--option", "=".join(pair))]
    return [
        *("python3", "-m", "tpukit.host.worker", "--worker", name),
        *("--data", work.data, "--output", work.output, "--program", work.program, *options),
        *("--shard-samples", str(work.shard_samples), "--patience", f"{work.patience:g}"),
        *("--claim-seconds", f"{work.claim_seconds:g}"),
        *(("--requirements", work.requirements) if work.requirements else ()),
    ]
