"""Rare ingredients that random plans seldom combine: half of the seeds get one added to the drawn plan.

They have their own dice, so a seed keeps its machines, jobs and faults when an ingredient is added here.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from simulation.plans import Event, MachinePlan, Plan

SALT, NAMESAKE, UNSEEN = "rare 4", "namesake 1", "unseen 1"
HOURS = (1500.0, 3600.0)


def enrich(plan: Plan) -> Plan:
    """Return the plan with an ingredient of its scene, or unchanged."""
    dice = random.Random(f"{SALT}/{plan.seed}")
    if plan.scene == "jobs" and (own := random.Random(f"{UNSEEN}/{plan.seed}")).random() < 0.02:
        return _unseen(plan, own)
    if plan.scene == "jobs" and any(job.on for job in plan.jobs):
        plan = _namesake(plan, random.Random(f"{NAMESAKE}/{plan.seed}"))
    ingredients = _INGREDIENTS.get(plan.scene)
    if not ingredients or dice.random() < 0.5:
        return plan
    return dice.choice(ingredients)(plan, dice)


def _unseen(plan: Plan, dice: random.Random) -> Plan:
    """Add a person who forgets a job while its hosts cannot be reached."""
    job = replace(plan.jobs[0], on=False, slices=1, mistake=0.0, seconds=600.0)
    at = round(dice.uniform(150, 400), 1)
    events = (
        Event(at, "block ssh", 0, 600.0),
        *(Event(round(at + dice.uniform(5, 400), 1), "forget") for _ in range(3)),
    )
    return _with(replace(plan, jobs=(job,), faults=()), *events)


def _namesake(plan: Plan, dice: random.Random) -> Plan:
    """Add the loss of a TPU VM that a person named, and a new one of the same name from another user or `tpu vm`."""
    if dice.random() < 0.7:
        return plan
    at, which = round(dice.uniform(40, 300), 1), next(index for index, job in enumerate(plan.jobs) if job.on)
    kind, after = dice.choice(("foreign", "foreign", "recreate")), dice.choice((5.0, 60.0, 150.0, 400.0))
    return _with(plan, Event(at, "preempt", dice.randrange(4)), Event(round(at + after, 1), kind, which))


def _with(plan: Plan, *events: Event) -> Plan:
    every = tuple(sorted((*plan.events, *events), key=lambda one: one.at))
    return replace(plan, events=every, calm=max(plan.calm, *(one.at + one.seconds for one in events)))


def _machines(plan: Plan, count: int) -> tuple[MachinePlan, ...]:
    spare = MachinePlan(tick=10.0, latency=0.2, renews=True)
    return (*plan.machines, *[spare] * (count - len(plan.machines)))


def _ambush(plan: Plan, dice: random.Random) -> Plan:
    """Add a driver that is suspended right before an act, while people and other drivers end or restart the job."""
    more = replace(plan, machines=tuple(replace(one, rights=True) for one in _machines(plan, 2)))
    at, seconds = round(2 ** dice.uniform(0, 8), 1), dice.choice((120.0, 240.0, 400.0))
    return _with(more, Event(at, "ambush", dice.randrange(8), seconds))


def _heir(plan: Plan, dice: random.Random) -> Plan:
    """Add the death of the sender's machine, and an heir with another SSH key and without the code."""
    first, *others = _machines(plan, 2)
    heirs = tuple(replace(one, rights=True, starts=dice.choice((0.0, 60.0))) for one in others)
    dies = dice.choice((40.0, 90.0, 200.0, 350.0))
    return replace(plan, machines=(replace(first, dies=dies), *heirs), calm=max(plan.calm, dies))


def _no_code(plan: Plan, dice: random.Random) -> Plan:
    """Add a driver without the code that takes the job, while the machine that has it restarts."""
    jobs = tuple(replace(one, code=True, on=False, bucket=dice.random() < 0.3) for one in plan.jobs)
    machines = tuple(replace(one, rights=True, starts=0.0, dies=0.0) for one in _machines(plan, 2))
    return _with(replace(plan, jobs=jobs, machines=machines), Event(round(dice.uniform(5, 100), 1), "crash", 0, 150.0))


def _blind(plan: Plan, dice: random.Random) -> Plan:
    """Add a long loss of a driver's rights, during which a person stops the job."""
    at = round(dice.uniform(30, 120), 1)
    more = replace(plan, machines=tuple(replace(one, rights=True, dies=0.0) for one in _machines(plan, 2)), faults=())
    events = (Event(at, "blind", dice.randrange(2), 1200.0), Event(at + dice.choice((5.0, 60.0, 130.0)), "stop"))
    return _with(more, *events)


def _back_off(plan: Plan, dice: random.Random) -> Plan:
    """Add a return of rights during a long back-off, and a stop before it is over."""
    at, seconds = round(dice.uniform(20, 150), 1), dice.choice((160.0, 330.0, 650.0))
    alone = replace(plan, machines=(replace(plan.machines[0], dies=0.0),), faults=())
    kept = tuple(one for one in plan.events if one.at + one.seconds < at)
    events = (Event(at, "no rights", 0, seconds), Event(at + seconds + 2.0, "stop", dice.randrange(2)))
    return _with(replace(alone, events=kept), *events)


