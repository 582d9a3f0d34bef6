"""Plans of worlds with a cluster, drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import replace

from simulation import plans
from simulation.plans import MINUTE, Event, Fault, JobPlan, MachinePlan, Plan, SetPlan

FAULTS = {
    "pause": 30,
    "stall": 10,
    "lose": 12,
    "lose answer": 16,
    "late": 10,
    "double": 8,
    "busy": 6,
    "crash": 10,
    "crash after": 10,
    "cut store": 6,
    "cut kube": 8,
    "deaf kube": 6,
    "deny kube": 6,
}
MEANWHILE = (
    ("stop",),
    ("stop", "resume"),
    ("delete jobset",),
    ("preempt",),
    ("evict",),
    ("forget",),
    ("move store",),
)
"""Acts of other drivers and people while a driver is paused before a change."""
EVENTS = {
    "preempt": 18,
    "lose peer": 10,
    "evict": 14,
    "close queue": 6,
    "delete jobset": 8,
    "foreign": 4,
    "stop": 12,
    "resume": 12,
    "forget": 6,
    "newer": 8,
    "move store": 7,
    "orphan": 5,
    "clear state": 4,
    "clock ahead": 4,
    "no rights": 5,
}
LASTING = {
    "close queue": (100, 900),
    "newer": (300, 900, 1500),
    "move store": (60, 200, 400),
    "clock ahead": (100, 900),
    "no rights": (100, 900),
    "evict": (0, 60, 900),
}


def draw(seed: int) -> Plan:
    dice = random.Random(seed)
    machines = tuple(_machine(dice, index) for index in range(dice.choice((1, 2, 2, 2, 3))))
    jobs = tuple(_job(dice, index) for index in range(dice.choice((1, 1, 1, 2))))
    faults = tuple(fault(dice, len(machines), FAULTS) for _ in range(dice.choice((0, 1, 1, 2, 3, 5))))
    faults += coincidence(dice, len(machines), MEANWHILE) + while_sending(dice)
    happens = tuple(event(dice, EVENTS, LASTING) for _ in range(dice.choice((0, 1, 1, 2, 3, 4))))
    last = max((one.at + one.seconds for one in happens), default=0.0)
    calm = max([3 * MINUTE, last, *(one.dies for one in machines)])
    return _rare(Plan(seed, machines, jobs, in_order(faults), by_time(happens), calm, "gke", plans.home(dice)))


def _rare(plan: Plan) -> Plan:
    """Let some plans weigh evictions, and some senders not use the cluster at first, so that code stays on its machine.

    Both have generators of their own, so the other plans do not change.
    """
    plan = replace(plan, weighs=random.Random(f"costs/{plan.seed}").random() < 0.2)
    dice = random.Random(f"rare/{plan.seed}")
    if dice.random() >= 0.06:
        return plan
    jobs = tuple(replace(one, code=True) for one in plan.jobs)
    count = max(2, len(plan.machines))
    machines = (*plan.machines, *[MachinePlan(tick=10.0, renews=True)] * (count - len(plan.machines)))
    machines = tuple(replace(one, rights=True, dies=0.0) for one in machines)
    events = (Event(0.0, "withhold", 0, dice.choice((100.0, 300.0))), *plan.events)
    return replace(plan, machines=machines, jobs=jobs, events=events, calm=max(plan.calm, 600.0))


POOL_FAULTS = {
    "pause": 34,
    "stall": 16,
    "lose": 10,
    "lose answer": 16,
    "late": 12,
    "double": 8,
    "busy": 6,
    "crash": 10,
    "crash after": 10,
    "cut kube": 10,
    "deaf kube": 8,
    "cut cloud": 8,
    "deaf cloud": 8,
    "deny cloud": 4,
}
POOL_MEANWHILE = (("delete jobset",), ("recreate jobset",), ("evict",), ("foreign pool",), ("foreign pod",))
POOL_EVENTS = {
    "preempt": 14,
    "evict": 16,
    "delete jobset": 12,
    "recreate jobset": 10,
    "short": 8,
    "quota": 5,
    "refuse": 6,
    "break": 6,
    "foreign pod": 8,
    "foreign pool": 4,
    "foreign name": 2,
    "close queue": 4,
    "clock ahead": 5,
    "no rights": 4,
}
POOL_LASTING = {
    "preempt": (30, 300),
    "evict": (30, 400, 900),
    "recreate jobset": (1, 20, 200),
    "short": (100, 900),
    "quota": (100, 600),
    "refuse": (60, 600),
    "foreign pod": (60, 600),
    "foreign pool": (300, 600),
    "close queue": (100, 900),
    "clock ahead": (100, 900),
    "no rights": (100, 600),
}


def draw_provisioner(seed: int) -> Plan:
    dice = random.Random(seed)
    machines = tuple(_replica(dice, index) for index in range(dice.choice((1, 2, 2, 2, 3))))
    sets = tuple(_set(dice, index) for index in range(dice.choice((1, 1, 2))))
    faults = tuple(fault(dice, len(machines), POOL_FAULTS) for _ in range(dice.choice((0, 1, 2, 3, 5))))
    faults += coincidence(dice, len(machines), POOL_MEANWHILE)
    kinds = range(dice.choice((0, 1, 1, 2, 3, 4)))
    happens = tuple(event(dice, POOL_EVENTS, POOL_LASTING, longest=10.8) for _ in kinds)
    happens += skewed(dice)
    last = max((one.at + one.seconds for one in happens), default=0.0)
    calm = max([3 * MINUTE, last, *(one.dies for one in machines)])
    return Plan(seed, machines, sets, in_order(faults), by_time(happens), calm, "provisioner")


LOCAL_FAULTS = {
    "stall": 40,
    "lose": 12,
    "lose answer": 16,
    "late": 8,
    "double": 6,
    "busy": 4,
    "crash": 14,
    "crash after": 14,
    "cut store": 8,
}
LOCAL_MEANWHILE = (("stop",), ("stop", "resume"), ("forget",), ("kill host",), ("move store",), ("reboot",))
LOCAL_EVENTS = {
    "kill host": 16,
    "reboot": 12,
    "reuse pid": 6,
    "stop": 12,
    "resume": 12,
    "forget": 6,
    "newer": 6,
    "move store": 6,
    "clock ahead": 6,
}
LOCAL_LASTING = {
    "reboot": (10, 60, 300),
    "newer": (300, 900),
    "move store": (60, 200, 400),
    "clock ahead": (100, 900),
}


def draw_local(seed: int) -> Plan:
    """Draw a plan. The drivers of one computer share its clock, so they are stopped rather than suspended."""
    dice = random.Random(seed)
    machines = tuple(_driver(dice, index) for index in range(dice.choice((1, 2, 2, 2, 3))))
    jobs = tuple(replace(plans._job(dice, index), code=False, on=False) for index in range(dice.choice((1, 1, 2))))
    faults = tuple(fault(dice, len(machines), LOCAL_FAULTS) for _ in range(dice.choice((0, 1, 1, 2, 3, 5))))
    faults += coincidence(dice, len(machines), LOCAL_MEANWHILE) + while_sending(dice)
    faults = tuple(replace(one, kind="stall") if one.kind == "pause" else one for one in faults)
    happens = tuple(event(dice, LOCAL_EVENTS, LOCAL_LASTING) for _ in range(dice.choice((0, 1, 1, 2, 3, 4))))
    last = max((one.at + one.seconds for one in happens), default=0.0)
    calm = max([3 * MINUTE, last, *(one.dies for one in machines)])
    return Plan(seed, machines, jobs, in_order(faults), by_time(happens), calm, "local", plans.home(dice))


def _driver(dice: random.Random, index: int) -> MachinePlan:
    return replace(plans._machine(dice, index), rights=True)


def _replica(dice: random.Random, index: int) -> MachinePlan:
    made = plans._machine(dice, index)
    dies = dice.choice((0.0, 0.0, 0.0, 100.0, 400.0))
    return replace(made, tick=dice.choice((5.0, 5.0, 10.0)), starts=0.0 if index == 0 else made.starts / 10, dies=dies)


def _set(dice: random.Random, index: int) -> SetPlan:
    return SetPlan(
        at=0.0 if index == 0 else dice.uniform(0, 300),
        seconds=dice.choice((60.0, 300.0, 900.0)),
        tpu=dice.choice(("v4-8", "v4-16")),
        slices=dice.choice((1, 1, 2)),
        restarts=0,
        pin=dice.choice((0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6)),
    )


def _machine(dice: random.Random, index: int) -> MachinePlan:
    return replace(plans._machine(dice, index), tick=dice.choice((5.0, 10.0, 20.0)))


def _job(dice: random.Random, index: int) -> JobPlan:
    made = plans._job(dice, index)
    seconds = 1500.0 if dice.random() < 0.2 else made.seconds
    return replace(made, on=False, queued=True, code=dice.random() < 0.25, seconds=seconds)


def coincidence(
    dice: random.Random, machines: int, meanwhile: tuple[tuple[str, ...], ...], rate: float = 0.4
) -> tuple[Fault, ...]:
    """Draw a pause that is longer than a lease, right before a change, and the events during it."""
    if dice.random() > rate:
        return ()
    change, kind = dice.choice((0, 0, 1, 1, 2, 3, 5)), dice.choice(("pause", "stall"))
    return (Fault(dice.randrange(machines), change, kind, dice.choice((120.0, 400.0)), True, dice.choice(meanwhile)),)


def while_sending(dice: random.Random) -> tuple[Fault, ...]:
    """Draw a lost answer to one of the first calls of the sending machine."""
    if dice.random() > 0.15:
        return ()
    kind = dice.choice(("lose answer", "lose answer", "late", "double", "crash after"))
    return (Fault(0, dice.randrange(1, 8), kind, 20.0 if kind in ("late", "crash after") else 0.0),)


def skewed(dice: random.Random) -> tuple[Event, ...]:
    """Draw a clock that is a day ahead while pools are created and one create fails, and is correct afterwards."""
    if dice.random() > 0.2:
        return ()
    at, which = round(dice.uniform(1, 60), 1), dice.randrange(4)
    fails = dice.choice(("short", "quota", "break", "evict"))
    return Event(at, "clock ahead", which, 400.0), Event(at + 5.0, fails, dice.randrange(4), 300.0)


def fault(dice: random.Random, machines: int, kinds: dict[str, int]) -> Fault:
    kind = dice.choices(list(kinds), list(kinds.values()))[0]
    call = -dice.randrange(1, 12) if dice.random() < 0.4 else int(2 ** dice.uniform(1, 8.5))
    if kind in ("pause", "stall"):
        seconds = dice.choice(plans.PAUSES)
    elif kind in ("lose", "lose answer", "busy", "double"):
        seconds = 0.0
    elif kind == "late":
        seconds = dice.uniform(1, 25)
    elif kind.startswith("crash"):
        seconds = dice.choice((5.0, 60.0, 300.0))
    else:
        seconds = dice.choice((30.0, 100.0, 600.0))
    return Fault(dice.randrange(machines), call, kind, seconds)


def event(
    dice: random.Random, kinds: dict[str, int], lasting: dict[str, tuple[int, ...]], longest: float = 9.6
) -> Event:
    kind = dice.choices(list(kinds), list(kinds.values()))[0]
    seconds = float(dice.choice(lasting[kind])) if kind in lasting else 0.0
    return Event(round(2 ** dice.uniform(3, longest), 1), kind, dice.randrange(4), seconds)


def in_order(faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    return tuple(sorted(faults, key=lambda one: (one.machine, one.call)))


def by_time(happens: tuple[Event, ...]) -> tuple[Event, ...]:
    return tuple(sorted(happens, key=lambda one: one.at))
