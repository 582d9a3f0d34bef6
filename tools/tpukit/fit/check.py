"""Check whether a job fits: run its program in the compiler's environment, or read the answer from the cache."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tpukit.catalogue import Slice
from tpukit.core import paths
from tpukit.core.errors import Invalid
from tpukit.fit import chips, environment, estimate, findings, memory, running
from tpukit.fit import program as programs
from tpukit.fit.estimate import Estimate
from tpukit.fit.findings import Finding
from tpukit.fit.memory import Memory
from tpukit.jobs import snapshots as stage
from tpukit.jobs.plan import Plan

FORMAT = 1
TIMEOUT = 1200.0
SMALL = 64 << 10
"""Bytes up to which two functions count as equally large when the step is chosen."""

COPY = 1 << 20
"""Bytes from which an argument that every chip holds whole counts as replicated."""

_OF_MEMORY = ("activations", "logits", "parameters", "optimizer", "other", "results", "beside")

Price = Callable[[Slice, int, object], tuple[float | None, str]]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Tried:
    """Result of a remedy for a job that does not fit. Figures are missing if it did not compile."""

    kind: str  # remat, sharding, batch, layout, chips, generation
    what: str
    verdict: str
    peak: float | None = None
    available: float | None = None
    step_seconds: float | None = None  # by roofline
    usd_per_step: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Result of `tpu fit` for a job on its slices."""

    job: str
    slice: str
    slices: int
    chips: int
    verdict: str  # fits, does not fit, does not compile, not carried
    step: str = ""  # the function chosen as the step, with its line
    ended: str = ""
    memory: Memory | None = None
    estimate: Estimate | None = None
    price: str = ""
    usd_per_hour: float | None = None
    findings: tuple[Finding, ...] = ()
    transfers: tuple[Mapping[str, Any], ...] = ()
    functions: tuple[Mapping[str, Any], ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    peak_memory: int = 0
    cached: bool = False
    loops: int = 0  # scans of the step
    replicated: bool = False  # every chip holds the whole of a large argument of the step
    tried: tuple[Tried, ...] = ()

    @property
    def can_run(self) -> bool:
        return self.verdict == "fits"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def check(
    plan: Plan,
    price: Price,
    say: Say,
    *,
    seconds: float = TIMEOUT,
    fresh: bool = False,
    stop: threading.Event | None = None,
    change: str = "",
) -> Report:
    """Return the report of a plan, or of its program with a change.

    `fresh` compiles even if the answer is cached. Setting `stop` ends a compile.
    """
    program = refuse(plan, change)
    file = _file(plan, program)
    answer = None if fresh else _read(file)
    cached = answer is not None
    if answer is None:
        python = environment.make(say)
        answer = running.carry(python, program, _world(plan), seconds, say, stop)
        _write(file, answer)
    return report(plan, answer, price, cached=cached)


def known(plan: Plan, price: Price) -> Report | None:
    """Return the cached report of a plan, or None if the job was not compiled as it is now."""
    if not _results().is_dir():
        return None
    try:
        answer = _read(_file(plan, programs.of(plan)))
    except Invalid:
        return None
    return report(plan, answer, price, cached=True) if answer is not None else None


def refuse(plan: Plan, change: str = "") -> programs.Program:
    """Return the program to compile. Raise Invalid if this machine or this job has none."""
    environment.check_platform()
    return programs.of(plan, change)


def report(plan: Plan, answer: Mapping[str, Any], price: Price, *, cached: bool = False) -> Report:
    """Return the report for an answer of the worker. Pure."""
    chip = chips.of(plan.slice)
    # Two devices share the memory of a chip in the generations that show both cores.
    share = plan.slice.devices_per_chip
    known = answer.get("programs", [])
    memories = [memory.of(one, chip.hbm_bytes / share) for one in known]
    step = choose(known)
    index = known.index(step) if step is not None else -1
    found = findings.of(answer, step, memories, plan.spec.slices)
    usd, note = price(plan.slice, plan.spec.slices, plan.spec.capacity)
    guess = None
    if step is not None and "hlo" in step:
        guess = estimate.of(step, chip, plan.chips, usd, estimate.tokens(step["arguments"]))
    return Report(
        job=plan.spec.name,
        slice=plan.slice.name,
        slices=plan.spec.slices,
        chips=plan.chips,
        verdict=_verdict(found, step),
        step=f"{step['name']} ({_short(step['line'], plan)})" if step else "",
        ended=answer["ended"],
        memory=memories[index] if step is not None else None,
        estimate=guess,
        price=note,
        usd_per_hour=usd,
        findings=tuple(_with_short_line(one, plan) for one in found),
        transfers=tuple(step["hlo"]["transfers"]) if step and "hlo" in step else (),
        functions=tuple(
            {"name": one["name"], "line": _short(one["line"], plan), "seconds": one["seconds"]} for one in known
        ),
        versions=answer.get("versions", {}),
        seconds=answer.get("seconds", 0.0),
        peak_memory=answer.get("peak_memory", 0),
        cached=cached,
        loops=step.get("loops", 0) if step else 0,
        replicated=step is not None and answer["devices"] > 1 and any(map(_is_copy, step["arguments"])),
    )


def choose(known: list[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the function that is most likely the training step: the one with the most arithmetic, then memory."""
    computing = [one for one in known if "memory" in one or "error" in one]
    if not computing:
        return None

    def weight(one: Mapping[str, Any]) -> tuple[float, float]:
        flops = one.get("work", {}).get("model", 0.0)
        return flops, sum(argument["bytes"] for argument in one["arguments"]) // SMALL

    return max(computing, key=weight)


def _is_copy(argument: Mapping[str, Any]) -> bool:
    return bool(argument["spec"]) and argument["bytes"] == argument["whole"] >= COPY


def _verdict(found: list[Finding], step: Mapping[str, Any] | None) -> str:
    stopping = [one.kind for one in found if one.stops]
    if not stopping:
        return "fits"
    if any(kind in _OF_MEMORY or kind.startswith("replicated") for kind in stopping):
        return "does not fit"
    if step is None or all(kind in ("no step", "program", "exit") for kind in stopping):
        return "not carried"
    return "does not compile"


def _world(plan: Plan) -> dict[str, str]:
    """Return the environment of the job's first host."""
    slices = {"MEGASCALE_NUM_SLICES": str(plan.spec.slices), "MEGASCALE_SLICE_ID": "0"} if plan.spec.slices > 1 else {}
    return {**plan.spec.env, **slices, "TPU_WORKER_ID": "0", "TPUKIT_SLICE_HOSTS": str(plan.slice.hosts)}


def _file(plan: Plan, program: programs.Program) -> Path:
    """Return the cache file of the answer, keyed by the code, command, chips, compiler and version of fit."""
    code = stage.inspect(Path(plan.spec.code), (paths.data(), paths.state())).digest if plan.spec.code else os.getpid()
    own = hashlib.sha256()
    for source in sorted(Path(__file__).with_name("worker").glob("*.py")):
        own.update(source.read_bytes())
    said = {**program.to_json(), "folder": str(code), "env": plan.spec.env, "format": FORMAT, "worker": own.hexdigest()}
    said["environment"] = hashlib.sha256(environment.CONSTRAINTS.read_bytes()).hexdigest()
    key = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
    return _results() / f"{key}.json"


def _results() -> Path:
    return paths.cache() / "fit" / "results"


def _read(file: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found


def _write(file: Path, answer: Mapping[str, Any]) -> None:
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(answer), encoding="utf-8")
        draft.rename(file)


def _short(line: str, plan: Plan) -> str:
    folder = str(Path(plan.spec.code or ".").resolve())
    return line.removeprefix(f"{folder}/")


def _with_short_line(one: Finding, plan: Plan) -> Finding:
    return Finding(one.kind, one.text, _short(one.line, plan), one.hint, one.stops)
