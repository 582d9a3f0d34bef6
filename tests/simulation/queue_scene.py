"""The code queue: a supervisor and a worker on each machine; applications send jobs, some of them broken documents."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simulation.machines import Crashed, Machine
from simulation.records import StoreOf
from tpukit.errors import Conflict, TpukitError
from tpukit.queue import claims
from tpukit.queue.claims import Claim
from tpukit.queue.decide import Outcome
from tpukit.queue.driver import Driver
from tpukit.queue.records import ACTIVE, COMPLETED, FAILED, TPU_JOBS, QueuedJob
from tpukit.reasons import Reason
from tpukit.store import Holder

if TYPE_CHECKING:
    from simulation.plans import Event
    from simulation.world import World

RENEW = claims.SECONDS / 3
BROKEN = (
    '{"code": "x", "timeout": NaN, "status": "pending", "priority": 100, "created_at": 1}',
    '{"code": "x", "timeout": 5, "status": "pending", "priority": NaN, "created_at": 1}',
    '{"code": "x", "timeout": null, "status": "pending", "priority": Infinity, "created_at": 1}',
    '{"code": null, "timeout": 5, "status": "pending", "metadata": [1], "created_at": 1}',
    '{"code": "%s", "timeout": 5, "status": "pending", "priority": 9, "created_at": 1}' % ("x" * 1_000_000),
)


@dataclass
class Execution:
    key: str
    machine: Machine
    process: int
    renewed: float  # when its lease was last renewed, in truth
    over: bool = False
    written: bool = False  # its end is on the record


class QueueScene:
    def __init__(self, world: World) -> None:
        self.world = world
        self.sent: dict[str, float] = {}  # seconds that the code takes, by key
        self.broken: list[str] = []
        self.executions: list[Execution] = []
        self.cancelled: set[str] = set()
        dice = random.Random(world.plan.seed)
        for index in range(dice.choice((2, 4, 6))):
            self._send(f"code-{index}", dice.choice((20.0, 100.0, 300.0)))
        for index in range(dice.choice((0, 0, 1, 2))):
            self._send_broken(f"broken-{index}", dice.choice(BROKEN))

    def process(self, machine: Machine, number: int) -> tuple[Callable[[], None], Any]:
        store, holder = StoreOf(machine, self.world.store), Holder(f"{machine.name}/{number}")
        driver = Driver(store, machine.clock, holder)
        self.world.scheduler.spawn(lambda: self._worker(machine, number), 1.0)
        return lambda: (driver.round(), None)[1], None

    def happen(self, event: Event) -> bool:
        if event.kind in ("stop", "forget") and self.sent:
            self._cancel(sorted(self.sent)[event.which % len(self.sent)])
            return True
        return event.kind not in ("clear state", "clock ahead")

    def calm(self) -> None:
        pass

    def may_lose(self, machine: Machine) -> bool:
        return True

    def over(self) -> bool:
        return not self.world.store.list(TPU_JOBS, states=ACTIVE).entries

    def judge(self) -> None:
        for entry in self.world.store.list(TPU_JOBS).entries:
            job = entry.value
            if job.status in ACTIVE:
                self.world.violate("stuck", f"{entry.key} is still {job.status}: {job.error}")

    def check(self, key: str, job: QueuedJob) -> None:
        """Called whenever a job was written."""
        world = self.world
        done = [one for one in self.executions if one.key == key]
        if job.status == COMPLETED and not any(one.over for one in done):
            world.violate("evidence", f"{key} is completed, and its code never came to its end")
        if job.status == COMPLETED:  # whether or not its worker hears of it
            ended = [one for one in done if one.over and one.machine.name == world.acting]
            for one in ended[-1:]:
                one.written = True
        if job.status == FAILED and key in self.sent and not job.dead_letter:
            world.violate("lost", f"{key} failed without a cause: {job.error}")
        # A claim whose answer was lost is given up like that of a dead worker.
        if job.faults > job.attempts - sum(one.written for one in done):
            world.violate("budget", f"{key} is charged {job.faults} faults; its code was begun {len(done)} times")

    def _send(self, key: str, seconds: float) -> None:
        self.sent[key] = seconds
        job = QueuedJob(code="print(1)", timeout=600, created_at=self.world.clock.now())
        self.world.home.store.create(TPU_JOBS, key, job)

    def _send_broken(self, key: str, doc: str) -> None:
        """A document that a program without tpukit wrote."""
        self.broken.append(key)
        self.world.home.insert(TPU_JOBS, key, doc)

    def _cancel(self, key: str) -> None:
        from tpukit.queue.client import Client

        self.cancelled.add(key)
        Client(StoreOf(self.world.person, self.world.store)).cancel(key)

    # A worker

    def _worker(self, machine: Machine, number: int) -> None:
        from simulation.world import Stop

        store = StoreOf(machine, self.world.store)
        dice, count = random.Random(machine.index), 0
        try:
            while machine.process == number and not machine.down:
                count += 1
                try:
                    claim = claims.take(store, Holder(f"{machine.name}/{number}/w{count}"), dice)
                    if claim is not None:
                        self._execute(machine, number, store, claim)
                except TpukitError as error:
                    self.world.trace.add(machine.name, f"worker: {error.message[:80]}")
                self.world.scheduler.sleep(5.0)
        except (Crashed, Stop):
            pass

    def _execute(self, machine: Machine, number: int, store: StoreOf, claim: Claim) -> None:
        world, key = self.world, claim.key
        seconds = self.sent.get(key, 5.0)
        for other in self.executions:
            fresh = world.scheduler.now - other.renewed < claims.SECONDS
            alive = not other.machine.down and other.machine.process == other.process
            if other.key == key and not other.over and fresh and alive and other.machine is not machine:
                world.violate("doubled", f"begins {key}, which {other.machine.name} runs and renews")
        mine = Execution(key, machine, number, world.scheduler.now)
        self.executions.append(mine)
        world.trace.add(machine.name, f"runs {key}")
        left, lease = seconds, claim.lease
        while left > 0:
            world.scheduler.sleep(min(left, RENEW))
            if machine.process != number or machine.down:
                raise Crashed
            left -= RENEW
            try:
                lease = store.renew(lease, claims.SECONDS)
                mine.renewed = world.scheduler.now
            except Conflict:
                world.trace.add(machine.name, f"lost {key}")
                mine.renewed = 0.0
                return
            except TpukitError:
                continue
        mine.over = True
        for _ in range(10):
            try:
                outcome = Outcome(Reason.DONE, result=key)
                claims.finish(store, Claim(claim.entry, lease), outcome)
                return
            except TpukitError:
                world.scheduler.sleep(5.0)
