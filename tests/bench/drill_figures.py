"""Reliability of `tpu drill`: its corpus over three seeds, the effect of chance, and a program with known saves."""

from __future__ import annotations

import math
import random
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from rows import Row, at_least, at_most, counted

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from support import drill_corpus, drill_world
from support.drill_corpus import Outcome
from tpukit.drill import judging, offsets
from tpukit.drill.judging import judge
from tpukit.drill.trace import Report
from tpukit.drill.verdicts import Word

SEEDS = (0, 1, 2)
CAUSES_LEAST = 40
SERIES = 4000  # per kind
KNOWN_SAVE, KNOWN_ERROR, KNOWN_DRILLS = 0.2, 0.2, 13
NOISES = (1e-7, 1e-5, 1e-3, 1e-2, 0.05, 0.2, 0.5)
NOISY_PROGRAMS = 20
MISTAKES = ("data", "optimizer", "rng", "off by one")


def programs() -> list[Row]:
    """Drill every program of the corpus with each seed. A cause is right when all seeds report it."""
    table = drill_corpus.table()
    with tempfile.TemporaryDirectory() as folder:
        outcomes = list(drill_corpus.drill_all([(one, seed) for seed in SEEDS for one in table], Path(folder)))
    for outcome in outcomes:
        if not outcome.verdict_right or not outcome.cause_right:
            print(outcome.explained, flush=True)
    named = [one for one in table if all(of.cause_right for of in outcomes if of.program is one)]
    return [
        at_least(
            f"drill: verdicts right, {len(table)} programs × {len(SEEDS)} seeds", *_share(outcomes, "verdict_right")
        ),
        at_least("drill: programs whose cause is right with every seed", len(named), len(table), CAUSES_LEAST),
        at_most("drill: wrong causes", sum(one.cause_wrong for one in outcomes), "", 0, digits=0),
        counted("drill: programs side by side", sum(one.seconds for one in outcomes) / len(outcomes), " s each"),
    ]


def _share(outcomes: list[Outcome], what: str) -> tuple[int, int, int]:
    right = sum(getattr(one, what) for one in outcomes)
    return right, len(outcomes), len(outcomes)


def chance() -> list[Row]:
    """Measure the effect of chance on unrelated losses, and of noise on right and wrong programs."""
    rows = []
    for kind, draw in DRAWS.items():
        named = sum(_names_shift(draw, seed) for seed in range(SERIES))
        rows.append(
            at_most(
                f"drill: shifts named in {SERIES} unrelated losses, {kind}", 100 * named / SERIES, " %", 0.1, digits=2
            )
        )
    blamed, passed, told, tries = 0, 0, 0, 0
    for size in NOISES:
        for seed in range(NOISY_PROGRAMS):
            blamed += _verdict(seed, size, "") not in (Word.EXACT, Word.CANNOT_TELL)
            for mistake in MISTAKES:
                word = _verdict(seed, size, mistake)
                tries, passed = tries + 1, passed + (word is Word.EXACT)
                told += word not in (Word.EXACT, Word.CANNOT_TELL)
    right = len(NOISES) * NOISY_PROGRAMS
    return [
        *rows,
        at_most(f"drill: right programs blamed, noise of 1e-7 to 0.5, {right} runs", blamed, "", 0, digits=0),
        at_most(f"drill: wrong programs exact for noise, {tries} runs", passed, "", 0, digits=0),
        counted("drill: wrong programs found in spite of noise", 100 * told / tries, " %"),
    ]


def _white(rng: random.Random) -> float:
    return rng.gauss(0, 0.2)


def _heavy(rng: random.Random) -> float:
    return max(-50.0, min(50.0, 0.05 * math.tan(math.pi * (rng.random() - 0.5))))


DRAWS: Mapping[str, Callable[[random.Random], float]] = {"white": _white, "heavy-tailed": _heavy}


def _names_shift(draw: Callable[[random.Random], float], seed: int) -> bool:
    rng, resumed = random.Random(seed), 14 + seed % 27
    unbroken = {step: 3 * math.exp(-step / 20) + 1 + draw(rng) for step in range(1, 61)}
    later = {step: 3 * math.exp(-step / 20) + 1 + draw(rng) for step in range(61 - resumed, 61)}
    return offsets.by_loss(unbroken, later) is not None


def _verdict(seed: int, size: float, mistake: str) -> Word:
    """Return the verdict on a program whose losses vary by `size`, as a share, from run to run."""
    program, rng = drill_world.Program(seed, digests=False, mistake=mistake), random.Random(f"{seed}/{size}")

    def shaken(trace: tuple[Report, ...]) -> tuple[Report, ...]:
        return tuple(replace(one, loss=(one.loss or 0.0) * (1 + rng.gauss(0, size))) for one in trace)

    unbroken, broken = shaken(program.unbroken()), program.broken(25)
    broken = replace(broken, trace=shaken(broken.trace))
    noise = judging.noise(unbroken, [broken], [shaken(program.unbroken()) for _ in range(2)])
    return judge(unbroken, broken, noise).word


def saves() -> list[Row]:
    """Measure how long saves hold up a program that waits 0.2 s in each."""
    right = next(one for one in drill_corpus.table() if one.name == "right")
    env = {"SAVE_SECONDS": str(KNOWN_SAVE)}  # half-way through its file
    known = replace(right, losses=("kill-0-1",), job={**right.job, "env": env})
    with tempfile.TemporaryDirectory() as folder:
        cases = [(known, seed) for seed in range(KNOWN_DRILLS)]
        outcomes = list(drill_corpus.drill_all(cases, Path(folder), at_once=1))
    held = [one.result["costs"]["held_seconds"] or math.nan for one in outcomes]
    near = sum(abs(one - KNOWN_SAVE) <= KNOWN_ERROR * KNOWN_SAVE for one in held)
    return [
        at_least(f"drill: saves of {KNOWN_SAVE} s measured within {KNOWN_ERROR:.0%}", near, KNOWN_DRILLS, KNOWN_DRILLS),
        counted("drill: least that was measured", min(held), " s", digits=3),
        counted("drill: most that was measured", max(held), " s", digits=3),
    ]
