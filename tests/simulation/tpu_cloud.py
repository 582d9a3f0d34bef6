"""The Cloud TPU API of the simulated world: TPU VMs without a queue, quotas, and hardware of other users."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from support.simulated_tpu_zones import TpuZones
from tpukit.core.errors import Conflict, NotFound
from tpukit.google.tpu_vm import Change, Node, Queued, Request

if TYPE_CHECKING:
    from simulation.world import World

QUOTA = "Quota limit 'TPUV4sPodPerProjectPerZoneForTPUAPI' has been exceeded. Limit: 0 in zone us-central2-b."
CHANGES = frozenset({"request", "create", "delete_queued", "delete_node", "set_metadata", "stop", "start"})


@dataclass(kw_only=True)
class Cloud(TpuZones):
    world: World = None  # type: ignore[assignment]
    foreign: set[str] = field(default_factory=set)  # ids of TPU VMs and names of requests of other users
    coming: dict[str, float] = field(default_factory=dict)  # TPU VMs without a queue, and when they are READY
    no_quota: float = 0.0
    created: int = 0
    judged: Callable[[str, str], None] = lambda name, what: None  # called before each deletion of a TPU VM
    acts: Callable[[Mapping[str, str], str, str], None] = lambda labels, name, what: None  # called before each act

    def request(self, zone: str, request: Request) -> None:
        self.created += 1
        self.acts(request.labels, request.nodes[0], f"requests {request.name}")
        super().request(zone, request)

    def create(self, zone: str, request: Request) -> None:
        self._pass_time()
        self.acts(request.labels, request.nodes[0], f"creates {request.name}")
        for name in request.nodes:
            if name in self.made:
                raise Conflict(f"{name} already exists")
            self.created += 1
            self._create(request, name, "")
            self.where[name] = zone
            self.coming[name] = self.clock.now() + self.dice.uniform(5, 60)

    def delete_queued(self, zone: str, name: str, expected: str) -> None:
        self._pass_time()
        if name not in self.requests:
            raise NotFound(f"{name} was not found")
        if self.requests[name][1].id != expected:
            raise Conflict(f"{name} was recreated")
        if name in self.foreign:
            self.world.violate("foreign", f"deletes queued resource {name} of another user")
        self.acts(self.requests[name][1].labels, self.requests[name][0].nodes[0], f"deletes queued resource {name}")
        for node in self.requests[name][0].nodes:
            if node in self.made and self.made[node].queued == name:  # it includes only its own TPU VMs
                self._judge(node, f"deletes queued resource {name}")
        if self.requests[name][1].state != "DELETING":
            super().delete_queued(zone, name, expected)

    def delete_node(self, zone: str, name: str, expected: str) -> None:
        self._pass_time()
        self._expect(zone, name, expected)
        self.acts(self.made[name].labels, name, f"deletes TPU VM {name}")
        self._judge(name, f"deletes TPU VM {name}")
        super().delete_node(zone, name, expected)
        self.coming.pop(name, None)

    def set_metadata(self, zone: str, name: str, expected: str, change: Change) -> None:
        self._pass_time()
        self._expect(zone, name, expected)
        if expected in self.foreign:
            self.world.violate("foreign", f"changes the metadata of {name}, which is another user's")
        super().set_metadata(zone, name, expected, change)

    def own(self, name: str) -> list[str]:
        """Return the hardware with the label `name` that costs money."""
        self._pass_time()
        nodes = [f"TPU VM {one.name}" for one in self.made.values() if one.labels.get("tpukit-store") == name]
        queued = [f"queued resource {one.name}" for _, one in self.requests.values() if self._is_of(one, name)]
        return nodes + queued

    def make_foreign(self, zone: str, name: str, labels: Mapping[str, str]) -> None:
        node = Node(name, str(next(self.numbers)), "CREATING", accelerator="v4-8", labels=labels)
        self.made[name], self.where[name] = node, zone
        self._finish(name)
        self.foreign.add(node.id)

    def remove_foreign(self, name: str) -> None:
        if name in self.made and self.made[name].id in self.foreign:
            self.lose(name, "deleted")
            del self.made[name]

    def _is_of(self, queued: Queued, name: str) -> bool:
        return queued.labels.get("tpukit-store") == name and queued.name not in self.foreign

    def _check_touch(self, name: str) -> None:
        """Skip the base's check of the acting job: this world checks the ground truth."""

    def _judge(self, name: str, what: str) -> None:
        node = self.made.get(name)
        if node is None:
            return
        if node.id in self.foreign:
            self.world.violate("foreign", f"{what}, which is another user's")
        self.judged(name, what)
        if node.state != "READY" or name in self.taken:
            return
        for host in node.hosts:
            training = self.trainings.on(host.internal)
            if training is not None:
                self.world.check_end(training, what)

    def _pass_time(self) -> None:
        now = self.clock.now()
        for name in [name for name, at in self.coming.items() if at <= now]:
            del self.coming[name]
            if name in self.made and self.made[name].state == "CREATING":
                self._finish(name)
        for name in [name for name, at in self.taken.items() if at <= now]:
            node = self.made.get(name)
            if node is not None and node.queued not in self.requests:
                del self.taken[name]
                self.made[name] = replace(node, state="PREEMPTED")
        super()._pass_time()

    def _move_on(self, name: str) -> None:
        request, queued = self.requests[name]
        if queued.state == "ACCEPTED" and self.no_quota > self.clock.now():
            del self.due[name]
            self.requests[name] = request, replace(queued, state="FAILED", error=QUOTA)
            return
        if queued.state == "ACCEPTED" and any(node in self.made for node in request.nodes):
            del self.due[name]
            error = f"{request.nodes[0]} already exists"
            self.requests[name] = request, replace(queued, state="FAILED", error=error)
            return
        super()._move_on(name)
