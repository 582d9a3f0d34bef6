"""Plan the losses of a drill from the unbroken run, the most informative first. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tpukit.core.errors import Invalid, Problem
from tpukit.drill.losses import Again, Damage, Loss, What, When


@dataclass(frozen=True, slots=True)
class Unbroken:
    """Results of the unbroken run that a plan needs."""

    slices: int
    hosts: int  # of one slice
    steps: tuple[int, ...]  # reported, in order
    saves: tuple[int, ...]  # steps of the saves that were seen
    seconds: float = 0.0
    largest_file: int = 0  # of a checkpoint, in bytes
    largest_log: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    losses: tuple[Loss, ...]
    left_out: tuple[tuple[str, str], ...] = ()  # name, why


NEED_SAVES = (
    "save-half",
    "twice",
    "twice-saved",
    "before-first-save",
    "after-save",
    "truncated-newest",
    "corrupt-newest",
    "save-begins",
    "save-ends",
    "disk-full",
)
COST = 1.7
"""Length of a broken run as a multiple of the unbroken one, until one is measured."""


def plan(
    run: Unbroken,
    seed: int = 0,
    only: Sequence[str] = (),
    budget: float = 0.0,
    refused: Callable[[Loss], str] = lambda loss: "",
) -> Plan:
    """Plan the losses of a drill.

    `only` has names of losses or their prefixes. `budget` is the seconds for all broken runs; 0 runs all. `refused`
    returns why a loss cannot happen at the site; empty if it can.
    """
    check_only(only, run.slices, run.hosts)
    known = every(run, seed)
    losses = [loss for loss in known if not refused(loss)]
    left_out = [*impossible(run), *((loss.name, why) for loss in known if (why := refused(loss)))]
    if only:
        losses = [loss for loss in losses if any(_means(word, loss.name) for word in only)]
        left_out = [(name, why) for name, why in left_out if any(_means(word, name) for word in only)]
    if budget and run.seconds:
        most = max(1, int(budget / (COST * run.seconds)))
        left_out += [(loss.name, "the budget is too small") for loss in losses[most:]]
        losses = losses[:most]
    return Plan(tuple(losses), tuple(left_out))


def check_only(only: Sequence[str], slices: int, hosts: int) -> None:
    """Refuse words that begin no loss of a job with so many slices and hosts in each."""
    steps = tuple(range(1, 61))
    run = Unbroken(slices, hosts, steps, (10, 20, 30, 40, 50), largest_file=2, largest_log=0)
    names = sorted(loss.name for loss in every(run, 0))
    if unknown := [word for word in only if not any(_means(word, name) for name in names)]:
        hint = f"write one of {', '.join(names)}, or how some of them begin"
        raise Invalid([Problem("--only", f"there is no loss {word!r}", hint) for word in unknown])


def every(run: Unbroken, seed: int) -> list[Loss]:
    """Return all losses that this job can suffer."""
    if not run.steps:
        return []

    # One generator for each name, so that the steps do not depend on the other losses in the plan.
    def chance(name: str) -> random.Random:
        return random.Random(f"{seed}/{name}")  # noqa: S311  # repeatable, chooses a step

    def between(name: str) -> int:
        return _between_saves(run, chance(name))

    def saving(name: str) -> int:
        return _before_a_save(run, chance(name))

    everyone = [(slice_, index) for slice_ in range(run.slices) for index in range(run.hosts)]
    last = everyone[-1]
    all_hosts = tuple(everyone)
    last_slice = tuple(host for host in everyone if host[0] == last[0])
    # Hosts that are left running may finish a save, so all hosts of a slice are lost at once.
    slice_0 = tuple(host for host in everyone if host[0] == 0)
    names = [f"kill-{slice_}-{index}" for slice_, index in everyone]
    kills = [Loss(name, What.KILL, (host,), step=between(name)) for name, host in zip(names, everyone, strict=True)]
    wanted = [kills[-1], Loss("term", What.TERM, (last,), step=max(between("term"), _middle(run, between("term"))))]
    if run.saves:
        wanted += [
            Loss("save-half", What.KILL, slice_0, When.SAVE_HALF, saving("save-half")),
            Loss("twice", What.KILL, (last,), step=between("twice"), again=Again.SAME_STEP),
            Loss("twice-saved", What.KILL, (last,), step=_second_save(run) + 1, again=Again.SAVED),
            Loss("before-first-save", What.KILL, (last,), step=_before_first_save(run)),
            Loss("after-save", What.KILL, (last,), When.SAVED, saving("after-save")),
            # No host may write while a file is damaged.
            Loss("truncated-newest", What.KILL, all_hosts, When.SAVED, _second_save(run), damage=Damage.TRUNCATE),
            Loss("corrupt-newest", What.KILL, all_hosts, When.SAVED, _second_save(run), damage=Damage.CORRUPT),
        ]
    wanted += [Loss("attempt", What.KILL, (last,), step=between("attempt"), again=Again.STARTING)]
    wanted += kills[:1] if len(kills) > 1 else []
    wanted += [Loss("hang", What.HANG, (last,), step=between("hang"))]
    wanted += [Loss("preempt", What.PREEMPT, last_slice, step=_middle(run, between("preempt")))]
    if run.slices > 1 and run.hosts > 1:  # a slice of one host is lost by killing that host
        for slice_ in reversed(range(run.slices)):
            hosts = tuple(host for host in everyone if host[0] == slice_)
            wanted.append(Loss(f"slice-{slice_}", What.KILL, hosts, step=between(f"slice-{slice_}")))
    if run.saves:
        wanted += [
            Loss("save-begins", What.KILL, slice_0, When.SAVE_BEGINS, saving("save-begins")),
            Loss("save-ends", What.KILL, slice_0, When.SAVE_ENDS, saving("save-ends")),
        ]
        if not _no_full_disk(run):
            wanted.append(Loss("disk-full", What.DISK_FULL, (everyone[0],), step=saving("disk-full")))
    return [*wanted, *kills[1:-1]]


def impossible(run: Unbroken) -> list[tuple[str, str]]:
    """Return the losses that cannot be tried with this job, and why."""
    if not run.steps:
        return [("everything", "the program reports no step: there is nothing to compare")]
    if not run.saves:
        return [(name, "no save was seen in the workdir") for name in NEED_SAVES]
    return [("disk-full", why)] if (why := _no_full_disk(run)) else []


def _no_full_disk(run: Unbroken) -> str:
    if run.largest_file // 2 <= run.largest_log:
        return "no file of a checkpoint is larger than the logs, which would fail first"
    return ""


def _means(word: str, name: str) -> bool:
    return bool(word) and name.startswith(word)


def _middle(run: Unbroken, step: int) -> int:
    """Return the middle of the save interval around `step`: immediately after a save there is nothing to save."""
    begin = max((save for save in run.saves if save <= step), default=run.steps[0])
    end = min((save for save in run.saves if save > step), default=run.steps[-1])
    return begin + (end - begin) // 2


def _between_saves(run: Unbroken, chance: random.Random) -> int:
    """Return a step in the first half of an interval between two saves.

    Skip the first and the last interval if there are others.
    """
    first, last = run.steps[0], run.steps[-1]
    bounds = [save for save in run.saves if first < save < last]
    if not bounds:
        return first + (last - first) // 2
    choices = bounds[: max(1, len(bounds) * 2 // 3)]
    begin = chance.choice(choices)
    end = min((save for save in run.saves if save > begin), default=last)
    return begin + 1 + chance.randrange(max(1, (end - begin) // 2))


def _before_a_save(run: Unbroken, chance: random.Random) -> int:
    """Return a step whose next save is neither the first, if there are several, nor one of the last."""
    return max(run.steps[0], chance.choice(run.saves[: max(1, len(run.saves) // 2)]))


def _second_save(run: Unbroken) -> int:
    """Return a step at which an older checkpoint exists to fall back to, if the program retains one."""
    return max(run.steps[0], run.saves[0])


def _before_first_save(run: Unbroken) -> int:
    inner = [step for step in run.steps if step < run.saves[0]]
    return inner[len(inner) // 4] if inner else run.steps[0]
