"""The simulator: runs one world after another in this process, without the product's threads."""

from __future__ import annotations

import contextvars
import gc
import importlib
import logging
import random
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from simulation import cloning, cluster_plans, local_pods, people, plans, vm_plans
from simulation.plans import Plan
from simulation.stores import Home
from simulation.world import Result, World

CLUSTERS = {
    "gke": cluster_plans.draw,
    "provisioner": cluster_plans.draw_provisioner,
    "local": cluster_plans.draw_local,
}


COLLECTED = 10
"""Worlds after which their memory is collected."""


class SerialExecutor:
    """A thread pool that runs its work at once, in the calling thread."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> SerialExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            # Pool threads do not inherit the caller's context.
            future.set_result(contextvars.Context().run(work, *args, **kwargs))
        except Exception as error:  # it belongs to the future  # noqa: BLE001
            future.set_exception(error)
        return future

    def map(self, work: Callable[..., Any], *items: Iterable[Any], **_: Any) -> Iterator[Any]:
        return iter([self.submit(work, *each).result() for each in zip(*items, strict=False)])

    def shutdown(self, **_: Any) -> None:
        pass


class _Random:
    """The module `random` for code that spreads retries: all of its generators have the same seed."""

    @staticmethod
    def Random(seed: int | None = None) -> random.Random:  # noqa: N802
        return random.Random(1)


@contextmanager
def prepared() -> Iterator[None]:
    """Patch the product to run without threads, output and randomness."""
    from tpukit.kernel import retry_state
    from tpukit.kernel.store import process
    from tpukit.places.local import place as local

    changed: list[tuple[Any, str, Any]] = []

    def change(owner: Any, name: str, value: Any) -> None:
        changed.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    for scene in ("jobs", "fleet", "queue", "cluster", "provisioner", "local"):
        with suppress(ModuleNotFoundError):
            importlib.import_module(f"simulation.{scene}_scene")
    for name, module in list(sys.modules.items()):
        if name.startswith("tpukit.") and getattr(module, "ThreadPoolExecutor", None) is ThreadPoolExecutor:
            change(module, "ThreadPoolExecutor", SerialExecutor)
    change(retry_state, "random", _Random)
    change(click, "echo", lambda *_, **__: None)
    people.prepare(change)
    local_pods.prepare(change)
    change(local, "pods", local.pods)
    for name in cloning.PATCHED:
        change(process, name, getattr(process, name))
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        for owner, name, value in reversed(changed):
            setattr(owner, name, value)


class Simulator:
    """A runner of worlds, used as a context manager."""

    def __enter__(self) -> Simulator:
        memory = Path("/dev/shm")
        self._folder = tempfile.TemporaryDirectory(prefix="simulation-", dir=memory if memory.is_dir() else None)
        self._prepared = prepared()
        self._prepared.__enter__()
        self._home = Home()
        self._collects = gc.isenabled()
        gc.freeze()
        gc.disable()  # worlds are collected a few at a time: most of the time would go into looking at the live one
        self._worlds = 0
        return self

    def __exit__(self, *_: object) -> None:
        self._home.close()
        self._prepared.__exit__(None, None, None)
        self._folder.cleanup()
        gc.unfreeze()
        if self._collects:
            gc.enable()

    def run(self, plan: Plan, *, kept: bool = False) -> Result:
        folder = Path(self._folder.name) / "world"
        folder.mkdir(exist_ok=True)
        self._worlds += 1
        if self._worlds % COLLECTED == 0:
            gc.collect()
        return World(plan, self._home, folder, kept=kept).run()

    def seed(self, seed: int, scene: str = "", *, kept: bool = False) -> Result:
        """Run the world of a seed, in its own scene or in a named one."""
        plan = plans.draw(seed)
        named = scene or plan.scene
        if named in CLUSTERS:  # these have their own faults and events
            return self.run(CLUSTERS[named](seed), kept=kept)
        return self.run(vm_plans.enrich(replace(plan, scene=named)), kept=kept)

    def shrink(self, found: Result) -> Result:
        """Return the shortest plan with the same violation, by removing and shortening one item after another."""
        assert found.violation
        best, invariant = found, found.violation.invariant

        def fails(plan: Plan) -> bool:
            nonlocal best
            result = self.run(plan)
            if result.violation and result.violation.invariant == invariant:
                best = result
                return True
            return False

        smaller = True
        while smaller:
            smaller = any(fails(plan) for plan in _shorter(best.plan))
        return self.run(best.plan, kept=True)


def _shorter(plan: Plan) -> Iterator[Plan]:
    for index in range(len(plan.faults)):
        yield replace(plan, faults=plan.faults[:index] + plan.faults[index + 1 :])
    for index in range(len(plan.events)):
        yield replace(plan, events=plan.events[:index] + plan.events[index + 1 :])
    if len(plan.jobs) > 1:
        yield replace(plan, jobs=plan.jobs[:1])
    if len(plan.machines) > 1:
        last = len(plan.machines) - 1
        yield replace(
            plan, machines=plan.machines[:-1], faults=tuple(one for one in plan.faults if one.machine != last)
        )
    plain = plans.MachinePlan()
    for index, machine in enumerate(plan.machines):
        for name in ("offset", "drift", "latency", "renews", "dies", "tick", "starts", "rights"):
            if getattr(machine, name) != getattr(plain, name):
                simple = replace(machine, **{name: getattr(plain, name)})
                yield replace(plan, machines=(*plan.machines[:index], simple, *plan.machines[index + 1 :]))
    for index, job in enumerate(plan.jobs):
        for name, value in (
            ("code", False),
            ("bucket", True),
            ("slices", 1),
            ("tpu", "v4-8"),
            ("on", False),
            ("mistake", 0.0),
        ):
            if getattr(job, name) != value:
                yield replace(plan, jobs=(*plan.jobs[:index], replace(job, **{name: value}), *plan.jobs[index + 1 :]))
    for index, fault in enumerate(plan.faults):
        if fault.seconds > 40:
            short = replace(fault, seconds=fault.seconds / 2)
            yield replace(plan, faults=(*plan.faults[:index], short, *plan.faults[index + 1 :]))
    for index, event in enumerate(plan.events):
        if event.seconds > 120:
            brief = replace(event, seconds=event.seconds / 2)
            yield replace(plan, events=(*plan.events[:index], brief, *plan.events[index + 1 :]))
