"""A small training program as plain arithmetic, with its reports: unbroken and broken, right or mistaken."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tpukit.drill.losses import Again, Loss, Struck, What, When
from tpukit.drill.saves import Save
from tpukit.drill.trace import Report, Trace
from tpukit.drill.verdicts import Broken, Ended

STEPS, EVERY = 60, 10


@dataclass
class State:
    weight: float = 5.0
    speed: float = 0.0
    position: int = 0


@dataclass(frozen=True)
class Program:
    """A program with an optional `mistake`: data, optimizer, rng, starts over, off by one, older, lag, parameters.

    With `lag`, the saved weight is that of the step before; with `parameters`, it is not restored.
    """

    seed: int = 0
    hosts: int = 1
    digests: bool = True
    mistake: str = ""
    steps: int = STEPS
    every: int = EVERY

    def attempt(self, number: int, done: int, state: State, until: int) -> tuple[list[Report], dict[int, State]]:
        reports, saves = [], {}
        for step in range(done + 1, until + 1):
            batch = random.Random(f"{self.seed}/{state.position}").gauss(0, 1)
            key = f"{self.seed}/{number}/{step}" if self.mistake == "rng" else f"{self.seed}/{step}"
            noise = random.Random(f"n{key}").gauss(0, 0.05)
            loss = (state.weight - 1) ** 2 + 1 + 0.2 * batch + noise
            digest = f"batch-{state.position}" if self.digests else ""
            reports += [
                Report(number, host, step, loss, digest, at=100.0 * number + step) for host in range(self.hosts)
            ]
            state.position += 1
            state.speed = 0.8 * state.speed + 0.02 * (2 * (state.weight - 1) + 0.2 * batch + noise)
            state.weight -= state.speed
            if step % self.every == 0:
                saves[step] = replace(state)
        return reports, saves

    def unbroken(self) -> Trace:
        return tuple(self.attempt(0, 0, State(), self.steps)[0])

    def broken(self, lost: int, loss: Loss | None = None, *, completed: bool = True) -> Broken:
        """Lose the run after step `lost`; every save completes at once."""
        reports, saves = self.attempt(0, 0, State(), lost)
        saved = max(saves, default=0)
        used = saved
        if self.mistake == "older" and len(saves) > 1:
            used = sorted(saves)[-2]
        if self.mistake == "starts over":
            used = 0
        state = replace(saves[used]) if used else State()
        if used and self.mistake == "data":
            state.position = 0
        if used and self.mistake == "off by one":
            state.position -= 1
        if used and self.mistake == "optimizer":
            state.speed = 0.0
        if used and self.mistake == "lag":
            state.weight += state.speed
        if used and self.mistake == "parameters":
            state.weight = State().weight
        later, more = self.attempt(1, used, state, self.steps)
        struck = Struck(0, lost, float(lost), saved or -1, named=True)
        times = [*((step, step) for step in sorted(saves)), *((step, 100 + step) for step in sorted(more))]
        seen = tuple(Save(step, at, at, 100, True, (f"checkpoints/{step}/state",), True) for step, at in times)
        loss = loss or Loss("kill-0-0", What.KILL, ((0, 0),), When.AT_STEP, lost, Again.NOTHING)
        return Broken(loss, (*reports, *later), Ended(completed, "", (False, False)), (struck,), seen)