def _forgotten(plan: Plan, dice: random.Random) -> Plan:
    """Add a person who forgets a job between two attempts on a TPU VM that no longer exists."""
    job = replace(plan.jobs[0], on=True, slices=1, mistake=0.0, seconds=600.0)
    at, machines = round(dice.uniform(60, 200), 1), tuple(replace(one, renews=True) for one in plan.machines)
    events = [Event(at, "preempt")]
    events += [Event(round(at + dice.uniform(0, 120), 1), "forget") for _ in range(3)]
    return _with(replace(plan, jobs=(job,), machines=machines, faults=()), *events)


def _blocked(plan: Plan, dice: random.Random) -> Plan:
    """Add a block of port 22 for all drivers while the job runs."""
    jobs = tuple(replace(one, seconds=600.0) for one in plan.jobs)
    return _with(replace(plan, jobs=jobs), Event(round(dice.uniform(100, 350), 1), "block ssh", 0, 400.0))


def _newer(plan: Plan, dice: random.Random) -> Plan:
    """Add a driver of a newer version that writes records which this version cannot read."""
    jobs = tuple(replace(one, seconds=600.0, on=False, mistake=0.0) for one in plan.jobs)
    machines = tuple(replace(one, rights=True) for one in plan.machines)
    event = Event(round(dice.uniform(60, 300), 1), "newer", 0, 900.0)
    return _with(replace(plan, jobs=jobs, machines=machines), event)


def _storm(plan: Plan, dice: random.Random) -> Plan:
    """Add repeated preemptions."""
    jobs = tuple(replace(one, seconds=200.0, mistake=0.0) for one in plan.jobs)
    events = [Event(round(index * 100 + dice.uniform(60, 160), 1), "preempt", dice.randrange(4)) for index in range(16)]
    return _with(replace(plan, jobs=jobs), *events)


def _clones(plan: Plan, dice: random.Random) -> Plan:
    """Add machines from one image, with the same machine id and host name."""
    return _with(replace(plan, machines=_machines(plan, 2)), Event(0.0, "clones"))


def _power(plan: Plan, dice: random.Random) -> Plan:
    return _with(plan, Event(round(2 ** dice.uniform(0, 9), 1), "power loss", 0, 20.0))


def _disk(plan: Plan, dice: random.Random) -> Plan:
    return _with(plan, Event(round(dice.uniform(0, 200), 1), "full disk", dice.choice((0, 0, 1, 2))))


def _history(plan: Plan, dice: random.Random) -> Plan:
    """Add a job on 64 hosts that was preempted for weeks."""
    job = replace(plan.jobs[0], tpu="v4-512", slices=1, seconds=60.0, mistake=0.0, code=False, on=False)
    events = (Event(0.0, "long history"), Event(round(dice.uniform(100, 400), 1), "preempt"))
    return _with(replace(plan, jobs=(job,), machines=plan.machines[:2]), *events)


def _abandoned(plan: Plan, dice: random.Random) -> Plan:
    """Add the death of all drivers, or of none: hardware ends by itself after the limit, and not before."""
    limit = dice.choice((300.0, 900.0))
    seconds = dice.choice((600.0, 3000.0))
    jobs = tuple(replace(one, seconds=seconds, mistake=0.0, code=False) for one in plan.jobs[:1])
    machines = tuple(replace(one, rights=True, dies=0.0) for one in plan.machines)
    kept = tuple(one for one in plan.events if one.kind in ("preempt", "repair", "stop", "resume", "short"))
    plan = replace(plan, machines=machines, faults=(), events=kept)
    events = [Event(0.0, "limit", int(limit))]
    if dice.random() < 0.6:
        events.append(Event(round(dice.uniform(60, 500), 1), "abandon", 0, limit + 900.0))
    return _with(replace(plan, jobs=jobs), *events)


def _long_block(plan: Plan, dice: random.Random) -> Plan:
    """Add a long time in which no host of the fleet is reachable, while the workers continue."""
    machines = tuple(replace(one, rights=True) for one in plan.machines)
    seconds = dice.choice(HOURS)
    return _with(replace(plan, machines=machines), Event(round(dice.uniform(60, 300), 1), "block ssh", 0, seconds))


def _neighbour(plan: Plan, dice: random.Random) -> Plan:
    """Add another user's fleet of the same name."""
    return _with(plan, Event(round(2 ** dice.uniform(0, 9), 1), "foreign", dice.randrange(3)))


def _bad_sample(plan: Plan, dice: random.Random) -> Plan:
    return _with(plan, Event(0.0, "bad sample", dice.randrange(40)))


_INGREDIENTS: dict[str, tuple[Callable[[Plan, random.Random], Plan], ...]] = {
    "jobs": (
        *(_ambush, _heir, _no_code, _blind, _back_off, _clones, _forgotten, _storm, _blocked, _newer),
        *(_power, _disk, _history, _abandoned),
    ),
    "fleet": (_long_block, _neighbour, _bad_sample),
}
