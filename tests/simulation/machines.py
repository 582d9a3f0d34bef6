"""Machines of drivers and people, and the one point through which all their calls leave the machine.

As the plan of the world says, requests and answers are lost, late or duplicated, the network is cut in one direction,
permissions are denied, and the calling process is paused or dies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from simulation.engine import SimulatedClock
from simulation.plans import Fault, MachinePlan
from tpukit.core import fence
from tpukit.core.errors import Denied, TpukitError, Transient

if TYPE_CHECKING:
    from simulation.world import World

T = TypeVar("T")
TIMEOUT = {"store": 20.0, "cloud": 30.0, "ssh": 10.0, "kube": 20.0, "bucket": 30.0}


class Crashed(BaseException):
    """The process has died at this moment."""


class Machine:
    def __init__(self, world: World, index: int, plan: MachinePlan, root: Path) -> None:
        self.world, self.index, self.plan, self.root = world, index, plan, root
        self.name = f"machine-{index}" if index >= 0 else "person"
        self.clock = SimulatedClock(world.scheduler, plan.offset, plan.drift)
        self.key = f"ssh-ed25519 KEY-{index}-0 tpukit"
        mine = [one for one in world.plan.faults if one.machine == index]
        self.faults: dict[tuple[bool, int], Fault] = {  # a negative call counts only calls that change something
            (one.change or one.call < 0, one.call if one.call >= 0 else -one.call - 1): one for one in mine
        }
        self.calls = self.changes = 0
        self.process = 0  # incremented whenever a process of this machine ends
        self.restarts = 0  # number of scheduled process starts
        self.cut: dict[str, float] = {}  # by channel: until when requests are lost
        self.deaf: dict[str, float] = {}  # by channel: until when answers are lost
        self.denied: dict[str, float] = {} if plan.rights else {"cloud": math.inf, "kube": math.inf}
        self.suspended = 0.0  # until when the machine is suspended
        self.driving = -1  # the running process; differs from `process` until the next one has started
        self.astray = False  # its settings name the store's former backend
        self.down = False

    def call(self, channel: str, what: str, do: Callable[[], T], *, mutates: bool = False, beside: bool = False) -> T:
        """Send a request to the world outside this machine, and wait for its answer.

        `beside`: a background thread sends it at fixed intervals, so it does not count among the calls with faults.
        """
        world, process = self.world, self.process
        if world.scheduler.stopped:
            raise Crashed
        number, self.calls = self.calls, self.calls + (not beside)
        fault = None if beside else self.faults.get((False, number))
        if mutates:
            fault = self.faults.get((True, self.changes)) or fault
            self.changes += 1
        fault = fault if world.troubled else None
        if fault and channel == "local" and fault.kind not in ("pause", "stall", "crash", "crash after"):
            fault = None
        kind = fault.kind if fault else ""
        if fault or (mutates and "leases/" not in what):
            world.changes += 1
        if fault:
            world.trace.add(self.name, f"{fault} at {what}")
            self._before(fault)
        limit = fence.check() if mutates else math.inf  # the last step before the request is sent, as in adapters
        self._wait(self.plan.latency * world.spread(number))
        if self.process != process or self.down:
            raise Crashed
        self._refuse(channel, what)
        if kind == "lose":
            self._wait(TIMEOUT[channel])
            raise Transient(f"{what}: no answer")
        if kind == "busy":
            raise Transient(f"{what}: 429", retry_after=5.0)
        if kind == "late":
            assert fault
            world.later(min(fault.seconds, limit), what, do)
            self._wait(fault.seconds)
            raise Transient(f"{what}: no answer in time")
        shown = channel != "store" and bool(mutates or kind) and "leases/" not in what
        world.trace.add(self.name, what, shown=shown)
        if kind == "double":
            with suppress(TpukitError):
                Context().run(do)
        try:
            answer = Context().run(do)  # this machine's fence does not extend to the outside world
        except TpukitError as error:
            world.trace.add(self.name, f"{what}: {type(error).__name__} {error.message[:80]}")
            raise
        finally:
            world.stepped()
        if kind == "crash after":
            assert fault
            self.crash(fault.seconds)
        if kind == "lose answer" or self.deaf.get(channel, 0.0) > world.scheduler.now:
            self._wait(TIMEOUT[channel])
            raise Transient(f"{what}: the answer was lost")
        return answer

    def crash(self, seconds: float) -> None:
        """End the calling process; another one starts after `seconds`."""
        self.process += 1
        self.world.restart(self, seconds)
        raise Crashed

    def _before(self, fault: Fault) -> None:
        world, until = self.world, self.world.scheduler.now + fault.seconds
        for index, kind in enumerate(fault.meanwhile):
            world.happen(kind, fault.seconds * (index + 1) / (len(fault.meanwhile) + 2))
        if fault.kind == "pause":
            self.suspended = until
            world.scheduler.sleep(fault.seconds)
            self.clock.asleep += fault.seconds
        elif fault.kind == "stall":
            self.suspended = until
            world.scheduler.sleep(fault.seconds)
        elif fault.kind == "crash":
            self.crash(fault.seconds)
        elif fault.kind.startswith("cut "):
            self.cut[fault.kind[4:]] = until
        elif fault.kind.startswith("deaf "):
            self.deaf[fault.kind[5:]] = until
        elif fault.kind.startswith("deny "):
            self.denied[fault.kind[5:]] = max(until, self.denied.get(fault.kind[5:], 0.0))

    def _refuse(self, channel: str, what: str) -> None:
        now = self.world.scheduler.now
        if self.cut.get(channel, 0.0) > now or (channel == "ssh" and self.world.blocked > now):
            self._wait(TIMEOUT[channel])
            raise Transient(f"{what}: unreachable")
        if self.denied.get(channel, 0.0) > now:
            raise Denied(f"{what}: permission denied")

    def _wait(self, seconds: float) -> None:
        self.world.scheduler.sleep(seconds)


class Remote:
    """A part of the world as a machine reaches it: each method is a call over the network."""

    def __init__(self, machine: Machine, channel: str, real: Any, mutating: frozenset[str]) -> None:
        self._machine, self._channel, self._real, self._mutating = machine, channel, real, mutating

    def __getattr__(self, name: str) -> Any:
        real, machine, mutates = getattr(self._real, name), self._machine, name in self._mutating
        channel = self._channel

        def call(*args: Any, **kwargs: Any) -> Any:
            def do() -> Any:
                machine.world.acting = machine.name
                return real(*args, **kwargs)

            shown = " ".join(str(one)[:60] for one in args if isinstance(one, (str, int)))
            return machine.call(channel, f"{name} {shown}", do, mutates=mutates)

        self.__dict__[name] = call
        return call
