"""A store backend for the suites that run on each of them: opened in this process, or in many at once.

A module that imports everything of this one provides the fixture `address` and, if needed, `environment`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tpukit
from support.waiting import PATIENCE, until
from tpukit.jobs.records import JOBS, Job
from tpukit.kernel.store import Entry, Holder, Store
from tpukit.kernel.store.home import open_store

PREAMBLE = """
import sys, time
from pathlib import Path
import msgspec
from tpukit.core.errors import Conflict
from tpukit.jobs.records import JOBS; from tpukit.jobs.records import Job
from tpukit.kernel.store import Event; from tpukit.kernel.store import change
from tpukit.kernel.store.home import open_store
from tpukit.kernel.store.process import this_process
def job(name, created=0.0): return Job(name, "local", "team", "me", created, plan={})
def count(job): return msgspec.structs.replace(job, message=str(int(job.message or 0) + 1))
def same(job): return job
name = sys.argv[3]
store = open_store(sys.argv[1], Path(sys.argv[2]))
"""
LONG = 600.0
SHORT = 0.3
A, B = Holder("a"), Holder("b")


@dataclass
class Home:
    """One backend, opened in this process or in others."""

    address: str
    folder: Path
    environment: Mapping[str, str]
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    opened: list[Store] = field(default_factory=list)

    def open(self) -> Store:
        self.opened.append(open_store(self.address, self.folder))
        return self.opened[-1]

    def process(self, name: str, script: str, *, ready: bool = False) -> subprocess.Popen[str]:
        """Start a process with an open `store`; with `ready`, wait until it has printed a line."""
        argv = [sys.executable, "-c", f"{PREAMBLE}\n{script}", self.address, str(self.folder), name]
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(Path(tpukit.__file__).parents[1]),
            **self.environment,
        }
        process = subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
        self.processes.append(process)
        if ready:
            assert process.stdout is not None
            assert process.stdout.readline()
        return process

    def finish(self) -> list[str]:
        """Wait until all processes have succeeded and return their output."""
        outputs = [process.communicate(timeout=PATIENCE)[0] for process in self.processes]
        assert [process.returncode for process in self.processes] == [0] * len(outputs)
        return outputs


@pytest.fixture
def environment() -> Mapping[str, str]:
    """Return the variables that processes need to reach the backend."""
    return {}


@pytest.fixture
def home(address: str, environment: Mapping[str, str], tmp_path: Path) -> Iterator[Home]:
    made = Home(address, tmp_path / "store", environment)
    yield made
    for store in made.opened:
        store.close()
    for process in made.processes:
        process.kill()
        process.communicate()


@pytest.fixture
def store(home: Home) -> Store:
    return home.open()


def job(name: str = "a-1", created: float = 1.0, **fields: Any) -> Job:
    return Job(name, "local", "team", "me", created, **{"plan": {"spec": {"name": "a"}}, **fields})


def add(store: Store, *names: str, **fields: Any) -> None:
    for index, name in enumerate(names):
        store.create(JOBS, name, job(name, **{"created": float(index), **fields}))


def edit(**fields: Any) -> Callable[[Job], Job]:
    return lambda record: msgspec.structs.replace(record, **fields)


def put(store: Store, entry: Entry[Job], **options: Any) -> Entry[Job]:
    fields = options.pop("fields", {"message": "changed"})
    return store.put(JOBS, entry, msgspec.structs.replace(entry.value, **fields), **options)


def ids(page: Any) -> list[str]:
    return [entry.key for entry in page.entries]


def texts(store: Store, key: str = "a-1") -> list[str]:
    return [event.text for event in store.events(JOBS, key)]


def lapsed(store: Store, name: str) -> None:
    until(lambda: store.lease(name) is None, "the lease to lapse")
