"""Slices to compare a job on, and the order in which they are compiled. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tpukit import catalogue
from tpukit.core.errors import Invalid, Problem

LIMIT = 256
"""Most chips of a shape, unless the job itself has more or `--chips` gives another number."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A number of slices of one kind."""

    tpu: str
    slices: int
    chips: int  # of all slices

    def __str__(self) -> str:
        return f"{self.slices} x {self.tpu}"


Ladder = tuple[Shape, ...]
"""Shapes of one generation and one number of slices, smallest first. A larger one has more memory for the same job."""


def ladders(tries: Sequence[str], counts: Sequence[int], limit: int) -> list[Ladder]:
    """Return the ladders for slices (`v5e-16`) and generations (`v5e`). A named slice is a ladder of its own.

    A generation gives its slices with 1, 2, 4, ... chips, up to `limit` chips in all slices together.
    """
    found: list[Ladder] = []
    for name in tries:
        generation = catalogue.generation(name)
        for count in counts:
            if generation is None:
                one = catalogue.find(name)
                found.append((Shape(one.name, count, one.chips * count),))
            else:
                found.append(tuple(_of_generation(generation, count, limit)))
    return [one for one in dict.fromkeys(found) if one]


def numbers(text: str, option: str) -> list[int]:
    """Return whole numbers from 1 that are separated by commas."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if wrong := [word for word in words if not word.isdecimal() or int(word) < 1]:
        raise Invalid(Problem(option, f"{', '.join(wrong)} must be a number from 1", f"write {option} 1,2,4"))
    return [int(word) for word in words]


def following(ladder: Ladder, verdicts: Mapping[Shape, str], running: Collection[Shape] = ()) -> list[Shape]:
    """Return the shapes of a ladder to compile next; none while a result must be awaited, or at the end.

    Bisection finds the smallest shape that fits; then the larger ones follow, because only compiling shows their time.
    A shape that lacks memory excludes all smaller ones. One that does not compile, because a size does not divide for
    example, says nothing about others.
    """
    too_small = max((one.chips for one in ladder if verdicts.get(one) == "does not fit"), default=0)
    smallest = min((one.chips for one in ladder if verdicts.get(one) == "fits"), default=None)
    left = [one for one in ladder if one not in verdicts and one.chips > too_small]
    below = [one for one in left if smallest is None or one.chips < smallest]
    if below:
        return [] if any(one in running for one in ladder) else [below[len(below) // 2]]
    return [one for one in left if one not in running]


def excluded(ladder: Ladder, verdicts: Mapping[Shape, str]) -> dict[Shape, Shape]:
    """Return the shapes that were not compiled, each with the larger shape that does not fit."""
    failed = [one for one in ladder if verdicts.get(one) == "does not fit"]
    return {
        one: min((large for large in failed if large.chips > one.chips), key=lambda large: large.chips)
        for one in ladder
        if one not in verdicts and any(large.chips > one.chips for large in failed)
    }


def room(free: int, need: int, running: int, cores: int) -> int:
    """Return the number of compiles that may start now. `need` is the memory of one; 0 until the first has ended."""
    if not running:
        return max(1, min(cores, free // need)) if need else 1
    if not need:
        return 0
    # Running compiles may still grow to their full size.
    return max(0, min(cores - running, (free - running * need) // need))


def _of_generation(generation: str, count: int, limit: int) -> Iterable[Shape]:
    sizes = {one.chips: one.name for one in reversed(catalogue.slices()) if one.generation == generation}
    for chips in sorted(sizes):
        if chips & (chips - 1) == 0 and chips * count <= limit:
            yield Shape(sizes[chips], count, chips * count)
