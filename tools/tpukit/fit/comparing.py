"""Compile a job for several shapes, side by side as memory allows."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from tpukit.core.errors import Invalid, TpukitError
from tpukit.fit import running, shapes
from tpukit.fit.check import Report
from tpukit.fit.findings import Finding
from tpukit.fit.shapes import Ladder, Shape
from tpukit.jobs.plan import Plan

UNKNOWN = "unknown"
"""Verdict on a shape whose compile gave no answer."""
SPARE = 1.25
"""Memory kept for a compile, as a multiple of the largest so far."""

Compile = Callable[[Shape, threading.Event], Report]


class Comparison:
    """Reports of a job on the shapes of some ladders. After an interrupt, `reports` has those that were finished."""

    def __init__(
        self,
        ladders: Sequence[Ladder],
        plans: Mapping[Shape, Plan],
        compile_for: Compile,
        free: Callable[[], int | None] = running.free_memory,
        cores: int = os.cpu_count() or 1,
    ) -> None:
        self.reports: dict[Shape, Report] = {}
        self._ladders, self._plans, self._compile = list(ladders), plans, compile_for
        self._free, self._cores = free, cores
        self._stop = threading.Event()

    @property
    def excluded(self) -> dict[Shape, Shape]:
        """Shapes that were not compiled, each with the larger one that does not fit."""
        verdicts = self._verdicts()
        return {one: why for ladder in self._ladders for one, why in shapes.excluded(ladder, verdicts).items()}

    def run(self) -> None:
        """Compile until every ladder is finished. On an interrupt, stop the compiles and raise it."""
        futures: dict[Future[Report], Shape] = {}
        with ThreadPoolExecutor(self._cores) as pool:
            try:
                while True:
                    for one in self._next(list(futures.values())):
                        futures[pool.submit(self._compile, one, self._stop)] = one
                    if not futures:
                        return
                    done, _ = wait(futures, return_when=FIRST_COMPLETED)
                    for future in done:
                        shape = futures.pop(future)
                        self.reports[shape] = self._result(shape, future)
            except BaseException:
                self._stop.set()  # leaving the pool waits for its threads, which remove what they started
                raise

    def _next(self, busy: list[Shape]) -> list[Shape]:
        verdicts = self._verdicts()
        ready = [one for ladder in self._ladders for one in shapes.following(ladder, verdicts, busy)]
        need = int(SPARE * max((one.peak_memory for one in self.reports.values()), default=0))
        free = self._free()
        return ready[: shapes.room(free if free is not None else need, need, len(busy), self._cores)]

    def _verdicts(self) -> dict[Shape, str]:
        return {one: report.verdict for one, report in self.reports.items()}

    def _result(self, shape: Shape, future: Future[Report]) -> Report:
        """Return the report. A compile that failed for reasons of its own must not end the others."""
        try:
            return future.result()
        except TpukitError as error:
            if isinstance(error, running.Stopped):
                raise
            plan = self._plans[shape]
            text = "; ".join(one.what for one in error.problems) if isinstance(error, Invalid) else str(error)
            kind = "program" if isinstance(error, Invalid) else "machine"
            found = (Finding(kind, text, hint=error.hint or ""),)
            return Report(plan.spec.name, plan.slice.name, plan.spec.slices, plan.chips, UNKNOWN, findings=found)
