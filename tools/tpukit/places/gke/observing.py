"""What became of an attempt: its JobSet as the cluster has it now, with what was kept of its pods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tpukit.clock import Clock
from tpukit.places.base import Handle, Observation
from tpukit.places.gke import ends, look, waiting
from tpukit.places.gke.files import Files, pod_host
from tpukit.places.gke.keeper import Keeper
from tpukit.places.gke.look import JOBSET, Doc, Found, label
from tpukit.places.gke.sight import Sight
from tpukit.places.verdict import Verdict
from tpukit.plan import SLICE_JOB
from tpukit.reasons import Reason, State

IMAGE_SECONDS = 120.0
"""So long a host may try to get an image that is not there, before the job gives its slices back."""
LAST_LINES_SECONDS = 3.0
_GONE = "its JobSet is gone: deleted by somebody, or ended more than a day ago while nobody looked"


@dataclass(frozen=True, slots=True)
class Observer:
    root: Path
    sight: Sight
    keeper: Keeper
    clock: Clock

    def observe(self, handle: Handle) -> Observation:
        found = self.sight.look(handle.plan).find(handle.plan.id)
        files = Files.of(self.root, handle)
        if found.jobset is None:
            return self._without_jobset(handle, found, files)
        if handle.attempt.number > found.attempt:
            return Observation(State.PENDING, files.hosts(), saved=_saved(files))
        if handle.attempt.number < found.attempt:
            return self._overtaken(handle, found, files)
        return self._present(handle, found, files)

    def keep(self, handle: Handle, files: Files, pods: Sequence[Doc]) -> None:
        """Remember each pod as it is, and write down what it prints."""
        nodes = self.sight.nodes(handle.plan, pods)
        for pod in pods:
            folder = files.host(pod_host(pod))
            kept = self.keeper.remember(folder, pod, nodes.get(pod["spec"].get("nodeName") or ""))
            if kept.phase != "Pending":
                self.keeper.follow(self.sight.cluster(handle.plan), pod, folder)

    def _present(self, handle: Handle, found: Found, files: Files) -> Observation:
        """The attempt that the JobSet is at."""
        plan, pods = handle.plan, found.current_pods()
        files.begin(found)
        self.keep(handle, files, pods)
        if found.finished:
            self.keeper.settle(pods, LAST_LINES_SECONDS)
            if found.condition("Completed"):
                return Observation(State.COMPLETED, files.hosts(over=True), _started(files), _saved(files), Reason.DONE)
            return _ended(files, ends.why(found, files.kept(), files.tails()))
        trouble = ends.image_trouble(pods)
        if trouble and trouble.hopeless:
            oldest = min(look.seconds(pod["metadata"]["creationTimestamp"]) for pod in pods)
            if self.clock.now() - oldest > IMAGE_SECONDS:
                return _ended(files, Verdict(Reason.BAD_IMAGE, trouble.host, trouble.said), followed=True)
        hosts = [pod for pod in pods if label(pod, f"{JOBSET}replicatedjob-name") == SLICE_JOB]
        begun = [pod for pod in hosts if pod.get("status", {}).get("phase", "Pending") != "Pending"]
        ending = handle.attempt.state is State.RUNNING and found.admitted_at is not None  # they were all there once
        if len(begun) < plan.hosts and not ending:
            why = "its hosts are leaving" if found.leaving else waiting.why(plan, found, self.sight.around(plan))
            return Observation(State.SCHEDULED, files.hosts(), _started(files), _saved(files), detail=why)
        return Observation(State.RUNNING, files.hosts(), _started(files), _saved(files))

    def _without_jobset(self, handle: Handle, found: Found, files: Files) -> Observation:
        """It was never made, or it is gone."""
        if found.pods:
            return Observation(State.RUNNING, files.hosts(), _started(files), _saved(files))
        if handle.attempt.stopping:
            return _ended(files, Verdict(Reason.CANCELLED))
        if files.begun():  # it was there
            return _ended(files, Verdict(Reason.CANCELLED, detail=_GONE))
        return Observation(State.PENDING, files.hosts(), saved=_saved(files))

    def _overtaken(self, handle: Handle, found: Found, files: Files) -> Observation:
        """The JobSet is at a later attempt: how did this one end?"""
        after = Files.of(self.root, handle, handle.attempt.number + 1)
        if found.attempt == handle.attempt.number + 1:
            after.begin(found)
        self.keep(handle, files, [pod for pod in found.pods if files.knows(pod)])
        began, next_began = files.begun(), after.begun()
        evicted = found.evictions > int(began.get("evictions", found.evictions))
        if evicted and found.restarts == int(began.get("restarts", -1)):
            queues = self.sight.around(handle.plan).queues
            said = ends.evicted(found.workload, queues.workloads if queues else ())
            return _ended(files, said, followed=not found.finished)
        rule = str(next_began.get("rule", ""))
        if not rule and found.counted > int(began.get("counted", found.counted)):
            rule = "userError"
        return _ended(files, ends.restarted(rule, files.kept(), files.tails()), followed=not found.finished)


def _ended(files: Files, said: Verdict, *, followed: bool = False) -> Observation:
    return Observation(
        State.FAILED,
        files.hosts(over=True),
        _started(files),
        _saved(files),
        said.reason,
        said.host,
        said.detail,
        followed,
    )


def _started(files: Files) -> float:
    return max((kept.began for kept in files.kept().values() if kept), default=0.0)


def _saved(files: Files) -> int:
    return max((host.saved for host in files.hosts()), default=-1)
