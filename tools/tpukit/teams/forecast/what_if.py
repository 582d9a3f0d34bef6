"""Queues as they would be with more slices, another quota or priority, or without a job. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tpukit.core.errors import Invalid, NotFound, Problem
from tpukit.jobs.render import pool_kinds
from tpukit.jobs.render.kueue import COMMON, PRIORITIES
from tpukit.jobs.render.pool_kinds import ON_DEMAND, PoolKind
from tpukit.teams.forecast.line import Key, Queue
from tpukit.teams.forecast.reading import Picture
from tpukit.teams.workloads import CHIPS

_PRIORITIES = {one.name: one.value for one in PRIORITIES}


@dataclass(frozen=True, slots=True)
class Slices:
    """Slices of one kind, more or fewer than there are."""

    kind: PoolKind
    count: int
    team: str = ""  # whose quota; "": the common queue's


def parse_slices(text: str, option: str) -> Slices:
    """Read `v4-16=1`, `v4-16:spot=-2`, or `TEAM/v4-16=1`."""
    left, _, count = text.rpartition("=")
    team, _, tpu = left.rpartition("/")
    if not count.lstrip("+-").isdecimal() or len(count) > 6 or not tpu:
        hint = f"write TPU=NUMBER or TEAM/TPU=NUMBER, such as {option} v4-16=1"
        raise Invalid(Problem(option, f"{text!r} is not a number of slices", hint))
    shape, capacity = pool_kinds.parse(tpu, option)
    return Slices(PoolKind(shape, capacity or ON_DEMAND), int(count), team)


def with_slices(picture: Picture, more: Slices) -> Picture:
    """Return the queues with more slices in all, which the common queue or one team gets."""
    name = more.team or COMMON
    queue = _queue(picture, name)
    if (more.kind.flavor, CHIPS) not in queue.own:
        hint = "`tpu team queue` shows what each queue has"
        raise Invalid(Problem("--slices", f"queue {name} has no {more.kind}", hint))
    return _with(picture, _raised(queue, more.kind, more.count))


def with_quota(picture: Picture, moved: Slices) -> Picture:
    """Return the queues after a team's quota was set: the difference is taken from the common queue."""
    if not moved.team or moved.count < 0:
        raise Invalid(Problem("--quota", "the quota of a team is missing", "write --quota TEAM/v4-16=2"))
    queue, common = _queue(picture, moved.team), _queue(picture, COMMON)
    key = moved.kind.flavor, CHIPS
    before = round(queue.own.get(key, 0.0) / moved.kind.shape.chips)
    left = round(common.own.get(key, 0.0) / moved.kind.shape.chips)
    if moved.count - before > left:
        hint = f"give it at most {before + left}, or add slices with --slices {moved.kind.written}=1"
        raise Invalid(Problem("--quota", f"the common queue has {left} × {moved.kind} to give", hint))
    picture = _with(picture, _raised(queue, moved.kind, moved.count - before))
    return _with(picture, _raised(common, moved.kind, before - moved.count))


def with_priority(picture: Picture, text: str) -> Picture:
    """Return the queues with another priority of a job: `TEAM/JOB=high`."""
    wanted, _, priority = text.rpartition("=")
    if priority not in _PRIORITIES:
        hint = f"write JOB=PRIORITY with one of {', '.join(_PRIORITIES)}"
        raise Invalid(Problem("--priority", f"{text!r} names no priority", hint))
    name = job_name(picture, wanted)
    seen = picture.jobs[name]
    entry = replace(seen.entry, priority=_PRIORITIES[priority])
    return replace(picture, jobs={**picture.jobs, name: replace(seen, entry=entry)})


def without(picture: Picture, job: str) -> Picture:
    name = job_name(picture, job)
    return replace(picture, jobs={key: one for key, one in picture.jobs.items() if key != name})


def job_name(picture: Picture, text: str) -> str:
    """Return the full name of a job in the queues, from TEAM/JOB or JOB."""
    found = [name for name in picture.jobs if text in (name, name.rpartition("/")[2])]
    if len(found) == 1:
        return found[0]
    if found:
        raise NotFound(f"{text} may be one of several jobs", hint=f"write one of {', '.join(sorted(found))}")
    raise NotFound(f"there is no job {text} in the queues", hint="`tpu team queue` lists them")


def _queue(picture: Picture, name: str) -> Queue:
    found = picture.queues.get(name)
    if found is None:
        raise NotFound(f"there is no queue {name}", hint="`tpu team queue` shows all queues")
    return found


def _with(picture: Picture, queue: Queue) -> Picture:
    return replace(picture, queues={**picture.queues, queue.name: queue})


def _raised(queue: Queue, kind: PoolKind, count: int) -> Queue:
    """Return a queue with more of one kind: chips, with the CPUs and memory of their machines in proportion."""
    chips = queue.own.get((kind.flavor, CHIPS), 0.0)
    more = float(kind.shape.chips * count)

    def amount(key: Key) -> float:
        if key[0] != kind.flavor:
            return 0.0
        if key[1] == CHIPS:
            return max(more, -chips)
        # An own quota of none says nothing about the machines: CPUs and memory then never run out before the chips.
        return queue.own[key] / chips * more if chips else 1e18 if more > 0 else 0.0

    extra = {key: amount(key) for key in queue.own}
    return replace(queue, own=_plus(queue.own, extra), most=_plus(queue.most, extra))


def _plus(amounts: Mapping[Key, float], extra: Mapping[Key, float]) -> dict[Key, float]:
    return {key: max(0.0, number + extra.get(key, 0.0)) for key, number in amounts.items()}
