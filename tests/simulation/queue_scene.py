"""The code queue: a supervisor and a worker on each machine; applications send jobs, some as broken documents."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simulation.machines import Crashed, Machine
from simulation.records import StoreOf
from tpukit.code_queue import claims
from tpukit.code_queue.claims import Claim
from tpukit.code_queue.decide import Outcome
from tpukit.code_queue.driver import Driver
from tpukit.code_queue.records import ACTIVE, COMPLETED, ENDED, FAILED, TPU_JOBS, QueuedJob
from tpukit.core.errors import Conflict, Invalid, TpukitError
from tpukit.jobs.reasons import Reason
from tpukit.kernel.store import Holder, codec

if TYPE_CHECKING:
    from simulation.plans import Event
    from simulation.world import World

RENEW = claims.SECONDS / 3
LIMIT = 1_048_576
"""Maximum size of a document in bytes, as in Firestore. The embedded backend has no limit."""
PLAIN = '"code": "x", "status": "pending", "created_at": 1'
BROKEN = (
    f'{{{PLAIN}, "timeout": NaN, "priority": 100}}',
    f'{{{PLAIN}, "timeout": 5, "priority": NaN}}',
    f'{{{PLAIN}, "timeout": null, "priority": Infinity}}',
    f'{{{PLAIN}, "timeout": 5, "priority": 100, "metadata": {{"a": [1, {{"b": NaN}}]}}}}',
    '{"code": null, "timeout": 5, "status": "pending", "metadata": [1], "created_at": 1}',
    '{"code": "%s", "timeout": 5, "status": "pending", "priority": 9, "created_at": 1}' % ("x" * 1_000_000),
    f'{{{PLAIN}, "timeout": 5, "priority": 100, "data": "{"d" * (LIMIT - 150)}"}}',
    '{"code": "x", "timeout": 5, "status": "Pending", "created_at": 1}',
    '{"code": "x", "timeout": 5, "status": null, "created_at": 1}',
)
"""Documents that must end with an error message."""
ODD = (
    f'{{{PLAIN}, "timeout": 5, "attempts": null, "cancel": null, "logs": null, "worker": null, "started_at": null}}',
    f'{{{PLAIN}, "timeout": 5, "max_faults": "5", "not_before": NaN, "faults": -3, "ranked": "yes"}}',
    '{"code": "x", "timeout": 5, "status": "pending", "metadata": null, "created_at": "today"}',
    '{"code": "x", "timeout": 5, "status": "pending", "created_at": 1e300}',
)
"""Documents that run: only fields that tpukit itself writes are odd."""


class Limited:
    """A store whose backend refuses large documents."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def put(self, kind: Any, entry: Any, value: Any, **more: Any) -> Any:
        self._check(kind, entry, value)
        return self._real.put(kind, entry, value, **more)

    def claim(self, kind: Any, entry: Any, value: Any, *args: Any, **more: Any) -> Any:
        self._check(kind, entry, value)
        return self._real.claim(kind, entry, value, *args, **more)

    def _check(self, kind: Any, entry: Any, value: Any) -> None:
        if kind is TPU_JOBS and len(str(entry.raw)) > LIMIT // 2:
            size = len(codec.to_json(codec.encode(kind, value, entry.raw, entry.revision)))
            if size > LIMIT:
                raise Invalid(f"it takes {size:,} bytes, and a document has at most {LIMIT:,}")


@dataclass
class Execution:
    key: str
    machine: Machine
    process: int
    renewed: float  # true time of the last renewal of its lease
    over: bool = False
    written: bool = False  # its end is recorded


class QueueScene:
    def __init__(self, world: World) -> None:
        self.world = world
        self.sent: dict[str, float] = {}  # duration of the code in seconds, by key
        self.store = Limited(world.store)
        self.executions: list[Execution] = []
        self.cancelled: set[str] = set()
        self.written = 0.0  # time of the last document from a program without tpukit
        dice = random.Random(world.plan.seed)
        for index in range(dice.choice((2, 4, 6))):
            self._send(f"code-{index}", dice.choice((20.0, 100.0, 300.0)))
        for index in range(dice.choice((0, 0, 1, 2))):
            doc, after = dice.choice((*BROKEN, *ODD)), dice.choice((0.0, 0.0, 50.0, 200.0))
            self.written = max(self.written, after)
            self._send_plain(f"plain-{index}", doc, after)

    def process(self, machine: Machine, number: int) -> tuple[Callable[[], None], Any]:
        store, holder = StoreOf(machine, self.store), Holder(f"{machine.name}/{number}")
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
        if self.world.scheduler.now - self.world.scheduler.start < self.written:
            return False
        page = self.world.store.list(TPU_JOBS, states=ACTIVE)
        return not (page.entries or page.broken or self.world.store.strangers(TPU_JOBS).entries)

    def judge(self) -> None:
        page = self.world.store.list(TPU_JOBS)
        for entry in page.entries:
            job = entry.value
            if job.status not in ENDED:
                self.world.violate("stuck", f"{entry.key} is still {job.status}: {job.error}")
        for one in page.broken:
            self.world.violate("lost", f"{one.key} cannot be read: {one.why}")

    def check(self, key: str, job: QueuedJob) -> None:
        """Check a job after each write."""
        world = self.world
        done = [one for one in self.executions if one.key == key]
        if job.status == COMPLETED and not any(one.over for one in done):
            world.violate("evidence", f"{key} is completed, and its code never came to its end")
        if job.status == COMPLETED:  # even if its worker does not receive the answer
            ended = [one for one in done if one.over and one.machine.name == world.acting]
            for one in ended[-1:]:
                one.written = True
        if job.status == FAILED and key in self.sent and not job.dead_letter:
            world.violate("lost", f"{key} failed without a cause: {job.error}")
        # A claim whose answer was lost is given up like one of a dead worker.
        if job.faults > job.attempts - sum(one.written for one in done):
            world.violate("budget", f"{key} is charged {job.faults} faults; its code was begun {len(done)} times")

    def _send(self, key: str, seconds: float) -> None:
        self.sent[key] = seconds
        job = QueuedJob(code="print(1)", timeout=600, created_at=self.world.clock.now())
        self.world.home.store.create(TPU_JOBS, key, job)

    def _send_plain(self, key: str, doc: str, after: float) -> None:
        """Write a document as a program without tpukit does."""
        self.world.scheduler.spawn(lambda: self.world.home.insert(TPU_JOBS, key, doc), after)

    def _cancel(self, key: str) -> None:
        from tpukit.code_queue.client import Client

        self.cancelled.add(key)
        Client(StoreOf(self.world.person, self.store)).cancel(key)

    # Worker

    def _worker(self, machine: Machine, number: int) -> None:
        from simulation.world import Stop

        store = StoreOf(machine, self.store)
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
