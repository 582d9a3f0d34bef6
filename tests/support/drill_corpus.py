"""The drill's corpus: programs with planted mistakes, and the verdicts of `tpu drill`.

python drill_corpus.py [--seed N] [PROGRAM ...]     print a line with the verdict for each program
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

TESTS = Path(__file__).resolve().parents[1]
PROGRAMS = TESTS / "fixtures" / "drill_programs"
AT_ONCE = 3


@dataclass(frozen=True)
class Program:
    """One row of the table."""

    name: str
    kind: str
    verdicts: tuple[str, ...]
    causes: tuple[str, ...]  # at least one of these must be named, and no others; empty: none
    losses: tuple[str, ...]
    job: Mapping[str, Any]

    @property
    def mistake(self) -> str:
        """The mistake that $MISTAKE plants, for programs that are one file with several."""
        _kind, _, mistake = self.name.partition(" ")
        return "" if mistake.startswith("right") or not mistake else mistake

    @property
    def is_right(self) -> bool:
        return self.verdicts == ("exact",)


def table() -> list[Program]:
    """Return all programs."""
    kinds = yaml.safe_load((PROGRAMS / "table.yaml").read_text(encoding="utf-8"))
    return [
        _program(name, kind, about, row) for kind, about in kinds.items() for name, row in about["programs"].items()
    ]


def _program(name: str, kind: str, about: Mapping[str, Any], row: Mapping[str, Any]) -> Program:
    command = [word.replace("{program}", name) for word in about["command"]]
    job = {"command": [sys.executable if word == "python" else word for word in command], "tpu": about["tpu"]}
    verdicts, causes, losses = (tuple(row.get(field, ())) for field in ("verdict", "cause", "losses"))
    return Program(name, kind, verdicts, causes, losses, job | row.get("job", {}))


@dataclass(frozen=True)
class Outcome:
    """The result of the drill for a program with one seed."""

    program: Program
    seed: int
    verdict: str
    causes: frozenset[str]
    seconds: float
    result: Mapping[str, Any]

    @property
    def verdict_right(self) -> bool:
        return self.verdict in self.program.verdicts

    @property
    def cause_right(self) -> bool:
        return not self.cause_wrong and bool(self.causes) == bool(self.program.causes)

    @property
    def cause_wrong(self) -> bool:
        """Return whether a cause was named that does not apply to this program. Naming no cause is not wrong."""
        return not self.causes.issubset(self.program.causes)

    @property
    def explained(self) -> str:
        """Return the result for each loss."""
        lines = [f"    {one['loss']}: {one['verdict']}: {one['text']}" for one in self.result["losses"]]
        lines += [f"    unbroken: {one['verdict']}: {one['text']}" for one in self.result["findings"]]
        return "\n".join([str(self), *lines])

    def __str__(self) -> str:
        words = [
            "verdict" if self.verdict_right else "VERDICT WRONG",
            "CAUSE WRONG" if self.cause_wrong else "cause" if self.cause_right else "silent",
        ]
        named = ", ".join(sorted(self.causes)) or "-"
        head = f"{self.program.name:28} {self.seed}  {' '.join(words):22} {self.seconds:5.1f} s"
        return f"{head}  {self.verdict}; {named}"


def drill(program: Program, seed: int, folder: Path) -> Outcome:
    """Drill one program in its own home, so that parallel drills are isolated."""
    folder.mkdir(parents=True)
    env = {"SEED": str(seed), "MISTAKE": program.mistake, "ELSEWHERE": str(folder / "elsewhere")}
    job = {"name": "drilled", "code": str(PROGRAMS), **program.job}
    job["env"] = {**env, **job.get("env", {})}
    (folder / "job.yaml").write_text(json.dumps(job), encoding="utf-8")
    argv = [sys.executable, "-m", "tpukit", "drill", "job.yaml", "--json", "--seed", str(seed)]
    argv += [word for loss in program.losses for word in ("--only", loss)]
    own = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": str(TESTS.parent / "tools"),
        "TPUKIT_HOME": str(folder / "home"),
        "TPUKIT_SETTINGS": str(folder / "no-settings.yaml"),
    }
    before = time.monotonic()
    done = subprocess.run(argv, cwd=folder, env=own, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise AssertionError(f"{program.name}: {done.stderr}")
    result = json.loads(done.stdout)
    causes = frozenset(advice["cause"] for one in [*result["losses"], result] for advice in one.get("advice", ()))
    return Outcome(program, seed, result["verdict"], causes, time.monotonic() - before, result)


def drill_all(cases: Iterable[tuple[Program, int]], folder: Path, at_once: int = AT_ONCE) -> Iterator[Outcome]:
    """Drill programs in parallel; yield the outcomes in their order."""
    with ThreadPoolExecutor(at_once) as pool:
        yield from pool.map(
            lambda case: drill(case[0], case[1], folder / f"{case[0].name}-{case[1]}".replace(" ", "-")), cases
        )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, action="append", default=[])
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args(argv)
    chosen = [one for one in table() if not options.names or any(one.name.startswith(name) for name in options.names)]
    cases = [(one, seed) for seed in options.seed or [0] for one in chosen]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for outcome in drill_all(cases, Path(folder), options.at_once):
            right = outcome.verdict_right and outcome.cause_right
            print(outcome if right else outcome.explained, flush=True)
            wrong += not outcome.verdict_right or outcome.cause_wrong
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
