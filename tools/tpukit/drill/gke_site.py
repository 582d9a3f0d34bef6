"""Runs of a drill on GKE in a sandbox: real Kubernetes, JobSet and Kueue; hosts are processes of this machine.

A note records what a run creates in the cluster and its buckets before the run is sent; `clean` deletes all of it.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Protocol

from tpukit.core.clock import Clock, SystemClock
from tpukit.core.errors import Conflict, Invalid, NotFound, Problem, TpukitError
from tpukit.drill.losses import Loss, What
from tpukit.drill.reaper import CLUSTER_NOTE
from tpukit.drill.sites import Folders, Host
from tpukit.jobs.plan import Plan
from tpukit.jobs.records import Attempt
from tpukit.jobs.spec.job import Mount
from tpukit.kube import Cluster
from tpukit.places.base import Observation
from tpukit.places.gke import GkePlace
from tpukit.places.gke.jobsets import NAME, SENDER

CLEAN_SECONDS = 120.0
_REMOTE = "gs://"


class BoxHost(Protocol):
    @property
    def attempt(self) -> int: ...
    @property
    def slice(self) -> int: ...
    @property
    def index(self) -> int: ...
    @property
    def pod(self) -> str: ...
    @property
    def node(self) -> str: ...
    @property
    def logs(self) -> Sequence[Path]: ...
    @property
    def pids(self) -> tuple[int, ...]: ...


class Box(Protocol):
    """Interface of a sandbox beyond its API server."""

    @property
    def buckets(self) -> Path: ...

    def of_job(self, namespace: str, job: str) -> Sequence[BoxHost]: ...

    def preempt(self, node: str, grace: float) -> None: ...


class GkeSite:
    round_seconds = 0.5  # the cluster drives a job by itself
    limits_logs = False

    def __init__(self, folder: Path, clock: Clock, box: Box, retain: bool = False) -> None:
        """Create a site. `retain` keeps the saved files of the runs in the bucket."""
        self._folder, self._box, self._retain = folder, box, retain
        self._mark = f"drill-{secrets.token_hex(3)}"
        self._base, self._base_path = "", Path()
        self._team = ""
        self._cluster: Cluster | None = None
        self._logs: dict[tuple[str, int, int], dict[str, Path]] = {}  # by name on the host, oldest first
        self.place = GkePlace(folder, clock, lambda: self._mark)

    def prepare(self, plan: Plan) -> Plan:
        plan = self.place.prepare(replace(plan, id=f"{self._mark}-unbroken"))
        if problems := self.place.check(plan):
            raise Invalid(problems)
        self._base, self._base_path = self._workdirs(plan)
        name = plan.cluster or self.place.clusters.current()
        self._team, self._cluster = plan.team, self.place.clusters.open(name)
        paths = [str(self._traces)] if self._retain else [str(self._traces), str(self._base_path)]
        note = {"context": name.context, "team": plan.team, "sender": self._mark, "paths": paths}
        (self._folder / CLUSTER_NOTE).write_text(json.dumps(note), encoding="utf-8")
        return plan

    def job_id(self, run: str) -> str:
        return f"{self._mark}-{run}"

    def folders(self, run: str) -> Folders:
        workdir, traces = self._base_path / run, self._traces / run
        traces.mkdir(parents=True, exist_ok=True)
        if not self._is_remote:
            workdir.mkdir(parents=True, exist_ok=True)
        return Folders(f"{self._base}/{run}", workdir, str(traces), traces)

    def hosts(self, plan: Plan, attempt: Attempt, seen: Observation | None) -> Sequence[Host]:
        present = self._box.of_job(plan.team, plan.id)
        for one in present:
            self._retain_logs(plan, one)
        running = {(one.attempt, one.slice, one.index): one for one in present}
        per_slice = plan.slice.hosts
        found = []
        for (job, number, host), logs in self._logs.items():
            if job != plan.id:
                continue
            slice_, index = divmod(host, per_slice)
            made = Host(number, host, slice_, index, tuple(logs.values()))
            if there := running.get((number, slice_, index)):
                made = replace(made, pids=there.pids, node=there.node, pod=there.pod)
            found.append(made)
        newest = max((host.attempt for host in found), default=0)
        return [host for host in found if host.attempt >= newest - 1]

    def line(self, text: str) -> str:
        """Return the text after the time, stream and tag that a container runtime writes."""
        return text.split(" ", 3)[-1]

    def impossible(self, loss: Loss) -> str:
        if loss.what is What.DISK_FULL and self._is_remote:
            return f"checkpoints go to {_REMOTE} without a disk between; with a mounted bucket as workdir it is tried"
        return ""

    def leave(self, victims: Sequence[Host]) -> None:
        """Evict the pods, as a node drain does, with the grace of the pod."""
        assert self._cluster is not None
        for host in victims:
            metadata = {"name": host.pod, "namespace": self._team}
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
            with suppress(NotFound):
                self._cluster.call("POST", f"/api/v1/namespaces/{self._team}/pods/{host.pod}/eviction", body=eviction)

    def preempt(self, victims: Sequence[Host], grace: float) -> None:
        self._box.preempt(victims[0].node, grace)

    def close(self) -> None:
        self.place.close()

    @property
    def _traces(self) -> Path:
        """Beside the buckets, visible to all pods. No bucket name may begin with a dot."""
        return self._box.buckets / f".{self._mark}"

    @property
    def _is_remote(self) -> bool:
        return self._base.startswith(_REMOTE)

    def _workdirs(self, plan: Plan) -> tuple[str, Path]:
        """Return the folder with the workdirs of all runs, as the path for programs and the path on this machine."""
        workdir = plan.workdir.rstrip("/")
        bucket, rest = in_bucket(workdir, plan.spec.mounts)
        path = self._box.buckets / bucket
        if not path.is_dir():
            hint = f"`gcloud storage buckets create gs://{bucket}` in `tpu sandbox shell` makes it"
            raise Invalid(Problem("workdir", f"the sandbox has no bucket {bucket}", hint))
        return f"{workdir}/{self._mark}", path / rest / self._mark

    def _retain_logs(self, plan: Plan, one: BoxHost) -> None:
        """Hard-link a pod's log files, because they are deleted with the pod, maybe before the last lines were read."""
        key = plan.id, one.attempt, one.slice * plan.slice.hosts + one.index
        folder = self._folder / "logs" / plan.id / f"{one.attempt}-{one.slice}-{one.index}"
        for log in one.logs:
            link = folder / log.name
            if link.name in self._logs.get(key, {}):
                continue
            folder.mkdir(parents=True, exist_ok=True)
            try:
                os.link(log, link)
            except FileNotFoundError:
                continue
            except OSError:  # another disk
                link = log
            self._logs.setdefault(key, {})[log.name] = link


