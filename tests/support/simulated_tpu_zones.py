"""Zones of a TPU cloud in simulated time.

Requests wait for hardware and may be refused. TPU VMs come late, are preempted before or after the API reports it, are
repaired, and become silent.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from support.simulated_tpu_cloud import TpuCloud
from support.simulated_trainings import Killed, Trainings
from tpukit import catalogue
from tpukit.core import fence
from tpukit.core.clock import ManualClock
from tpukit.core.errors import Conflict, Denied, NotFound, TpukitError, Transient
from tpukit.google.tpu_vm import Host, Node, Request
from tpukit.places.tpu_vm.channel import Call

STOCK_OUT = "There is no more capacity in the zone; you can try in another zone where Cloud TPU Nodes are offered."


@dataclass(kw_only=True)
class TpuZones(TpuCloud):
    clock: ManualClock
    dice: random.Random
    trainings: Trainings
    short: set[str] = field(default_factory=set)  # zones without capacity
    due: dict[str, float] = field(default_factory=dict)  # when a request advances, by name
    repaired: dict[str, float] = field(default_factory=dict)  # when the repair of a TPU VM ends, by name
    taken: dict[str, float] = field(default_factory=dict)  # lost machines, until the API reports it
    quiet: dict[str, float] = field(default_factory=dict)  # addresses that do not respond, and until when
    keys_at: dict[str, float] = field(default_factory=dict)  # when host keys are published, by id
    acting: str = "somebody"  # caller: the id of a job, or a person

    def request(self, zone: str, request: Request) -> None:
        with self.lock:
            for name in request.nodes:
                if name in self.made:  # https://cloud.google.com/tpu/docs/queued-resources: ids of nodes are unique
                    raise Conflict(f"{name} already exists")
            super().request(zone, request)
            self._later(request.name, 2, 20)

    def delete_queued(self, zone: str, name: str, expected: str) -> None:
        fence.check()
        with self.lock:
            if name in self.requests:
                for node in self.requests[name][0].nodes:
                    self._check_touch(node)
            super().delete_queued(zone, name, expected)
            self._later(name, 20, 120)

    def delete_node(self, zone: str, name: str, expected: str) -> None:
        fence.check()
        with self.lock:
            self._check_touch(name)
            super().delete_node(zone, name, expected)

    def login(self, public_key: str) -> str:
        return ""

    def host_keys(self, zone: str, name: str) -> Sequence[Sequence[str]]:
        with self.lock:
            if name not in self.made:
                raise NotFound(f"{name} was not found")
            published = self.clock.now() >= self.keys_at[self.made[name].id]
            return super().host_keys(zone, name) if published else []

    def reach(self, call: Call, key: str) -> int | TpukitError:
        """Return the worker number at an address if its metadata has the caller's key, or an error."""
        address = call.login.address
        for node in self.made.values():
            for worker, host in enumerate(node.hosts):
                if host.internal != address:
                    continue
                if node.state != "READY" or node.name in self.taken or self.quiet.get(address, 0.0) > self.clock.now():
                    return Transient(f"{address}: no route to host")
                if f"{call.login.user}:{key}" not in node.metadata.get("ssh-keys", "").splitlines():
                    return Denied(f"{address}: permission denied")
                return worker
        return Transient(f"{address}: no route to host")

    # Events without a call

    def preempt(self, name: str) -> None:
        """Preempt a TPU VM: its machine is lost first; the API reports it at once or after a while."""
        self.lose(name)
        self.taken[name] = self.clock.now() + self.dice.choice([0.0, 0.0, 30.0, 200.0])

    def repair(self, name: str) -> None:
        self.lose(name, "repaired")
        self.made[name] = replace(self.made[name], state="REPAIRING")
        self.repaired[name] = self.clock.now() + self.dice.uniform(300, 1800)

    def lose(self, name: str, how: str = "preempted") -> None:
        for host in self.made[name].hosts:
            self.trainings.lose(host.internal, how)

    def _pass_time(self) -> None:
        now = self.clock.now()
        for name in [name for name, at in self.taken.items() if at <= now]:
            del self.taken[name]
            node = self.made.get(name)
            if node is None or node.state not in ("READY", "REPAIRING"):
                continue
            if self.requests[node.queued][1].state != "DELETING":
                super().preempt(name)
                self._later(node.queued, 60, 600)
        for name in [name for name, at in self.repaired.items() if at <= now]:
            del self.repaired[name]
            if name in self.made and self.made[name].state == "REPAIRING":
                self.made[name] = replace(self.made[name], state="READY")
        for name in [name for name, at in self.due.items() if at <= now]:
            if name in self.requests:
                self._move_on(name)
            else:
                del self.due[name]

    def _move_on(self, name: str) -> None:
        request, queued = self.requests[name]
        zone = self.where[name]
        del self.due[name]
        if queued.state == "DELETING":
            self._take_away(request)
            del self.requests[name]
            return
        if queued.state == "SUSPENDING":
            if self.dice.random() < 0.5:
                self._take_away(request)
            state = "SUSPENDED"
        elif queued.state == "CREATING":
            state = "ACCEPTED"
            self._later(name, 2, 20)
        elif queued.state in ("ACCEPTED", "WAITING_FOR_RESOURCES"):
            if zone in self.short and self.dice.random() < 0.1:
                self.requests[name] = request, replace(queued, state="FAILED", error=STOCK_OUT)
                return
            state = "WAITING_FOR_RESOURCES" if zone in self.short else "PROVISIONING"
            self._later(name, 20, 200)
            if state == "PROVISIONING":
                for node in request.nodes:
                    self._create(request, node, name)
        elif queued.state == "PROVISIONING":
            state = "ACTIVE"
            for node in request.nodes:
                self._finish(node)
        else:
            return
        self.requests[name] = request, replace(queued, state=state)

    def _create(self, request: Request, name: str, queued: str) -> None:
        if name in self.made:
            self.trainings.violations.append(f"{name} was made twice")
        labels, metadata, shape = request.labels, request.metadata, request.accelerator
        made = Node(name, str(next(self.numbers)), "CREATING", accelerator=shape, queued=queued, labels=labels)
        self.made[name] = replace(made, metadata=metadata, spot=request.spot)

    def _finish(self, name: str) -> None:
        node = self.made[name]
        number = int(node.id)
        count = catalogue.find(node.accelerator).hosts
        hosts = tuple(Host(f"10.{number >> 8}.{number & 255}.{index + 2}") for index in range(count))
        self.made[name] = replace(node, state="READY", hosts=hosts)
        self.keys_at[node.id] = self.clock.now() + self.dice.uniform(0, 60)

    def _take_away(self, request: Request) -> None:
        for name in request.nodes:
            if name in self.made and self.made[name].queued == request.name:
                self.lose(name, "deleted")
                del self.made[name]

    def _later(self, name: str, least: float, most: float) -> None:
        self.due[name] = self.clock.now() + self.dice.uniform(least, most)

    def _check_touch(self, name: str) -> None:
        self.trainings.advance()
        for host in self.made[name].hosts if name in self.made else ():
            training = self.trainings.on(host.internal)
            if training is not None and training.job != self.acting:
                self.trainings.violations.append(f"{self.acting} deletes {name}, on which {training.job} runs")


@dataclass
class Unreliable:
    """One process's connection to Google: calls and answers may be lost, and the process may die in between."""

    cloud: TpuZones
    fate: Callable[[str], str]

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.cloud, name)

        def call(*words: Any) -> Any:
            fate = self.fate(name)
            if fate == "refused":
                raise Transient(f"{name} was not answered")
            answer = real(*words)
            if fate == "killed":
                raise Killed
            if fate == "lost":
                raise Transient(f"the answer to {name} was lost")
            return answer

        return call
