"""A fleet with the real driver on each machine.

Its workers make shards until none is left; then a person deletes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulation.events import ZONE
from simulation.hosts import CHANGES as HOST_CHANGES
from simulation.machines import Crashed, Machine, Remote
from simulation.owning import Owners
from simulation.records import StoreOf
from simulation.tpu_cloud import CHANGES
from support.fleet_world import ME, WORK, SimulatedHosts
from tpukit.core.errors import LeaseLost, TpukitError
from tpukit.fleet import driver as fleets
from tpukit.fleet import records
from tpukit.fleet.act import Acting
from tpukit.fleet.driver import Driver
from tpukit.fleet.listing import located
from tpukit.fleet.progress import Made, Progress
from tpukit.fleet.reach import Reach
from tpukit.fleet.records import FLEET, SLOT, Worker, mark_of
from tpukit.host import bucket, shards
from tpukit.kernel.store import Holder
from tpukit.places.tpu_vm.channel import Answer, Call

if TYPE_CHECKING:
    from simulation.plans import Event
    from simulation.world import World

ZONES = [ZONE, "us-central1-a"]
NAME = "tpu"
SHARDS = 50
WORK_SECONDS = 20.0
REPORTS = ('{"step": 1, "shards": 1}', "{", "[1, 2]", '{"step": "many", "shards": NaN}', "null")
"""Progress reports of programs, including what a full disk leaves of them."""


class FleetHosts(SimulatedHosts):
    """Hosts that accept known keys, and check whether a driver stops healthy workers."""

    def __init__(self, world: World) -> None:
        super().__init__(world.clock, world.cloud)  # type: ignore[arg-type]
        self.world = world

    def answer(self, call: Call, key: str) -> Answer | TpukitError:
        reached = self.world.cloud.reach(call, key)
        if isinstance(reached, TpukitError):
            return reached
        if call.request["do"] == "stop":
            self.check(call.login.address, f"stop on {call.login.address}")
        return self._ask(call)

    def check(self, address: str, what: str) -> None:
        program = self.running().get(address)
        if program and not self.world.scene.deleted and not (program.hangs or program.frozen):  # type: ignore[attr-defined]
            self.world.violate("healthy", f"{what} while a worker is healthy there")


class Samples:
    """A stream with a line that is not JSON in one of its shards, processed by a real worker."""

    def __init__(self, folder: Path, bad: int) -> None:
        self._folder, self._bad = folder, bad
        self.report = REPORTS[bad % len(REPORTS)]

    def make(self, shard: int) -> bool:
        """Return whether a worker gets through a shard."""
        if shard != self._bad:
            return True
        folder = self._folder / f"data-{shard}"
        folder.mkdir(parents=True, exist_ok=True)
        content = b'{"text": "a"}\n{"text": "b\n{"text": "c"}\n'
        (folder / "stream_000.jsonl").write_bytes(content)
        stream = shards.Stream("stream_000.jsonl", 3, hashlib.sha256(content).hexdigest())
        run = shards.Run(3, ".bin", "program", {}, "")
        data, output = bucket.opened(str(folder)), bucket.opened(str(self._folder / f"output-{shard}"))
        extraction = shards.Extraction(data, output, stream, run, "worker", "data", self._folder)
        try:
            extraction.work(lambda samples: b"made", lambda: None, lambda made, own: None)
        except ValueError:
            return False
        return True


@dataclass
class FleetChannel:
    machine: Machine
    hosts: FleetHosts

    def public_key(self) -> str:
        return self.machine.key

    def close(self) -> None:
        pass

    def ask(self, calls: Sequence[Call]) -> list[Answer | TpukitError]:
        if not calls:
            return []
        wanted = {call.request["do"] for call in calls}

        def do() -> list[Answer | TpukitError]:
            self.machine.world.acting = self.machine.name
            return [self.hosts.answer(call, self.machine.key) for call in calls]

        what = f"ssh {' '.join(sorted(wanted))} {calls[0].login.address}"
        try:
            return self.machine.call("ssh", what, do, mutates=bool(wanted & set(HOST_CHANGES)))
        except LeaseLost:
            raise
        except TpukitError as error:
            return [error] * len(calls)


class FleetScene:
    def __init__(self, world: World) -> None:
        self.world = world
        self.hosts = FleetHosts(world)
        events = world.plan.events
        blocked = any(event.kind == "block ssh" and event.seconds > 1200 for event in events)
        self.shards = 400 if blocked else SHARDS
        self.left, self.made = self.shards, dict[str, int]()
        bad = next((event.which for event in events if event.kind == "bad sample"), -1)
        self.samples = Samples(world.folder / "samples", bad) if bad >= 0 else None
        self.beats: dict[str, float] = {}
        self.wanted = self.deleted = False
        self.twice: dict[str, float] = {}  # since when a worker has had two TPU VMs
        self.owners = Owners(world, world.store)
        world.cloud.judged, world.cloud.acts = self._judge_delete, self._check_owner
        world.scheduler.spawn(self._work, WORK_SECONDS)

    def process(self, machine: Machine, number: int) -> tuple[Callable[[], None], Any]:
        store, client = StoreOf(machine, self.owners), Remote(machine, "cloud", self.world.cloud, CHANGES)
        driver = Driver(
            store, self.acting(machine, client), self._progress, machine.clock, Holder(f"{machine.name}/{number}")
        )

        def step() -> None:
            if machine.index == 0 and not self.wanted:
                self._want(machine, store, client)
            driver.round(NAME)
            self._check_alone()

        return step, driver.leases

    def acting(self, machine: Machine, client: Any) -> Acting:
        reach = Reach(client, FleetChannel(machine, self.hosts), "ada", True, "store")
        return Acting(client, reach, lambda _: "runtime", lambda _: b"archive", self.world.plan.jobs[0].queued)

    def happen(self, event: Event) -> bool:
        if event.kind in ("stop", "forget"):
            self._delete()
            return True
        if event.kind == "foreign":
            theirs = records.plan(NAME, ZONES, 3, "v4-8", event.at, owner="eve", store="theirs")[event.which + 1]
            if theirs.tpu not in self.world.cloud.made:  # another user's fleet has the same name
                self.world.cloud.make_foreign(theirs.zone, theirs.tpu, theirs.labels)
            return True
        if event.kind == "bad sample":
            return True
        return event.kind in ("resume", "newer", "quota")

    def calm(self) -> None:
        self.world.scheduler.spawn(self._finish, 0.0)

    def may_lose(self, machine: Machine) -> bool:
        return self.wanted

    def over(self) -> bool:
        return self.deleted and not self._paid() and all(one.state == "gone" for one in self._workers())

    def judge(self) -> None:
        for worker in self._workers():
            if worker.state not in ("gone", "done"):
                self.world.violate(
                    "stuck", f"{worker.key} is still {worker.state}: {worker.tpu_state} {worker.message}"
                )
        for name in self._paid():
            self.world.violate("leak", f"{name} is left")

    def _want(self, machine: Machine, store: Any, client: Any) -> None:
        now = machine.clock.now()
        workers = records.plan(NAME, ZONES, 1, "v4-8", now, work=WORK, move_after=120.0, owner=ME.owner, store=ME.store)
        fleets.want(store, NAME, workers, located(client, NAME, ZONES), now)
        self.wanted = True

    def _finish(self) -> None:
        """Wait until everything is done, and delete the fleet, as a person."""
        while not self.wanted or any(one.state == "active" for one in self._workers()):
            self.world.scheduler.sleep(30.0)
        if self.left and not self.deleted:
            self.world.acting = "world"
            failed = [f"{one.slot}: {one.message}" for one in self._workers() if one.state == "failed"]
            self.world.violate("stuck", f"{self.left} shards are left: {failed}")
        self._delete()

    def _delete(self) -> None:
        if not self.wanted or self.deleted:
            return
        self.deleted = True
        person = self.world.person
        store, client = StoreOf(person, self.world.store), Remote(person, "cloud", self.world.cloud, CHANGES)
        try:
            there = located(client, NAME, ZONES)
            fleets.discard(store, NAME, there, person.clock.now(), lambda slot: True, me=ME)
        except (TpukitError, Crashed) as error:
            self.world.trace.add("person", f"delete: {error}")

    def _workers(self) -> list[Worker]:
        page = self.world.store.list(records.WORKERS)
        return [entry.value for entry in page.entries]

    def _paid(self) -> list[str]:
        cloud = self.world.cloud
        cloud._pass_time()
        nodes = [f"TPU VM {one.name}" for one in cloud.made.values() if self._is_ours(one)]
        queued = [f"queued resource {one.name}" for _, one in cloud.requests.values() if self._is_ours(one)]
        return nodes + queued

    def _is_ours(self, one: Any) -> bool:
        return self._is_marked(one.labels)

    def _is_marked(self, labels: Mapping[str, str]) -> bool:
        return labels.get(FLEET) == NAME and mark_of(labels) == f"{ME.owner}/{ME.store}"

    def _progress(self, output: str) -> Progress:
        made = {slot: Made(count, count) for slot, count in self.made.items()}
        return Progress(workers=made, beats={slot: str(at) for slot, at in self.beats.items()})

    def _work(self) -> None:
        world = self.world
        while True:
            slots = {one.hosts[0].internal: one.labels.get(SLOT, "") for one in world.cloud.made.values() if one.hosts}
            for address, program in self.hosts.running().items():
                if world.cloud.quiet.get(address, 0.0) > world.scheduler.now + 1e6:
                    program.code = 137  # the host is dead
                    continue
                if self.samples:
                    program.report = self.samples.report
                program.moved = self.beats[slots.get(address, "")] = world.scheduler.now
                if self.samples and self.left and not self.samples.make(self.shards - self.left):
                    program.code = 1
                elif self.left:
                    self.left -= 1
                    slot = slots.get(address, "")
                    self.made[slot] = self.made.get(slot, 0) + 1
                else:
                    program.code = 0
            world.scheduler.sleep(WORK_SECONDS)

    def _check_owner(self, labels: Mapping[str, str], name: str, what: str) -> None:
        if self._is_marked(labels):
            self.owners.check(f"{records.WORKERS.name}/{NAME}-{labels.get(SLOT, '')}", what)

    def _judge_delete(self, name: str, what: str) -> None:
        """Check the deletion of a TPU VM: one that is READY and healthy may only be deleted for a person."""
        cloud, node = self.world.cloud, self.world.cloud.made[name]
        dead = any(cloud.quiet.get(host.internal, 0.0) > self.world.scheduler.now + 1e6 for host in node.hosts)
        if not self.deleted and not dead and name not in cloud.taken and node.state == "READY":
            self.world.violate("healthy", f"{what}, which is READY and healthy")

    def _check_alone(self) -> None:
        """Check that no worker has two TPU VMs for long: a late create must be found and removed."""
        cloud, now = self.world.cloud, self.world.scheduler.now
        named: dict[str, set[str]] = {}
        for one in (*cloud.made.values(), *(queued for _, queued in cloud.requests.values())):
            if self._is_ours(one) and SLOT in one.labels:
                named.setdefault(one.labels[SLOT], set()).add(one.name)
        twice = [slot for slot, names in named.items() if len(names) > 1]
        self.twice = {slot: self.twice.get(slot, now) for slot in twice}
        for slot, since in self.twice.items():
            if now - since > 900:
                self.world.violate("doubled", f"worker {slot} has had {sorted(named[slot])} for 15 minutes")