def in_bucket(workdir: str, mounts: Sequence[Mount]) -> tuple[str, str]:
    """Return the bucket of a workdir and the path in it. Refuse a workdir that is deleted with its pod."""
    if workdir.startswith(_REMOTE):
        bucket, _, rest = workdir.removeprefix(_REMOTE).partition("/")
        return bucket, rest
    path = PurePosixPath(workdir)
    around = [one for one in mounts if not one.read_only and workdir and path.is_relative_to(one.path)]
    if not around:
        what = f"{workdir} is in no bucket that can be written to" if workdir else "there is none"
        hint = "mount a bucket (`mounts:`, read_only: false) and name a folder in it, or name gs://BUCKET/FOLDER"
        raise Invalid(Problem("workdir", f"{what}: what is saved would go with the pod", hint))
    mount = max(around, key=lambda one: len(PurePosixPath(one.path).parts))
    rest = str(path.relative_to(mount.path))
    return mount.bucket, "" if rest == "." else rest


def clean(folder: Path) -> None:
    """Delete the drill's objects in the cluster, and wait until they are gone. Safe to repeat."""
    try:
        note = json.loads((folder / CLUSTER_NOTE).read_text(encoding="utf-8"))
    except OSError:
        return
    clock = SystemClock()
    due = clock.monotonic() + CLEAN_SECONDS
    while clock.monotonic() < due:
        with suppress(TpukitError):
            if not _remove(Cluster(context=note["context"] or None), note["team"], note["sender"]):
                break
        clock.sleep(0.2)
    for path in note["paths"]:
        shutil.rmtree(path, ignore_errors=True)


def _remove(cluster: Cluster, team: str, sender: str) -> int:
    """Delete the drill's JobSets, and return how many were left."""
    ours = [
        one["metadata"]
        for one in cluster.list("JobSet", team)
        if one["metadata"].get("annotations", {}).get(SENDER) == sender
    ]
    for metadata in ours:
        if "deletionTimestamp" not in metadata:
            cluster.delete("JobSet", metadata["name"], team, foreground=True, uid=metadata["uid"])
        for pod in cluster.list("Pod", team, labels=f"{NAME}={metadata['name']}"):
            with suppress(Conflict):  # do not wait for a host that hangs
                cluster.delete("Pod", pod["metadata"]["name"], team, grace=1, uid=pod["metadata"]["uid"])
    return len(ours)
