"""The drill as a whole: the unbroken run, the plan, one run for each loss, and what follows from them."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

from tpukit import stage
from tpukit.clock import Clock
from tpukit.drill import advice, costs, holding, judging, planning, pricing, reaper, running
from tpukit.drill import saves as saving
from tpukit.drill.advice import Cause
from tpukit.drill.comparing import Noise
from tpukit.drill.costs import Costs
from tpukit.drill.judging import Broken, Ended, Finding, Verdict, Word
from tpukit.drill.losses import Loss
from tpukit.drill.planning import Unbroken
from tpukit.drill.running import Limits, Run, Runs
from tpukit.drill.sites import Site
from tpukit.drill.trace import Trace
from tpukit.errors import Invalid
from tpukit.plan import Plan
from tpukit.reasons import MEANINGS, Budget, State
from tpukit.store.sqlite import SqliteStore

REPEATS = 2
"""Unbroken runs that are added where values differ: they tell noise from what a loss did."""
TRIES = 3
"""Runs for one loss whose moment was missed: steps may be shorter than what it takes to see them."""


@dataclass(frozen=True, slots=True)
class Request:
    plan: Plan
    seed: int = 0
    only: tuple[str, ...] = ()
    budget: float = 0.0  # seconds; 0: as long as it takes
    losses_per_day: float = 1.0
    zone: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """Of one loss."""

    verdict: Verdict
    causes: tuple[Cause, ...]
    run: Run


@dataclass(frozen=True, slots=True)
class Drill:
    """What came out."""

    job: str
    seed: int
    unbroken: Run
    planned: Unbroken
    results: tuple[Result, ...]
    left_out: tuple[tuple[str, str], ...]
    noise: Noise
    findings: tuple[Finding, ...]  # about the unbroken run
    costs: Costs
    seconds: float

    @property
    def word(self) -> Word | None:
        """The worst verdict of all; None: nothing was tried."""
        return judging.worst([*(result.verdict.word for result in self.results), *(word for word, _ in self.findings)])

    @property
    def causes(self) -> tuple[Cause, ...]:
        return tuple(dict.fromkeys(cause for result in self.results for cause in result.causes))


@dataclass(frozen=True, slots=True)
class Progress:
    """Before each run, and after it."""

    number: int  # 0: an unbroken run
    count: int  # of losses; 0: not known yet
    loss: Loss | None = None
    result: Result | None = None


Say = Callable[[Progress], None]


@contextmanager
def folder(drills: Path, chosen: Path | None = None) -> Iterator[Path]:
    """A folder of its own for a drill. It is removed afterwards unless it was chosen, and so are those of drills that
    were killed."""
    if chosen is None:
        drills.mkdir(parents=True, exist_ok=True, mode=0o700)
        for old in drills.iterdir():
            if not reaper.is_used(old):
                shutil.rmtree(old, ignore_errors=True)
    path = chosen or drills / secrets.token_hex(4)
    if (path / "store.db").exists():
        raise Invalid(f"{path} holds another drill", hint="name another folder, or remove it")
    # It is named in what each host carries as a mark, which has no relative paths.
    path = path.absolute()
    watch = reaper.Guard(path)
    try:
        yield path
    finally:
        watch.close()
        if chosen is None:
            shutil.rmtree(path, ignore_errors=True)


def drill(request: Request, site: Site, path: Path, clock: Clock, say: Say = lambda progress: None) -> Drill:
    """In a folder that nobody else uses."""
    began = clock.monotonic()
    plan = replace(site.prepare(request.plan), place=site.place.name)
    if plan.spec.code:
        plan = replace(plan, snapshot=stage.snapshot(Path(plan.spec.code), path / "code", (path,)))
    store = SqliteStore(path / "store.db")
    try:
        runs = Runs(store, site, clock)
        say(Progress(0, 0))
        unbroken = runs.run(plan, "unbroken", None, Limits())
        _require_completed(unbroken)
        unbroken, limits, planned = _learn(plan, unbroken, limits_logs=site.limits_logs)
        chosen = planning.plan(planned, request.seed, request.only, request.budget, site.impossible)
        pairs: list[tuple[Broken, Run]] = []
        repeats: list[Trace] = []
        left_out = list(chosen.left_out)
        for number, loss in enumerate(chosen.losses, 1):
            progress = Progress(number, len(chosen.losses), loss)
            spent = clock.monotonic() - began
            typical = median([run.seconds for _, run in pairs] or [planning.COST * planned.seconds])
            if request.budget and pairs and spent + typical > request.budget:
                left_out.append((loss.name, "the budget is used up"))
                continue
            say(progress)
            run = _struck(runs, unbroken, plan, loss, limits)
            pairs.append((_broken(loss, run), run))
            if not repeats and _differs(unbroken, pairs, limits, plan):
                say(Progress(0, len(chosen.losses)))
                repeats = [runs.run(plan, f"unbroken-{number + 2}", None, Limits()).trace for number in range(REPEATS)]
            say(replace(progress, result=_results(unbroken, pairs, repeats, limits, plan)[-1]))
        results = _results(unbroken, pairs, repeats, limits, plan)
    finally:
        store.close()
        site.close()
    return Drill(
        plan.spec.name,
        request.seed,
        unbroken,
        planned,
        results,
        tuple(left_out),
        judging.noise(unbroken.trace, [broken for broken, _ in pairs], repeats),
        judging.unbroken_findings(unbroken.trace, unbroken.saves),
        _costs(request, unbroken, results),
        clock.monotonic() - began,
    )


def _require_completed(run: Run) -> None:
    if run.state is not State.COMPLETED:
        why = run.given_up or run.message or str(run.state)
        raise Invalid(f"the unbroken run did not complete: {why}", hint="a job that runs to its end can be drilled")


def _learn(plan: Plan, run: Run, *, limits_logs: bool) -> tuple[Run, Limits, Unbroken]:
    steps = sorted({report.step for report in run.trace})
    ignore = saving.not_saves(run.moments, len(steps))
    run = replace(run, saves=saving.seen(run.moments, ignore), ignore=ignore)
    done = [save for save in run.saves if save.done]
    last = steps[-1] if steps else 0
    saved = tuple(sorted({save.step for save in done if save.step >= 0} | _reported(run)))
    start = min((report.at for report in run.trace), default=run.began) - run.began
    limits = replace(running.limits(run, start), bytes_most=_largest(run) // 2)
    planned = Unbroken(
        plan.spec.slices,
        plan.slice.hosts,
        tuple(steps),
        tuple(step for step in saved if step < last),
        run.seconds,
        _largest(run),
        run.largest_log if limits_logs else 0,
    )
    return run, limits, planned


def _reported(run: Run) -> set[int]:
    return {report.saved for report in run.trace if report.saved >= 0}


def _largest(run: Run) -> int:
    """Of the files of a checkpoint, in bytes."""
    paths = {path for save in run.saves for path in save.paths}
    return max((file.size for moment in run.moments for path, file in moment.files.items() if path in paths), default=0)


def _struck(runs: Runs, unbroken: Run, plan: Plan, loss: Loss, limits: Limits) -> Run:
    """The run for a loss, tried anew where it was over before its moment was seen, each time with an earlier step."""
    for number in range(TRIES):
        name = loss.name if number == 0 else f"{loss.name}-{number + 1}"
        early = replace(loss, step=loss.step * (TRIES - number) // TRIES)
        run = runs.run(plan, name, early, limits)
        if judging.happened(unbroken.trace, _broken(loss, run)):
            break
    return run


def _broken(loss: Loss, run: Run) -> Broken:
    failures = tuple(
        attempt.reason is not None and MEANINGS[attempt.reason].budget is Budget.USER for attempt in run.attempts
    )
    ended = Ended(run.state is State.COMPLETED, run.message, failures)
    return Broken(loss, run.trace, ended, run.struck, run.saves, run.given_up, run.damaged)


def _differs(unbroken: Run, pairs: Sequence[tuple[Broken, Run]], limits: Limits, plan: Plan) -> bool:
    """Return whether any value of the newest run differs, before its loss or after it."""
    noise = judging.noise(unbroken.trace, [broken for broken, _ in pairs])
    newest = _results(unbroken, pairs, (), limits, plan)[-1].verdict.evidence
    return bool(noise.most) or noise.params_differ or newest.first_different is not None


def _results(
    unbroken: Run, pairs: Sequence[tuple[Broken, Run]], repeats: Sequence[Trace], limits: Limits, plan: Plan
) -> tuple[Result, ...]:
    """Judge each run by the noise of all runs together."""
    noise = judging.noise(unbroken.trace, [broken for broken, _ in pairs], repeats)
    grace = float(plan.spec.max.grace)
    verdicts = [judging.judge(unbroken.trace, broken, noise, limits.saving_seconds, grace) for broken, _ in pairs]
    causes = advice.of_all(verdicts)
    return tuple(Result(*one) for one in zip(verdicts, causes, (run for _, run in pairs), strict=True))


def _costs(request: Request, run: Run, results: Sequence[Result]) -> Costs:
    spec = request.plan.spec
    usd, note = pricing.per_hour(request.plan.slice, spec.slices, spec.capacity, request.zone)
    done = [save for save in run.saves if save.done and save.step >= 0]
    first = min((report.host for report in run.trace), default=0)
    times: dict[int, float] = {}
    for report in sorted(run.trace, key=lambda report: report.at):
        if report.host == first:
            times.setdefault(report.step, report.at)
    between = [later.began - earlier.began for earlier, later in pairwise(done)]
    return costs.estimate(
        hold=holding.measure(times, [(save.began, save.changed) for save in done]),
        save_seconds=[save.seconds for save in done],
        save_bytes=int(median([save.size for save in done])) if done else None,
        save_every=median(between) if between else None,
        back=[one.verdict.back_seconds for one in results if one.verdict.back_seconds is not None],
        losses_per_day=request.losses_per_day,
        usd_per_hour=usd,
        price_note=note,
    )
