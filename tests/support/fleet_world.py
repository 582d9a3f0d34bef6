"""A fleet with the real driver on a simulated cloud, whose hosts only report that programs run."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from support.simulated_tpu_cloud import TpuCloud
from tpukit.core.clock import ManualClock
from tpukit.core.errors import Denied, TpukitError, Transient
from tpukit.fleet import driver, records
from tpukit.fleet.act import Acting
from tpukit.fleet.driver import Driver
from tpukit.fleet.listing import located
from tpukit.fleet.ownership import Identity
from tpukit.fleet.progress import Made, Progress
from tpukit.fleet.reach import Reach
from tpukit.fleet.records import SLOT, Work, Worker
from tpukit.google.tpu_vm import Request
from tpukit.kernel.store import Store
from tpukit.kernel.store.process import this_process
from tpukit.kernel.store.sqlite import SqliteStore
from tpukit.places.tpu_vm.channel import Answer, Call

ZONES = ["us-central1-a", "us-central1-b"]
ME = Identity("ada", "ada-store")
WORK = Work("data", "output", "program.py:make", patience=600.0, code="c0de")


@dataclass
class Program:
    job: str
    attempt: int
    began: float
    moved: float
    code: int | None = None
    frozen: bool = False
    hangs: bool = False
    slow: bool = False  # alive, but makes no shard for long
    stopped: bool = False
    report: str = '{"step": 1, "shards": 1}'
    log: bytes = b"said"


@dataclass
class SimulatedHosts:
    """The channel: supervisors that remember programs by address."""

    clock: ManualClock
    cloud: TpuCloud
    programs: dict[str, list[Program]] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    denied: set[str] = field(default_factory=set)  # hosts that refuse our key
    blocked: TpukitError | None = None  # error from every host, such as behind a firewall
    starts: int = 0
    limits: list[Answer] = field(default_factory=list)  # the limits for unattended runs, of each start

    def public_key(self) -> str:
        return "ssh-ed25519 AAAA tpukit"

    def close(self) -> None:
        pass

    def ask(self, calls: Sequence[Call]) -> list[Answer | TpukitError]:
        return [self._ask(call) for call in calls]

    def running(self) -> dict[str, Program]:
        alive = {host.internal for node in self.cloud.made.values() if node.state == "READY" for host in node.hosts}
        last = {address: each[-1] for address, each in self.programs.items() if each and address in alive}
        return {address: one for address, one in last.items() if one.code is None}

    def _ask(self, call: Call) -> Answer | TpukitError:
        address, request = call.login.address, call.request
        there = [one for one in self.cloud.made.values() if one.hosts]
        node = next((one for one in there if one.hosts[0].internal == address), None)
        if node is None or node.state != "READY" or address in self.silent:
            return Transient(f"{address}: no route to host")
        if self.blocked is not None or address in self.denied:
            return self.blocked or Denied(f"{address}: the host does not accept the SSH key")
        each = self.programs.setdefault(address, [])
        current = self.running().get(address)
        if request["do"] == "prepare":
            held = current and {"job": current.job, "attempt": current.attempt}
            return {"code": True, "held": held, "boot": "b"}
        if request["do"] == "start":
            if each and each[-1].attempt > request["attempt"]:
                return {"refused": "superseded", "message": "a later attempt was here"}
            if not each or each[-1].attempt < request["attempt"]:
                assert current is None
                self.starts += 1
                self.limits.append(request["unattended"])
                each.append(Program(request["job"], request["attempt"], self.clock.now(), self.clock.now()))
            return {}
        if request["do"] == "stop":
            if current and current.attempt == request["attempt"]:
                current.code, current.stopped = 137, True
            return {}
        return self._status(request, each, current)

    def _status(self, request: Answer, each: list[Program], current: Program | None) -> Answer:
        if not request["attempts"]:
            return {"boot": "b", "attempts": [], "running": []}
        (asked,) = request["attempts"]
        about = next((one for one in each if one.attempt == asked["attempt"]), None)
        running = [{"job": current.job, "attempt": current.attempt}] if current else []
        facts: Answer = {"began": None, "end": None, "locked": False, "stop": False, "frozen": False, "progress": None}
        if about is not None:
            facts["began"] = {"pid": 1, "shim": 1, "at": about.began}
            end = {"code": about.code, "at": about.moved, "order": 0, "told": about.stopped, "error": ""}
            facts["end"] = None if about.code is None else {**end, "out_of_memory": False, "disk_full": False}
            facts["locked"], facts["frozen"] = about.code is None, about.frozen
            facts["progress"] = {"text": about.report, "at": about.moved}
        facts["latest"] = max((one.attempt for one in each), default=0)
        if asked["log"] is not None:
            log = about.log if about else b""
            rest = base64.b64encode(log[asked["log"] :]).decode()
            facts["log"] = {"at": asked["log"], "bytes": rest, "size": len(log)}
        return {"boot": "b", "attempts": [facts], "running": running}


class World:
    def __init__(self, folder: Path, shards: int = 20) -> None:
        self.clock = ManualClock()
        self.cloud = TpuCloud(folder / "hosts")
        self.hosts = SimulatedHosts(self.clock, self.cloud)
        self.store: Store = SqliteStore(folder / "store.db", now=self.clock.now)
        self.left, self.made = shards, dict[str, int]()  # by slot
        self.beats: dict[str, float] = {}  # of claims, by slot
        self.notes: list[str] = []
        self.stores: list[SqliteStore] = []  # of other users
        self.driver = self.new_driver(self.store)

    def new_driver(self, store: Store) -> Driver:
        note = lambda key, text: self.notes.append(text)  # noqa: E731
        return Driver(store, self.acting(), self.progress, self.clock, this_process(), report=note, complain=note)

    def acting(self) -> Acting:
        reach = Reach(self.cloud, self.hosts, "ada", True, "store")
        return Acting(self.cloud, reach, lambda _: "runtime", lambda _: b"archive", project="project-1")

    def progress(self, output: str) -> Progress:
        made = {slot: Made(count, count) for slot, count in self.made.items()}
        return Progress(workers=made, beats={slot: str(at) for slot, at in self.beats.items()})

    def move(self, file: Path) -> None:
        """Continue with a new driver on another store, without any memory."""
        self.close()
        self.store = SqliteStore(file, now=self.clock.now)
        self.driver = self.new_driver(self.store)

    def close(self) -> None:
        self.driver.close()
        self.store.close()
        for store in self.stores:
            store.close()
        self.stores.clear()

    def want(
        self,
        zones: list[str] = ZONES,
        per_zone: int = 2,
        work: Work | None = WORK,
        *,
        only: bool = True,
        again: bool = False,
    ) -> None:
        now = self.clock.now()
        workers = records.plan("tpu", zones, per_zone, "v3-8", now, work=work, owner=ME.owner, store=ME.store)
        driver.want(self.store, "tpu", workers, located(self.cloud, "tpu", zones), now, only=only, again=again)

    def delete(self) -> None:
        there = located(self.cloud, "tpu", ZONES)
        driver.discard(self.store, "tpu", there, self.clock.now(), lambda slot: True, me=ME)

    def workers(self) -> list[Worker]:
        return driver.of(self.store, "tpu")

    def round(self, seconds: float = 20.0) -> int:
        """Let the programs work and time pass, then run one round of the driver."""
        slots = {node.hosts[0].internal: node.labels.get(SLOT, "") for node in self.cloud.made.values()}
        for address, program in self.hosts.running().items():
            if program.frozen or program.hangs:
                continue
            program.moved = self.beats[slots[address]] = self.clock.now()
            if program.slow:
                continue
            if self.left:
                self.left -= 1
                self.made[slots[address]] = self.made.get(slots[address], 0) + 1
            else:
                program.code = 0
        self.clock.sleep(seconds)
        left = self.driver.round("tpu")
        self.check()
        return left

    def rest(self, rounds: int = 400) -> None:
        for _ in range(rounds):
            if not self.round():
                return
        raise AssertionError([(one.tpu, one.tpu_state, one.message) for one in self.workers()])

    def until_working(self) -> None:
        for _ in range(100):
            self.round()
            if len(self.hosts.running()) == len(self.workers()):
                return
        raise AssertionError(self.notes)

    def check(self) -> None:
        """Assert that no worker has two TPU VMs, or one and a request for another."""
        named: dict[str, set[str]] = {}
        for node in self.cloud.made.values():
            if SLOT in node.labels:
                named.setdefault(node.labels[SLOT], set()).add(node.name)
        for request, _ in self.cloud.requests.values():
            if SLOT in request.labels:
                named.setdefault(request.labels[SLOT], set()).add(request.name)
        assert all(len(names) == 1 for names in named.values()), named

    def foreign(self, name: str, zone: str = ZONES[0]) -> None:
        self.cloud.create(zone, Request(name, (name,), "v3-8", "runtime"))
