"""Shapes to compare, and the order of their compiles."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit.core.errors import Invalid
from tpukit.fit import shapes
from tpukit.fit.shapes import Ladder, Shape


def ladder(length: int) -> Ladder:
    return tuple(Shape(f"v5p-{2 << rung}", 1, 1 << rung) for rung in range(length))


def search(rungs: Ladder, verdicts: list[str]) -> dict[Shape, str]:
    """Compile one shape after the other until the ladder is finished."""
    answers, seen = dict(zip(rungs, verdicts, strict=True)), {}
    while following := shapes.following(rungs, seen):
        assert following[0] not in seen
        seen[following[0]] = answers[following[0]]
    return seen


@given(length=st.integers(1, 12), small=st.integers(0, 12))
def test_search_finds_the_smallest_that_fits_and_all_larger_ones_with_few_failures(length: int, small: int) -> None:
    rungs, failing = ladder(length), min(small, length)
    seen = search(rungs, ["does not fit"] * failing + ["fits"] * (length - failing))
    assert [one for one, verdict in seen.items() if verdict == "fits"] != [] or failing == length
    assert {one for one in rungs if seen.get(one) == "fits"} == set(rungs[failing:])
    assert sum(verdict == "does not fit" for verdict in seen.values()) <= math.log2(length) + 1
    assert set(shapes.excluded(rungs, seen)) == set(rungs) - set(seen)


@given(st.lists(st.sampled_from(["fits", "does not compile", "unknown"]), min_size=1, max_size=10))
def test_shape_that_does_not_compile_excludes_no_other(verdicts: list[str]) -> None:
    rungs = ladder(len(verdicts))
    assert search(rungs, verdicts) == dict(zip(rungs, verdicts, strict=True))


def test_search_waits_for_the_answer_that_halves_the_rest() -> None:
    rungs = ladder(8)
    (middle,) = shapes.following(rungs, {})
    assert shapes.following(rungs, {}, [middle]) == []
    assert shapes.following(rungs, dict.fromkeys(rungs[:5], "fits"), [rungs[5]]) == list(rungs[6:])


def test_generation_gives_its_doubling_sizes_up_to_the_limit() -> None:
    (found,) = shapes.ladders(["v5litepod"], [2], 64)
    assert [str(one) for one in found] == [f"2 x v5litepod-{chips}" for chips in (1, 4, 8, 16, 32)]
    assert [one.chips for one in found] == [2, 8, 16, 32, 64]


def test_named_slices_are_compiled_whatever_others_show() -> None:
    found = shapes.ladders(["v5e-4", "v5p-8", "v5litepod-4"], [1, 2], 1)
    assert [[str(one) for one in rung] for rung in found] == [
        ["1 x v5litepod-4"],
        ["2 x v5litepod-4"],
        ["1 x v5p-8"],
        ["2 x v5p-8"],
    ]


def test_unknown_slice_is_refused_with_the_nearest() -> None:
    with pytest.raises(Invalid, match="v5e-17"):
        shapes.ladders(["v5e-17"], [1], 256)


@pytest.mark.parametrize("text", ["1,x", "0", "-1", "1.5"])
def test_numbers_of_slices_must_be_numbers(text: str) -> None:
    with pytest.raises(Invalid, match="must be a number from 1"):
        shapes.numbers(text, "--slices")


@pytest.mark.parametrize(
    ("free", "need", "running", "room"),
    [(8, 0, 0, 1), (8, 0, 1, 0), (8, 2, 0, 2), (8, 2, 1, 1), (3, 2, 1, 0), (1, 2, 0, 1), (99, 1, 2, 0)],
)
def test_compiles_run_side_by_side_as_memory_allows(free: int, need: int, running: int, room: int) -> None:
    assert shapes.room(free, need, running, cores=2) == room
