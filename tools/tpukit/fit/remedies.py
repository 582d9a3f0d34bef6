"""Remedies for a job that does not fit, each tried out by a compile. Pure up to `try_out`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tpukit import catalogue
from tpukit.core.errors import Invalid, TpukitError
from tpukit.core.quantities import counted
from tpukit.fit import shapes
from tpukit.fit.check import Report, Tried
from tpukit.jobs.plan import Plan
from tpukit.jobs.spec import JobSpec

_BATCH = re.compile(r"batch", re.IGNORECASE)
_SPLIT = re.compile(r"(?:^|[-_.])(?:tensor|tp|model)(?:[-_]parallel(?:ism|_size)?|[-_]size)?$", re.IGNORECASE)
_ROUNDS = 3
"""Most compiles of one remedy: batches of a half, a quarter and an eighth; slices of 2, 4 and 8 times the chips."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A change to the job or its program, and the plan to compile for it."""

    kind: str  # remat, sharding, batch, layout, chips, generation
    what: str
    plan: Plan
    change: str = ""


Compile = Callable[[Plan, str], Report]


def of(plan: Plan, report: Report) -> list[list[Trial]]:
    """Return the remedies to try, each as trials of which the first that fits is enough."""
    if report.verdict != "does not fit":
        return []
    kinds = {one.kind for one in report.findings if one.stops}
    copies = any(kind.startswith("replicated") for kind in kinds)
    found: list[list[Trial]] = []
    if kinds & {"activations", "logits"}:
        found += [_remat(plan, report), _batches(plan), _layouts(plan)]
    if report.replicated:
        what = "split arrays that every chip holds whole over all chips of the mesh (out_shardings of their function)"
        found.append([Trial("sharding", what, plan, "sharding")])
    if not copies:
        found.append(_larger(plan))
    found.append(_other_generations(plan))
    return [one for one in found if one]


def untried(plan: Plan, report: Report) -> list[Tried]:
    """Return the remedies that cannot be tried, each with its reason."""
    kinds = {one.kind for one in report.findings if one.stops}
    if report.verdict == "does not fit" and kinds & {"activations", "logits"} and not _batches(plan):
        what = "a smaller batch (no flag and no `config` of the job names a batch; set it there)"
        return [Tried("batch", what, "not tried")]
    return []


def try_out(remedies: Sequence[Sequence[Trial]], compile_for: Compile) -> Iterator[Tried]:
    """Compile the trials, and yield the result of each. A remedy ends with its first trial that fits."""
    for trials in remedies:
        for trial in trials:
            try:
                report = compile_for(trial.plan, trial.change)
            except TpukitError as error:
                yield Tried(trial.kind, trial.what, f"no answer: {error.message.splitlines()[0]}")
                continue
            held, guess = report.memory, report.estimate
            yield Tried(
                trial.kind,
                trial.what,
                report.verdict,
                held.peak if held else None,
                held.available if held else None,
                guess.roofline_seconds if guess else None,
                guess.usd_per_step if guess else None,
            )
            if report.can_run:
                break


def _remat(plan: Plan, report: Report) -> list[Trial]:
    if report.loops:
        return [Trial("remat", "wrap the body of lax.scan in jax.checkpoint, with unroll=1", plan, "layers")]
    what = "wrap the loss in jax.checkpoint with policy dots_with_no_batch_dims_saveable"
    return [Trial("remat", what, plan, "loss")]


def _batches(plan: Plan) -> list[Trial]:
    trials = []
    for divisor in (2**power for power in range(1, _ROUNDS + 1)):
        changed = _changed(plan.spec, _BATCH, partial(_share, divisor))
        if changed:
            spec, what = changed
            trials.append(Trial("batch", what, replace(plan, spec=spec)))
    return trials


def _share(divisor: int, size: int) -> int | None:
    return size // divisor if size % divisor == 0 else None


def _layouts(plan: Plan) -> list[Trial]:
    changed = _changed(plan.spec, _SPLIT, lambda size: size * 2 if size * 2 <= plan.slice.chips else None)
    return [Trial("layout", changed[1], replace(plan, spec=changed[0]))] if changed else []


def _larger(plan: Plan) -> list[Trial]:
    """Return trials on the next larger slices of the generation."""
    most = plan.slice.chips * 2**_ROUNDS
    ladder = next(iter(shapes.ladders([plan.slice.generation], [1], most)), ())
    return list(_on(plan, "chips", [one.tpu for one in ladder if one.chips > plan.slice.chips]))


def _other_generations(plan: Plan) -> list[Trial]:
    """Return trials on as many chips of other generations, one for each larger size of memory, smallest first."""
    same = [one for one in catalogue.slices() if one.chips == plan.slice.chips and one.hbm_gib > plan.slice.hbm_gib]
    fastest = {one.hbm_gib: one.name for one in sorted(same, key=lambda one: one.tflops_bf16)}
    return list(_on(plan, "generation", [fastest[size] for size in sorted(fastest)]))


def _on(plan: Plan, kind: str, names: Sequence[str]) -> Iterator[Trial]:
    for name in names:
        slice_ = catalogue.find(name)
        try:
            spec = JobSpec.from_json({**plan.spec.to_json(), "tpu": name})
        except Invalid:  # some generations have no multislice
            continue
        chips = counted(slice_.chips * spec.slices, "chip")
        yield Trial(kind, f"tpu: {name} ({chips} of {slice_.hbm_gib:g} GiB)", replace(plan, spec=spec, slice=slice_))


def _changed(spec: JobSpec, name: re.Pattern[str], value: Callable[[int], int | None]) -> tuple[JobSpec, str] | None:
    """Return the job with the first whole number of this name changed, in its command or its config."""
    words = list(spec.command)
    for index, word in enumerate(words):
        flag, equals, text = word.partition("=")
        last = flag.lstrip("-").rpartition(".")[2]
        if not word.startswith("-") or not name.search(last):
            continue
        given = text if equals else words[index + 1] if index + 1 < len(words) else ""
        new = value(int(given)) if given.isdecimal() and int(given) else None
        if new:
            words[index : index + (1 if equals else 2)] = [f"{flag}={new}"] if equals else [flag, str(new)]
            return spec.replace(command=tuple(words)), f"{flag}={new} in place of {given}"
    found = next(_numbers(spec.config, (), name), None)
    if not found:
        return None
    path, old = found
    new = value(old)
    if not new:
        return None
    return spec.replace(config=_with(spec.config, path, new)), f"config {'.'.join(path)}: {new} in place of {old}"


def _numbers(
    config: Mapping[str, Any], path: tuple[str, ...], name: re.Pattern[str]
) -> Iterator[tuple[tuple[str, ...], int]]:
    for key, value in config.items():
        here = (*path, key)
        if isinstance(value, Mapping):
            yield from _numbers(value, here, name)
        elif isinstance(value, int) and not isinstance(value, bool) and value and name.search(key.rpartition(".")[2]):
            yield here, value


def _with(config: Mapping[str, Any], path: tuple[str, ...], value: int) -> dict[str, Any]:
    head, *rest = path
    return {**config, head: _with(config[head], tuple(rest), value) if rest else value}
