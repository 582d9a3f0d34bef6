"""The plan of one simulated world, drawn from a seed: machines, jobs, faults and events.

It is plain data that can be shrunk: removing a fault changes nothing else of the plan.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at one call of one machine."""

    machine: int
    call: int  # index among that machine's calls; below 0: among those that change something, from -1
    kind: str
    seconds: float = 0.0
    change: bool = False  # index among its calls that change something
    meanwhile: tuple[str, ...] = ()  # successive events while it is paused

    def __str__(self) -> str:
        what = "change" if self.change else "call"
        lasts = f" {self.seconds:g} s" if self.seconds else ""
        meanwhile = f", meanwhile {', '.join(self.meanwhile)}" if self.meanwhile else ""
        return f"machine-{self.machine} {what} {self.call}: {self.kind}{lasts}{meanwhile}"


@dataclass(frozen=True, slots=True)
class Event:
    """An event in the world at a given time."""

    at: float
    kind: str
    which: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        lasts = f" for {self.seconds:g} s" if self.seconds else ""
        return f"{self.at:g} s: {self.kind} {self.which}{lasts}"


@dataclass(frozen=True, slots=True)
class MachinePlan:
    tick: float = 10.0
    offset: float = 0.0
    drift: float = 0.0
    latency: float = 0.1
    rights: bool = True
    renews: bool = False  # leases are renewed in parallel to the rounds, as in `tpu serve`
    starts: float = 0.0  # when its driver starts
    dies: float = 0.0  # when it is lost for good; 0: never
    sweeps: float = 60.0


@dataclass(frozen=True, slots=True)
class JobPlan:
    at: float = 0.0
    seconds: float = 300.0
    mistake: float = 0.0  # seconds after which the program fails by a user error; 0: never
    tpu: str = "v4-8"
    slices: int = 1
    code: bool = True
    queued: bool = True
    on: bool = False  # on a TPU VM that a person named
    rule: str = "pre"
    restarts: int = 0
    bucket: bool = True  # it has a workdir in a bucket, which also holds its code


@dataclass(frozen=True, slots=True)
class SetPlan(JobPlan):
    """A JobSet that a person sends with kubectl."""

    pin: int = 0  # extra constraints of its pods on their nodes; see provisioner_scene.py


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    machines: tuple[MachinePlan, ...]
    jobs: tuple[JobPlan, ...]
    faults: tuple[Fault, ...] = ()
    events: tuple[Event, ...] = ()
    calm: float = 40 * MINUTE  # no faults or events after that time
    scene: str = "jobs"
    home: str = "sqlite"  # backend of the store
    weighs: bool = False  # the drivers are `tpu serve`, which writes what evictions cost

    @property
    def history(self) -> list[str]:
        shown = [f"{index}: {one}" for index, one in enumerate(self.machines)]
        return [
            f"{self.scene}, store in {self.home}" + (", evictions weighed" if self.weighs else ""),
            *shown,
            *map(str, self.jobs),
            *map(str, self.events),
            *map(str, self.faults),
        ]


SCENES = {"jobs": 50, "fleet": 15, "queue": 15, "gke": 9, "provisioner": 7, "local": 4}
FAULTS = {
    "pause": 30,  # the machine is suspended before it sends the request
    "stall": 10,  # only this process is stopped; its clock continues
    "lose": 12,  # the request never arrives
    "lose answer": 16,  # it arrives, but its answer is lost
    "late": 10,  # it arrives after the caller has given up
    "double": 8,  # it arrives twice
    "busy": 6,  # 429 or 500
    "crash": 10,  # the process dies before it sends the request
    "crash after": 10,  # the process dies before it receives the answer
    "cut store": 6,
    "cut cloud": 8,
    "cut ssh": 8,
    "deny cloud": 6,
}
EVENTS = {
    "preempt": 20,
    "lose host": 6,
    "repair": 5,
    "short": 6,
    "quota": 2,
    "block ssh": 8,
    "quiet host": 8,
    "foreign": 3,
    "stop": 8,
    "resume": 6,
    "forget": 5,
    "newer": 5,
    "clear state": 4,
    "clock ahead": 4,
    "no rights": 4,
}
PAUSES = (5.0, 20.0, 50.0, 120.0, 400.0)


