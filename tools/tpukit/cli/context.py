"""Shared objects of the commands: the store, the places, a driver, and output helpers."""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpukit.core import paths
from tpukit.core.clock import SystemClock
from tpukit.core.errors import NotFound
from tpukit.jobs.records import JOBS, Job

if TYPE_CHECKING:
    from tpukit.jobs.controller.driver import Driver
    from tpukit.kernel import Hooks
    from tpukit.kernel.store import Holder, Lease, Store
    from tpukit.places.base import Observation, Place

CLOCK = SystemClock()


@cache
def store() -> Store:
    """Return the store of this process: $TPUKIT_STORE, the setting `store`, or a file on this machine."""
    from tpukit.jobs.spec import settings
    from tpukit.kernel.store.home import open_store

    return open_store(settings.store(), paths.state())


@cache
def places() -> Mapping[str, Place]:
    from tpukit.places import by_name

    return by_name.places(paths.data(), CLOCK, sender)


def sender() -> str:
    """Return the mark that separates this store's jobs from those of others in shared places."""
    return sender_of(store())


def sender_of(one: Store) -> str:
    from tpukit.kernel.store import mark

    own = one.address if "://" in one.address else paths.mark(paths.state() / "sender")
    return mark.sender(one, lambda: own)


def shelf() -> Path:
    """Return the folder for snapshots of code."""
    return paths.data() / "code"


def holder() -> Holder:
    from tpukit.kernel.store.process import this_process

    return this_process()


def driver(
    *,
    parallel: int = 0,
    workers: int = 0,
    report: Callable[[str, str], None] = lambda job_id, text: None,
    complain: Callable[[str, str], None] | None = None,
    observed: Callable[[str, Observation], None] = lambda job_id, seen: None,
    hooks: Hooks | None = None,
) -> Driver:
    """Return a driver of jobs that reports transient errors on stderr.

    It renews its leases in the background: an upload may take longer than a lease.
    """
    from tpukit.jobs.controller.driver import Driver
    from tpukit.jobs.spent_budgets import Holding

    driver = Driver(
        store(),
        places(),
        CLOCK,
        holder(),
        parallel=parallel,
        workers=workers,
        report=report,
        complain=complain or say,
        observed=observed,
        held=Holding(store(), CLOCK).why,
        hooks=hooks,
    )
    driver.leases.keep()
    return driver


def claim(job_id: str) -> None:
    """Acquire the lease of a job before other drivers can see it: they may not have its code."""
    from tpukit.kernel.leases import SECONDS

    store().acquire(f"{JOBS.name}/{job_id}", holder(), SECONDS)


def unclaim(job_id: str) -> None:
    """Release a claim of this process."""
    held = lease(job_id)
    if held and held.holder.name == holder().name:
        store().release(held)


def lease(job_id: str) -> Lease | None:
    """Return the lease of the process that drives the job."""
    return store().lease(f"{JOBS.name}/{job_id}")


def driven_by_another(job_id: str) -> str:
    """Return the other process that drives the job, or "" if there is none."""
    held = lease(job_id)
    return "" if held is None or held.holder.name == holder().name else who(held.holder)


def who(one: Holder) -> str:
    """Return a holder in the form `ada@desk, process 4711`."""
    name = one.name.partition("/")[0] or one.user or "an unknown user"
    return f"{name}, process {one.pid}" if one.pid else name


def find(name: str) -> Job:
    """Return a job by id, prefix of an id, window of a user (`ada:101`), or name (the newest of that name)."""
    from tpukit.cli.who import window_name

    if window := window_name(name):
        from tpukit.sharing import windows

        return get(windows.get(store(), window).job)
    if ":" in name:
        raise NotFound(
            f"{name.rpartition(':')[2]} is not the number of a window",
            hint="write USER:NUMBER, or the id of a job; `tpu check USER` lists windows, `tpu job list` jobs",
        )
    matches = store().keys(JOBS, name)
    if name in matches or not matches:
        return get(name)
    meant = [job_id for job_id in matches if job_id.rsplit("-", 1)[0] == name] or matches
    if len(meant) == 1 or meant is not matches:
        return max((get(job_id) for job_id in meant), key=lambda job: job.created)
    raise NotFound(f"{name} could be {', '.join(sorted(matches))}", hint="write more characters of the id")


def get(job_id: str) -> Job:
    from tpukit.jobs.controller.driver import find as by_id

    return by_id(store(), job_id)


def owner() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in many containers
        return "unknown"


def say(job_id: str, text: str) -> None:
    with suppress(OSError):  # stderr is closed, and the work does not depend on it
        click.echo(f"{job_id}: {text}", err=True)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))
