"""The limit for hardware without a driver: a deadline on the Jobs of a JobSet, which a driver extends.

A JobSet takes no other deadline while it runs: its `replicatedJobs` are immutable
(https://github.com/kubernetes-sigs/jobset/blob/main/pkg/webhooks/jobset_webhook.go), and so is Kueue's label
`kueue.x-k8s.io/max-exec-time-seconds` outside of a suspension
(https://github.com/kubernetes-sigs/kueue/blob/main/pkg/controller/jobframework/validation.go). A Job does:
`activeDeadlineSeconds` is not among the fields that its validation keeps immutable
(https://github.com/kubernetes/kubernetes/blob/master/pkg/apis/batch/validation/validation.go, ValidateJobSpecUpdate),
and its controller checks again when the deadline changed (updateJob in pkg/controller/job/job_controller.go). The
deadline counts from the Job's start, so time in a queue does not count. A Job that a restart creates has the first
deadline.

Only what a driver sends has this deadline. A manifest that a user applies has no driver.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, Denied, LeaseLost, NotFound, TpukitError
from tpukit.jobs.plan import SLICE_JOB
from tpukit.kube import Cluster
from tpukit.places.base import Handle
from tpukit.places.gke.jobsets import REPLICATED_JOB, UID, Doc, JobSetState, label, seconds, true_condition

SHARE = 8
"""Divisor of the limit: a deadline is extended once that gains at least this part of the limit."""
DENIED_SECONDS = 600.0
"""Time between two tries of a driver without the permission, which may be granted meanwhile."""
_MOST = 10_000
_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def limit(document: dict[str, Any], unattended: int) -> None:
    """Set the first deadline on the slices of a JobSet that is to be created."""
    for replicated in document["spec"]["replicatedJobs"]:
        if replicated["name"] == SLICE_JOB:
            spec = replicated["template"]["spec"]
            spec["activeDeadlineSeconds"] = min(unattended, spec.get("activeDeadlineSeconds") or unattended)


def may_renew(cluster: Cluster, team: str) -> bool:
    """Return whether this identity may extend deadlines. Otherwise, a deadline would end a job that has a driver."""
    attributes = {"namespace": team, "group": "batch", "resource": "jobs", "verb": "patch"}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    try:
        return bool((cluster.call("POST", _REVIEW, body=body).get("status") or {}).get("allowed"))
    except LeaseLost:
        raise
    except TpukitError:
        return False


def later(job: Doc, unattended: int, runtime: int | None, now: float, since: float) -> int | None:
    """Return the deadline to set; None if it is not due. Pure.

    `since`: seconds since this driver last extended it or first saw it, on a clock that cannot be set. A wall clock
    that is behind would never find it due, so the deadline is extended by at least these seconds. It is never reduced.
    """
    current, started = job.get("spec", {}).get("activeDeadlineSeconds"), job.get("status", {}).get("startTime")
    if not current or not started:
        return None
    passed = max(0.0, now - seconds(started))
    wanted = int(max(passed + unattended, current + since))
    wanted = min(wanted, runtime) if runtime else wanted
    due = wanted - current >= unattended / SHARE or (wanted == runtime and wanted > current)
    return wanted if due else None


@dataclass(slots=True)
class Renewal:
    """A thread-safe renewer of the deadlines in one cluster."""

    cluster: Cluster
    clock: Clock
    _moved: dict[str, float] = field(default_factory=dict)  # by the Job's uid: when, on the clock that includes sleep
    _denied: dict[str, tuple[float, str]] = field(default_factory=dict)  # by team: when, and why
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def due(self, handle: Handle, state: JobSetState) -> Mapping[str, int]:
        """Return the deadlines to set, by the uid of the Job."""
        limits = handle.plan.spec.max
        now, elapsed = self.clock.now(), self.clock.elapsed()
        at, _ = self._denied.get(handle.plan.team, (-math.inf, ""))
        if not limits.unattended or state.leaving or state.finished or elapsed - at < DENIED_SECONDS:
            return {}
        wanted = {}
        with self._lock:
            if len(self._moved) > _MOST:
                self._moved.clear()
            for job in _slices(state):
                uid = str(job["metadata"]["uid"])
                since = elapsed - self._moved.setdefault(uid, elapsed)
                if (deadline := later(job, limits.unattended, limits.runtime, now, since)) is not None:
                    wanted[uid] = deadline
        return wanted

    def denied(self, handle: Handle) -> str:
        """Return why this driver cannot extend deadlines; empty if it can."""
        return self._denied.get(handle.plan.team, (0.0, ""))[1]

    def renew(self, handle: Handle, state: JobSetState) -> None:
        """Extend the deadlines that are due. A driver without the permission stays the job's driver; see `denied`."""
        wanted = self.due(handle, state)
        for job in _slices(state):
            uid, name = str(job["metadata"]["uid"]), str(job["metadata"]["name"])
            if uid not in wanted:
                continue
            try:
                change = {"spec": {"activeDeadlineSeconds": wanted[uid]}}
                self.cluster.patch("Job", name, change, handle.plan.team, uid=uid)
            except LeaseLost:
                raise
            except (Conflict, NotFound):
                continue  # a restart created another one, which has its own deadline
            except Denied as error:
                why = (
                    f"this driver may not renew the limit of max.unattended, which will end the job: {error.message}; "
                    "update the roles of teams and of `tpu serve`, which need the right to patch Jobs"
                )
                self._denied[handle.plan.team] = self.clock.elapsed(), why
                return
            self._denied.pop(handle.plan.team, None)
            with self._lock:
                self._moved[uid] = self.clock.elapsed()


def _slices(state: JobSetState) -> list[Doc]:
    return [
        job
        for job in state.jobs
        if label(job, UID) == state.uid
        and label(job, REPLICATED_JOB) == SLICE_JOB
        and not true_condition(job, "Failed")
        and not true_condition(job, "Complete")
    ]
