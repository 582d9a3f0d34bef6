"""The watch of each attempt on its hosts: without requests from a driver, it ends the attempt and its hardware.

It behaves like `host_unattended.py`. It must never end an attempt that a driver asks about.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpukit.places.tpu_vm.channel import Answer
from tpukit.places.tpu_vm.target import STORE

if TYPE_CHECKING:
    from simulation.world import World

LOOK_SECONDS = 5.0
LEAVE_SECONDS = 120.0


@dataclass
class Watch:
    wanted: Answer
    asked: float
    stopped: float = 0.0  # when it told the attempt to leave


class Watches:
    """The watches on all hosts of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[tuple[str, str, int], Watch] = {}  # by address, job and attempt
        self.abandoned = False  # no driver is left
        world.scheduler.spawn(self._run, LOOK_SECONDS)

    def heard(self, address: str, request: Answer) -> None:
        """Record a request to a host."""
        now = self._world.scheduler.now
        if request["do"] == "start" and request.get("unattended"):
            key = address, request["job"], int(request["attempt"])
            self._known.setdefault(key, Watch(request["unattended"], now))
        for one in request["attempts"] if request["do"] == "status" else ():
            if watch := self._known.get((address, one["job"], int(one["attempt"]))):
                watch.asked, watch.stopped = now, 0.0

    def left(self) -> list[str]:
        """Return the TPU VMs created for jobs on which an attempt had begun.

        Preempted TPU VMs cost nothing and are left out.
        """
        world = self._world
        world.cloud._pass_time()
        begun = {one.address for training in world.hosts.every for one in training.processes.values()}
        made = [one for one in world.cloud.made.values() if STORE in one.labels and one.state != "PREEMPTED"]
        return [one.name for one in made if any(host.internal in begun for host in one.hosts)]

    def _run(self) -> None:
        world = self._world
        while True:
            for key, watch in list(self._known.items()):
                if not self._is_needed(key, watch):
                    del self._known[key]
                elif not self._is_up(key[0]):
                    watch.asked = math.inf  # a reboot ended the watch; the next request restarts it
                elif world.scheduler.now - watch.asked >= watch.wanted["seconds"]:
                    self._end(key, watch)
            world.scheduler.sleep(LOOK_SECONDS)

    def _is_up(self, address: str) -> bool:
        cloud = self._world.cloud
        node = next(one for one in cloud.made.values() if any(host.internal == address for host in one.hosts))
        return node.state == "READY" and node.name not in cloud.taken

    def _is_needed(self, key: tuple[str, str, int], watch: Watch) -> bool:
        address, job, number = key
        hosts, cloud = self._world.hosts, self._world.cloud
        there = any(host.internal == address for one in cloud.made.values() for host in one.hosts)
        if not there or hosts.latest.get((address, job), number) > number:
            return False
        return bool(watch.wanted["hardware"]) or hosts.on(address) is not None

    def _end(self, key: tuple[str, str, int], watch: Watch) -> None:
        world, (address, job, number) = self._world, key
        world.acting = f"host {address}"
        if not self.abandoned:
            silent = world.scheduler.now - watch.asked
            world.violate(
                "attended", f"ends attempt {number} of {job}, which a driver has not asked for {silent:.0f} s"
            )
            return
        if not watch.stopped:
            watch.stopped = world.scheduler.now
            world.asked.add(job)
            worker = world.hosts.numbers.get(address, 0)
            world.hosts._stop(address, worker, {"job": job, "attempt": number, "grace": watch.wanted["grace"]})
            return
        gone = world.hosts.on(address) is None
        if not gone and world.scheduler.now - watch.stopped < watch.wanted["grace"] + LEAVE_SECONDS:
            return
        if name := self._named(watch):
            world.trace.add(world.acting, f"releases {name}")
            if name in world.cloud.requests:
                world.cloud.delete_queued(world.cloud.where[name], name, world.cloud.requests[name][1].id)
            else:
                world.cloud.delete_node(world.cloud.where[name], name, world.cloud.made[name].id)

    def _named(self, watch: Watch) -> str | None:
        """Return the request or TPU VM that the watch may delete, if it exists and has the labels."""
        hardware: dict[str, Any] = watch.wanted["hardware"]
        if not hardware:
            return None
        collection, name = hardware["url"].split("/")[-2:]
        cloud = self._world.cloud
        if collection == "queuedResources":
            known = cloud.requests.get(name)
            found = known[1] if known and known[1].state != "DELETING" else None
        else:
            found = cloud.made.get(name)  # type: ignore[assignment]
        same = found is not None and all(found.labels.get(key) == value for key, value in hardware["labels"].items())
        return name if same else None
