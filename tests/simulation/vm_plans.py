"""What random plans seldom bring together: for half of the seeds, one rare ingredient is added to the drawn plan.

The dice are apart from those of the plan, so a seed keeps its machines, jobs and faults when an ingredient is added
here.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from simulation.plans import Event, MachinePlan, Plan

SALT, NAMESAKE = "rare 4", "namesake 1"
HOURS = (1500.0, 3600.0)


def enrich(plan: Plan) -> Plan:
    """Return the plan with an ingredient of its scene, or as it is."""
    dice = random.Random(f"{SALT}/{plan.seed}")
    if plan.scene == "jobs" and any(job.on for job in plan.jobs):
        plan = _namesake(plan, random.Random(f"{NAMESAKE}/{plan.seed}"))
    ingredients = _INGREDIENTS.get(plan.scene)
    if not ingredients or dice.random() < 0.5:
        return plan
    return dice.choice(ingredients)(plan, dice)


def _namesake(plan: Plan, dice: random.Random) -> Plan:
    """A TPU VM that a person named goes, and another user, or `tpu vm`, creates one of its name."""
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
    """A driver sleeps for minutes right before an act, while people and other drivers end or restart the job."""
    more = replace(plan, machines=tuple(replace(one, rights=True) for one in _machines(plan, 2)))
    at, seconds = round(2 ** dice.uniform(0, 8), 1), dice.choice((120.0, 240.0, 400.0))
    return _with(more, Event(at, "ambush", dice.randrange(8), seconds))


def _heir(plan: Plan, dice: random.Random) -> Plan:
    """The sender's machine dies; one with another SSH key and without the code goes on."""
    first, *others = _machines(plan, 2)
    heirs = tuple(replace(one, rights=True, starts=dice.choice((0.0, 60.0))) for one in others)
    dies = dice.choice((40.0, 90.0, 200.0, 350.0))
    return replace(plan, machines=(replace(first, dies=dies), *heirs), calm=max(plan.calm, dies))


def _no_code(plan: Plan, dice: random.Random) -> Plan:
    """A driver without the code takes the job, while the machine that has it restarts."""
    jobs = tuple(replace(one, code=True, on=False, bucket=dice.random() < 0.3) for one in plan.jobs)
    machines = tuple(replace(one, rights=True, starts=0.0, dies=0.0) for one in _machines(plan, 2))
    return _with(replace(plan, jobs=jobs, machines=machines), Event(round(dice.uniform(5, 100), 1), "crash", 0, 150.0))


def _blind(plan: Plan, dice: random.Random) -> Plan:
    """A driver loses its rights for long, and a person stops the job meanwhile."""
    at = round(dice.uniform(30, 120), 1)
    more = replace(plan, machines=tuple(replace(one, rights=True, dies=0.0) for one in _machines(plan, 2)), faults=())
    events = (Event(at, "blind", dice.randrange(2), 1200.0), Event(at + dice.choice((5.0, 60.0, 130.0)), "stop"))
    return _with(more, *events)


def _back_off(plan: Plan, dice: random.Random) -> Plan:
    """Rights come back during a long back-off, and a person stops the job before that is over."""
    at, seconds = round(dice.uniform(20, 150), 1), dice.choice((160.0, 330.0, 650.0))
    alone = replace(plan, machines=(replace(plan.machines[0], dies=0.0),), faults=())
    kept = tuple(one for one in plan.events if one.at + one.seconds < at)
    events = (Event(at, "no rights", 0, seconds), Event(at + seconds + 2.0, "stop", dice.randrange(2)))
    return _with(replace(alone, events=kept), *events)


def _forgotten(plan: Plan, dice: random.Random) -> Plan:
    """A person forgets a job between two attempts on a TPU VM that is gone."""
    job = replace(plan.jobs[0], on=True, slices=1, mistake=0.0, seconds=600.0)
    at, machines = round(dice.uniform(60, 200), 1), tuple(replace(one, renews=True) for one in plan.machines)
    events = [Event(at, "preempt")]
    events += [Event(round(at + dice.uniform(0, 120), 1), "forget") for _ in range(3)]
    return _with(replace(plan, jobs=(job,), machines=machines, faults=()), *events)


def _blocked(plan: Plan, dice: random.Random) -> Plan:
    """Port 22 is closed for all drivers while the job runs."""
    jobs = tuple(replace(one, seconds=600.0) for one in plan.jobs)
    return _with(replace(plan, jobs=jobs), Event(round(dice.uniform(100, 350), 1), "block ssh", 0, 400.0))


def _newer(plan: Plan, dice: random.Random) -> Plan:
    """A driver of a newer version drives the job for a while, and this version cannot read its record."""
    jobs = tuple(replace(one, seconds=600.0, on=False, mistake=0.0) for one in plan.jobs)
    machines = tuple(replace(one, rights=True) for one in plan.machines)
    event = Event(round(dice.uniform(60, 300), 1), "newer", 0, 900.0)
    return _with(replace(plan, jobs=jobs, machines=machines), event)


def _storm(plan: Plan, dice: random.Random) -> Plan:
    """Hardware is taken again and again."""
    jobs = tuple(replace(one, seconds=200.0, mistake=0.0) for one in plan.jobs)
    events = [Event(round(index * 100 + dice.uniform(60, 160), 1), "preempt", dice.randrange(4)) for index in range(16)]
    return _with(replace(plan, jobs=jobs), *events)


def _clones(plan: Plan, dice: random.Random) -> Plan:
    """Machines from one image: the same machine id and host name."""
    return _with(replace(plan, machines=_machines(plan, 2)), Event(0.0, "clones"))


def _power(plan: Plan, dice: random.Random) -> Plan:
    return _with(plan, Event(round(2 ** dice.uniform(0, 9), 1), "power loss", 0, 20.0))


def _disk(plan: Plan, dice: random.Random) -> Plan:
    return _with(plan, Event(round(dice.uniform(0, 200), 1), "full disk", dice.choice((0, 0, 1, 2))))


def _history(plan: Plan, dice: random.Random) -> Plan:
    """A job on 64 hosts that was preempted for weeks."""
    job = replace(plan.jobs[0], tpu="v4-512", slices=1, seconds=60.0, mistake=0.0, code=False, on=False)
    events = (Event(0.0, "long history"), Event(round(dice.uniform(100, 400), 1), "preempt"))
    return _with(replace(plan, jobs=(job,), machines=plan.machines[:2]), *events)


def _abandoned(plan: Plan, dice: random.Random) -> Plan:
    """All drivers die for good, or none does: hardware ends by itself after the limit, and not before."""
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
    """No host of the fleet can be reached for long, and the workers work on."""
    machines = tuple(replace(one, rights=True) for one in plan.machines)
    seconds = dice.choice(HOURS)
    return _with(replace(plan, machines=machines), Event(round(dice.uniform(60, 300), 1), "block ssh", 0, seconds))


def _neighbour(plan: Plan, dice: random.Random) -> Plan:
    """Another user has a fleet of the same name."""
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