def draw(seed: int) -> Plan:
    dice = random.Random(seed)
    machines = tuple(_machine(dice, index) for index in range(dice.choice((1, 2, 2, 2, 3))))
    jobs = tuple(_job(dice, index) for index in range(dice.choice((1, 1, 1, 2))))
    faults = sorted((_fault(dice, len(machines)) for _ in range(dice.choice((0, 1, 1, 2, 3, 5)))), key=_order)
    events = sorted((_event(dice) for _ in range(dice.choice((0, 1, 1, 2, 3)))), key=lambda one: one.at)
    last = max((one.at + one.seconds for one in events), default=0.0)
    calm = max([3 * MINUTE, last, *(one.dies for one in machines)])
    scene = dice.choices(list(SCENES), list(SCENES.values()))[0]
    where = home(dice)
    more = _rare(dice) if scene == "jobs" else ()
    calm = max([calm, *(one.at + one.seconds for one in more)])
    return Plan(seed, machines, jobs, tuple(faults), (*events, *more), calm, scene, where)


def _rare(dice: random.Random) -> tuple[Event, ...]:
    """Draw events that hit few jobs on TPU VMs; drawn last, so that the rest of a seed's plan does not change."""
    at, which = round(2 ** dice.uniform(3, 9), 1), dice.randrange(4)
    kind = dice.choices(("", "move store", "gone project", "forget"), (70, 12, 8, 10))[0]
    seconds = dice.choice((60.0, 200.0, 400.0)) if kind == "move store" else 0.0
    return (Event(at, kind, which, seconds),) if kind else ()


def home(dice: random.Random) -> str:
    return "firestore" if dice.random() < 0.3 else "sqlite"


def _machine(dice: random.Random, index: int) -> MachinePlan:
    made = MachinePlan(
        tick=dice.choice((5.0, 10.0, 20.0)),
        offset=dice.choice((0.0, 0.0, 0.0, 2.0, -2.0, 90.0, -3600.0)),
        drift=dice.choice((0.0, 0.0, 0.001, -0.001)),
        latency=dice.choice((0.05, 0.2, 1.0)),
        renews=dice.random() < 0.5,
        starts=0.0 if index == 0 else dice.choice((0.0, 30.0, 120.0, 300.0)),
    )
    if index == 0:  # the sender
        return replace(made, dies=dice.choice((0.0, 0.0, 0.0, 60.0, 200.0, 500.0)))
    return replace(made, rights=dice.random() > 0.08)


def _job(dice: random.Random, index: int) -> JobPlan:
    seconds = dice.choice((60.0, 200.0, 600.0))
    return JobPlan(
        at=0.0 if index == 0 else dice.uniform(0, 200),
        seconds=seconds,
        mistake=seconds / 2 if dice.random() < 0.1 else 0.0,
        tpu=dice.choice(("v4-8", "v4-8", "v4-16")),
        slices=dice.choice((1, 1, 1, 2)),
        code=dice.random() < 0.6,
        queued=dice.random() < 0.75,
        on=dice.random() < 0.2,
        restarts=dice.choice((0, 0, 1)),
        bucket=dice.random() < 0.7,
    )


def _fault(dice: random.Random, machines: int) -> Fault:
    kind = dice.choices(list(FAULTS), list(FAULTS.values()))[0]
    call = int(2 ** dice.uniform(1, 8))
    if kind in ("pause", "stall"):
        seconds = dice.choice(PAUSES)
    elif kind in ("lose", "lose answer", "busy", "double"):
        seconds = 0.0
    elif kind == "late":
        seconds = dice.uniform(1, 25)
    elif kind.startswith("crash"):
        seconds = dice.choice((5.0, 60.0, 300.0))
    else:
        seconds = dice.choice((30.0, 100.0, 600.0))
    machine = dice.randrange(machines)
    # Few calls change something, and a pause does harm before those.
    return (
        Fault(machine, int(2 ** dice.uniform(0, 4)) - 1, kind, seconds, True)
        if dice.random() < 0.5
        else Fault(machine, call, kind, seconds)
    )


def _event(dice: random.Random) -> Event:
    kind = dice.choices(list(EVENTS), list(EVENTS.values()))[0]
    lasting = {"short": (60, 600), "block ssh": (90, 1200), "quiet host": (20, 300, 900), "clock ahead": (100, 900)}
    lasting |= {"no rights": (100, 900), "newer": (300, 900)}
    seconds = float(dice.choice(lasting[kind])) if kind in lasting else 0.0
    return Event(round(2 ** dice.uniform(3, 9.6), 1), kind, dice.randrange(4), seconds)


def _order(fault: Fault) -> tuple[int, int]:
    return fault.machine, fault.call
