"""Worlds in which the first machine is paused before one of its calls, each call in turn, while the others continue."""

from __future__ import annotations

from dataclasses import replace

from simulation.plans import Fault, Plan
from simulation.simulator import Simulator

SECONDS = 120.0
"""Longer than any lease."""


def pause_at_every_call(simulator: Simulator, plan: Plan, *, step: int = 1) -> tuple[int, list[str]]:
    """Return the number of paused calls, and the violations.

    `step` skips calls. At even calls the whole machine is suspended, at odd ones the process is stopped.
    """
    calm = simulator.run(plan)
    broken = [f"without a pause: {calm.violation}"] if calm.violation else []
    count = 0
    for call in range(0, calm.first_calls, step):
        kind = "stall" if call % 2 else "pause"
        paused = replace(plan, faults=(Fault(0, call, kind, SECONDS),), calm=plan.calm + SECONDS)
        result = simulator.run(paused)
        count += 1
        if result.violation:
            broken.append(f"{kind} before call {call}: {result.violation.invariant}: {result.violation.text}")
    return count, broken
