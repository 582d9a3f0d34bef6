"""Markers that record which job a workdir belongs to.

A program that finds the checkpoints of another job continues them: it prints an old last step, trains nothing and
completes. So the first attempt of a job writes a marker with the job's id into a workdir that the job file names, and a
job is rejected where another one has left its output, unless resume was requested. A workdir that is derived from the
job's id needs no marker.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path

from tpukit.core import fence
from tpukit.core.errors import Invalid, LeaseLost, NotFound, Problem, TpukitError
from tpukit.google import objects
from tpukit.jobs.plan import Plan
from tpukit.places import checkpoint_folder

MARKER = ".tpukit/job"
_OWN = ".tpukit/"
_NAMES_MOST = 1000
"""Maximum number of names read: a workdir may hold a data set."""


@dataclass(frozen=True, slots=True)
class Held:
    """A workdir that belongs to another job."""

    workdir: str
    job: str  # empty: no marker names the job
    output: bool  # it holds more than the marker

    @property
    def problem(self) -> Problem:
        what = "holds checkpoints of another run"
        if self.job:
            what = f"holds the output of job {self.job}" if self.output else f"is the workdir of job {self.job}"
        ways = [f"continue that job with `tpu job resume {self.job}`"] if self.job else []
        ways += ["start from its checkpoints with `--resume`"]
        parent = self.workdir.rpartition("/")[0]
        hint = ", ".join(ways) + f", or name another folder: `--set workdir={parent}/NAME`"
        return Problem("", f"workdir: {self.workdir} {what}", hint)


@dataclass(frozen=True, slots=True)
class Storage:
    """Cloud Storage functions, each of which takes an address."""

    names: Callable[[str, int], Iterable[str]] = objects.names
    download: Callable[[str], bytes] = objects.download
    create: Callable[[str, bytes], None] = objects.create
    upload: Callable[[str, bytes], None] = objects.upload


@dataclass(frozen=True, slots=True)
class Workdirs:
    storage: Storage = field(default_factory=Storage)
    claimed: set[str] = field(default_factory=set)  # ids of jobs whose workdirs this process has marked, or tried to

    def held(self, plan: Plan, workdir: str, *, this_machine: bool = False) -> Held | None:
        """Return the other job that the workdir belongs to; None if it is the plan's own, or unused.

        `this_machine`: the place runs attempts here, so that a folder is one of this machine. Errors of Cloud Storage
        are raised: then the owner is unknown.
        """
        where = _address(plan, workdir, this_machine)
        if not where:
            return None
        marker = self._marker(where)
        if marker == plan.id:
            return None
        names = [name for name in self._names(where) if not name.startswith(_OWN)]
        if marker:
            return Held(workdir, marker, output=bool(names))
        return Held(workdir, "", output=True) if any(map(_is_checkpoint, names)) else None

    def claim(self, plan: Plan, workdir: str, *, this_machine: bool = False) -> None:
        """Mark the workdir before the first attempt starts. Idempotent.

        If this account may not read or write there, the job runs without a marker.

        Raises:
            Invalid: The workdir belongs to another job.
        """
        where = _address(plan, workdir, this_machine)
        if not where or plan.id in self.claimed:
            return
        try:
            self._claim(plan, workdir, where, this_machine)
        except (Invalid, LeaseLost):
            raise
        except (TpukitError, OSError):
            pass  # no retry: a submission may be repeated every second
        self.claimed.add(plan.id)

    def _claim(self, plan: Plan, workdir: str, where: str, this_machine: bool) -> None:
        if not plan.resume and (held := self.held(plan, workdir, this_machine=this_machine)):
            raise Invalid(held.problem)
        fence.check()
        self._write(where, plan.id, replace=plan.resume)
        if not plan.resume and (marker := self._marker(where)) != plan.id:  # another job was faster
            raise Invalid(Held(workdir, marker, output=False).problem)

    def _marker(self, where: str) -> str:
        try:
            if where.startswith("gs://"):
                return self.storage.download(f"{where}/{MARKER}").decode(errors="replace").strip()
            return Path(where, MARKER).read_text(encoding="utf-8", errors="replace").strip()
        except (NotFound, FileNotFoundError):
            return ""

    def _write(self, where: str, job_id: str, *, replace: bool) -> None:
        if where.startswith("gs://"):
            (self.storage.upload if replace else self.storage.create)(f"{where}/{MARKER}", job_id.encode())
            return
        file = Path(where, MARKER)
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_name(f"{file.name}.{job_id}")
        new.write_text(job_id, encoding="utf-8")
        if replace:
            new.replace(file)
            return
        with suppress(FileExistsError):
            file.hardlink_to(new)
        new.unlink()

    def _names(self, where: str) -> Iterable[str]:
        if where.startswith("gs://"):
            return self.storage.names(f"{where}/", _NAMES_MOST)
        return islice(_below(Path(where)), _NAMES_MOST)


def _address(plan: Plan, workdir: str, this_machine: bool) -> str:
    """Return where this machine can read the workdir; empty: nowhere, or its id alone makes it this job's."""
    if not plan.spec.workdir:
        return ""
    if workdir.startswith("gs://") or (this_machine and "://" not in workdir):
        return workdir.rstrip("/")
    for mount in plan.spec.mounts:
        folder = f"{mount.path.rstrip('/')}/"
        if f"{workdir}/".startswith(folder):
            return f"gs://{mount.bucket}/{workdir.removeprefix(folder)}".rstrip("/")
    return ""


def _below(folder: Path) -> Iterator[str]:
    """Yield names of files, as a bucket has them."""
    for parent, _, files in os.walk(folder):
        for name in files:
            yield Path(parent, name).relative_to(folder).as_posix()


def _is_checkpoint(name: str) -> bool:
    parts = ["", *name.split("/")]
    return any(checkpoint_folder.step(one, parent) is not None for parent, one in pairwise(parts))
