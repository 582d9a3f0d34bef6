"""Shared objects of the commands: the store, the places, a session, and output helpers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import click

from tpukit.core.clock import SystemClock
from tpukit.core.errors import NotFound
from tpukit.jobs.use_cases import session as sessions

if TYPE_CHECKING:
    from tpukit.jobs.records import Job
    from tpukit.jobs.use_cases.session import Session
    from tpukit.kernel.store import Holder, Store
    from tpukit.places.base import Place

CLOCK = SystemClock()


@cache
def store() -> Store:
    """Return the store of this process: $TPUKIT_STORE, the setting `store`, or a file on this machine."""
    return sessions.open_store()


@cache
def places() -> Mapping[str, Place]:
    return sessions.open_places(CLOCK, sender)


@cache
def serving_places() -> Mapping[str, Place]:
    """Return the places as `tpu serve` uses them."""
    return sessions.open_places(CLOCK, sender, warn)


def session(*, serving: bool = False) -> Session:
    """Return the session of this process. It reports transient errors on stderr."""
    return sessions.Session(store, serving_places if serving else places, CLOCK, holder(), owner(), say, warn)


def sender() -> str:
    """Return the mark that separates this store's jobs from those of others in shared places."""
    return sessions.sender_of(store())


def holder() -> Holder:
    return sessions.this_process()


def owner() -> str:
    return sessions.this_user()


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
    return session().find(name)


def get(job_id: str) -> Job:
    from tpukit.jobs.controller.driver import find as by_id

    return by_id(store(), job_id)


def say(job_id: str, text: str) -> None:
    warn(f"{job_id}: {text}")


def warn(text: str) -> None:
    with suppress(OSError):  # stderr is closed, and the work does not depend on it
        click.echo(text, err=True)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))
