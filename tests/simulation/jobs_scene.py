"""Jobs on TPU VMs: the real driver, the real place and its sweeps on each machine; the first machine sends the jobs."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from simulation import growth, job_events, records, sending
from simulation.cloning import Clones
from simulation.gone_project import GONE, GoneProject
from simulation.hosts import SimulatedChannel
from simulation.machines import Machine, Remote
from simulation.owning import Owners
from simulation.power import Disk
from simulation.tpu_cloud import CHANGES
from simulation.unattended import Watches
from tpukit.core.errors import NotFound
from tpukit.jobs.controller.driver import Driver
from tpukit.jobs.records import JOBS
from tpukit.kernel.store import Holder
from tpukit.places.base import Handle
from tpukit.places.tpu_vm import TpuVmPlace
from tpukit.places.tpu_vm.log_store import LogStore
from tpukit.places.tpu_vm.shared_code import Code, address_of
from tpukit.places.tpu_vm.target import JOB, store_label

if TYPE_CHECKING:
    from simulation.plans import Event
    from simulation.world import World


@dataclass(frozen=True, slots=True)
class MachineLogs(LogStore):
    is_full: Callable[[], bool] = lambda: False

    def add(self, handle: Handle, host: str, piece: Mapping[str, Any] | None) -> bool:
        if piece and self.is_full():
            raise OSError(errno.ENOSPC, "No space left on device")
        return LogStore.add(self, handle, host, piece)


class JobsScene:
    def __init__(self, world: World) -> None:
        self.world = world
        self.sent: set[int] = set()
        self.bucket: dict[str, bytes] = {}
        self.drivers: dict[int, tuple[int, Driver, Any]] = {}  # by machine: process number, driver and places
        self.full: set[int] = set()  # machines whose disk is full
        self.places: dict[int, TpuVmPlace] = {}  # of running processes, by machine
        self.owners = Owners(world, world.store)
        happens = {event.kind for event in world.plan.events}
        Disk.release(world.home.store)
        Clones.release()
        powered = "power loss" in happens and hasattr(world.home.store, "_file")  # Firestore runs on Google's machines
        self.disk = Disk(world.home.store, world.clock.now) if powered else None
        world.hosts.watches = Watches(world) if "limit" in happens else None
        slow = (event.seconds for event in world.plan.events if event.kind == "slow upload")
        self.upload_seconds = next(slow, 0.0)
        self.clones = Clones(world) if "clones" in happens else None
        world.cloud.acts = self._check_owner

    def process(self, machine: Machine, number: int) -> tuple[Callable[[], None], Any]:
        world = self.world
        store, places = self.reach(machine)
        driver = Driver(store, places, machine.clock, self.holder(machine, number))
        swept, known = machine.clock.monotonic(), (-1, -1)  # number of world changes before the last two sweeps
        self.drivers[machine.index] = number, driver, places

        def step() -> None:
            nonlocal swept, known
            if machine.index == 0:
                self.send_due(machine, store, places, driver)
            driver.round()
            often = 4 if known[0] == world.changes else 1  # two sweeps of an unchanged world find everything
            if machine.clock.monotonic() - swept >= often * machine.plan.sweeps:
                swept, known = machine.clock.monotonic(), (known[1], world.changes)
                for name in driver.sweep():
                    world.trace.add(machine.name, f"swept {name}")

        if isinstance(place := places.get("tpu-vm"), TpuVmPlace):
            self.places[machine.index] = place
        return step, driver.leases

    def holder(self, machine: Machine, number: int) -> Holder:
        return self.clones.holder(machine, number) if self.clones else Holder(f"{machine.name}/{number}")

    def send_due(self, machine: Machine, store: Any, places: Any, driver: Driver) -> None:
        sending.send_due(self.world, self.sent, machine, store, places, driver)

    def reach(self, machine: Machine) -> tuple[Any, dict[str, Any]]:
        """Return the store and the places of a process on this machine."""
        cloud = Remote(machine, "cloud", self.world.cloud, CHANGES)
        gone = Remote(machine, "cloud", GoneProject(), CHANGES)
        channel = SimulatedChannel(machine)
        store = records.StoreOf(machine, self.owners.over(self.world.store))
        place = TpuVmPlace(
            machine.root,
            machine.clock,
            lambda: store.sender,
            cloud=lambda project: gone if project == GONE else cloud,
            channel=lambda folder, key: channel,
            code=Code(machine.root / "code", partial(self._create, machine), partial(self._download, machine)),
        )
        place._logs = MachineLogs(machine.root, lambda: machine.index in self.full)
        return store, {"tpu-vm": place}

    def _create(self, machine: Machine, address: str, content: bytes, kind: str) -> None:
        self.world.scheduler.sleep(self.upload_seconds)
        machine.call("bucket", f"upload {address}", lambda: self.bucket.__setitem__(address, content), mutates=True)

    def _download(self, machine: Machine, address: str) -> bytes:
        def read() -> bytes:
            if address not in self.bucket:
                raise NotFound(f"{address} is not there")
            return self.bucket[address]

        return machine.call("bucket", f"download {address}", read)

    def _check_owner(self, labels: Mapping[str, str], name: str, what: str) -> None:
        named = (plan.id for plan in self.world.jobs.values() if plan.vms and name in plan.vms.nodes)
        if job := labels.get(JOB) or next(named, ""):
            self.owners.check(f"{JOBS.name}/{job}", what)

    def happen(self, event: Event) -> bool:
        return job_events.happen(self.world, self, event)

    def calm(self) -> None:
        pass

    def may_lose(self, machine: Machine) -> bool:
        """Return False for a machine that still has jobs to send, or code of a job without a bucket."""
        kept = any(plan.snapshot and not address_of(plan) for plan in self.world.jobs.values())
        return len(self.sent) == len(self.world.plan.jobs) and not kept

    def over(self) -> bool:
        self._check_memory()
        return (
            len(self.sent) == len(self.world.plan.jobs)
            and all(job.state.ended for job in self.world.store.jobs())
            and not self.left()
            and not self.grown()
            and not self._kept_leases()
        )

    def grown(self) -> list[str]:
        """Return the data that drivers keep of ended jobs."""
        world, found = self.world, []
        ended = [job.id for job in world.store.jobs() if job.state.ended]
        hosts = {job: plan.slice.hosts * plan.spec.slices for job, plan in world.jobs.items()}
        for machine in world.machines:
            number, driver, places = self.drivers.get(machine.index, (-1, None, None))
            if machine.down or number != machine.process or driver is None:
                continue
            found += [f"{machine.name} keeps {one}" for one in growth.kept(driver, ended)]
            sizes = {job: hosts.get(job, 1) for job in ended}
            found += [f"{machine.name} grows in {one}" for one in growth.many(places, sizes)] if ended else []
        return found

    def held(self, job_id: str) -> list[str]:
        """Return the hardware of one job that costs money."""
        cloud = self.world.cloud
        own = cloud.own(store_label(self.world.home.sender))
        over = ("DELETING", "SUSPENDING", "SUSPENDED", "FAILED", "PREEMPTED")
        states = {f"TPU VM {one.name}": one.state for one in cloud.made.values()}
        states |= {f"queued resource {one.name}": one.state for _, one in cloud.requests.values()}
        request = cloud.requests.get(job_id)
        if request is not None and request[1].state in over:
            return []
        return [name for name in own if job_id in name and states[name] not in over]

    def left(self) -> list[str]:
        """Return the hardware of this store's jobs that costs money."""
        return self.world.cloud.own(store_label(self.world.home.sender))

    def _check_memory(self) -> None:
        """Check that a driver's memory of hosts grows with the number of jobs, not with the number of lost hosts."""
        hosts = sum(plan.slice.hosts * plan.spec.slices for plan in self.world.jobs.values())
        for index, place in self.places.items():
            for observer in list(place._observers.values()):
                count = max(len(observer.silent), len(observer.hosts.host_keys))
                if count > 3 * hosts:
                    self.world.acting = f"machine-{index}"
                    self.world.violate("growth", f"remembers {count} hosts of jobs that have {hosts}")

    def _kept_leases(self) -> list[str]:
        """Return the live leases of ended jobs."""
        active = {f"{JOBS.name}/{job.id}" for job in self.world.store.jobs() if not job.state.ended}
        names = [lease.name for lease in self.world.home.store.leases()]
        return [name for name in names if name.startswith(JOBS.name) and name not in active]

    def judge(self) -> None:
        world = self.world
        for entry in world.home.store.list(JOBS).broken:
            world.violate("lost", f"{entry.key} cannot be read")
        for job in world.store.jobs():
            if not job.state.ended:
                world.violate("stuck", f"{job.id} is still {job.state}: {job.message}")
        if len(self.sent) < len(world.plan.jobs):
            world.violate("stuck", "a job was never sent")
        for name in self.left():
            world.violate("leak", f"{name} is left")
        for text in self.grown():
            world.violate("growth", text)
        for name in self._kept_leases():
            world.violate("growth", f"the lease {name} of an ended job is renewed for ever")
