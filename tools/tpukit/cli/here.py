"""What commands work with on this machine: the store, the places, the loop."""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import click

from tpukit import paths
from tpukit.clock import SystemClock
from tpukit.errors import NotFound
from tpukit.loop import Loop
from tpukit.places.base import Place
from tpukit.places.local import LocalPlace
from tpukit.store import Job
from tpukit.store.sqlite import SqliteStore, open_store

if TYPE_CHECKING:
    from tpukit.places.gke import GkePlace

CLOCK = SystemClock()


def store() -> SqliteStore:
    return open_store(paths.state())


def local() -> LocalPlace:
    return LocalPlace(paths.data(), CLOCK)


@cache
def gke() -> GkePlace:
    """One for the whole program: it holds connections, and writes down what hosts print."""
    from tpukit.places.gke import GkePlace

    return GkePlace(paths.data(), CLOCK)


class _Places(Mapping[str, Place]):
    """Each is made when it is asked for: who runs a job on this machine loads nothing of a cluster."""

    _makers: Mapping[str, Callable[[], Place]] = {"local": local, "gke": gke}

    def __getitem__(self, name: str) -> Place:
        return self._makers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


def places() -> Mapping[str, Place]:
    return _Places()


def loop(
    jobs: SqliteStore, *, parallel: int = 0, report: Callable[[str, str], None] = lambda job_id, text: None
) -> Loop:
    """The loop over this machine's places; trouble that passes is said on stderr."""
    return Loop(jobs, places(), CLOCK, parallel=parallel, report=report, complain=say)


def say(job_id: str, text: str) -> None:
    click.echo(f"{job_id}: {text}", err=True)


def owner() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in many containers
        return "unknown"


def find(jobs: SqliteStore, name: str) -> Job:
    """A job by its id, by the beginning of it, or the newest one of that name."""
    matches = jobs.taken(name)
    if name in matches or not matches:
        return jobs.get(name)
    meant = [job_id for job_id in matches if job_id.rsplit("-", 1)[0] == name] or matches
    if len(meant) == 1 or meant is not matches:
        return max((jobs.get(job_id) for job_id in meant), key=lambda job: job.created)
    raise NotFound(f"{name} could be {', '.join(sorted(matches))}", hint="write more of the id")


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))
