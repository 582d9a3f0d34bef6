"""A cluster in memory that acts by itself, with an unreliable API server.

Between any two calls, JobSets, Workloads and pods may be queued, run, restarted, evicted, preempted, deleted and
forgotten; the API server may lose answers, refuse, or be unavailable. Counts, conditions, names and labels follow
Kubernetes 1.36, JobSet 0.12 and Kueue 0.16, as far as the gke place can see them. A seed makes it repeatable.
"""

from __future__ import annotations

import copy
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from tpukit.core import fence
from tpukit.core.clock import ManualClock
from tpukit.core.errors import Conflict, Denied, Invalid, NotFound, Transient
from tpukit.places.gke.jobsets import NAME, REPLICATED_JOB, RESTART, UID
from tpukit.places.gke.namespace import Lister
from tpukit.teams.boosts import BOOST

Doc = dict[str, Any]
Docs = list[Doc]
TERMINAL = ("Succeeded", "Failed")


class Killed(BaseException):
    """The driving process is killed: nothing of it may continue, not even its error handlers."""


class DirectLister(Lister):
    """A lister that lists pods directly: a mirror needs a thread and a clock that advances by itself."""

    def _pods(self, namespace):
        return self.cluster.list("Pod", namespace, labels=NAME)


class FakeCluster:
    server = "https://fake.example"

    def __init__(self, clock: ManualClock, seed: int = 0) -> None:
        self.clock, self.dice = clock, random.Random(seed)
        self.objects: dict[str, dict[tuple[str, str], Doc]] = {}
        self.printed: dict[str, list[str]] = {}  # by uid of the pod
        self.calls = 0
        self.log: list[str] = []
        self.asked: Counter[str] = Counter()
        self.faults: dict[int, str] = {}  # by number of the call: refused | lost | killed | killed after
        self.meanwhile: Callable[[], object] = lambda: None  # called before every call
        self.away = False
        self.truth: dict[str, list[str]] = {}  # causes that ended attempts of each JobSet: evicted | hardware | user
        self.hidden: set[str] = set()  # namespaces that this identity must not list; "" means all of them at once
        self.denied: set[str] = set()  # kinds that this identity must not patch
        self.follows_boosts = True  # Kueue's feature PriorityBoost is on
        self.refuse: str = ""  # message with which the API server refuses a JobSet
        self.dead_nodes: set[str] = set()  # their pods neither end nor leave
        self._uids = itertools.count(1)
        self._ticks = itertools.count(1)

    # Calls of the place.

    def identity(self, *, seconds: float = 20.0) -> str:
        return "uid-of-fake"

    def list(self, kind, namespace="", *, labels="", fields="", type=None, seconds=20.0) -> Docs:  # noqa: A002
        with self._call(f"list {kind}"):
            if namespace in self.hidden:
                raise Denied(f"list of {kind} in {namespace or 'all namespaces'} is forbidden")
            key, _, value = labels.partition("=")
            return [
                copy.deepcopy(one)
                for (team, _), one in self._kind(kind).items()
                if namespace in ("", team) and (not key or _matches(one, key, value))
            ]

    def list_metadata(self, kind, namespace="", *, labels="", seconds=20.0) -> Docs:
        return [{"metadata": one["metadata"]} for one in self.list(kind, namespace, labels=labels)]

    def get(self, kind, name, namespace="", *, seconds=20.0) -> Doc:
        with self._call(f"get {kind}"):
            return copy.deepcopy(self._get(kind, namespace, name))

    def create(self, document, *, part="", name="", seconds=20.0) -> Doc:
        kind, metadata = document["kind"], document["metadata"]
        with self._call(f"create {kind}"):
            if kind == "JobSet" and self.refuse:
                raise Invalid(self.refuse)
            key = (metadata["namespace"], metadata["name"])
            if key in self._kind(kind):
                raise Conflict(f"{kind} {metadata['name']} already exists")
            made = self._add(kind, copy.deepcopy(document))
            if kind == "JobSet":
                self._queue(made)
            return copy.deepcopy(made)

    def apply(self, document, *, manager="tpukit", force=True, dry_run=False, seconds=20.0) -> Doc:
        kind, metadata = document["kind"], document["metadata"]
        with self._call(f"apply {kind}"):
            if dry_run:
                return copy.deepcopy(document)
            known = self._kind(kind).get((metadata["namespace"], metadata["name"]))
            if known is None:
                return copy.deepcopy(self._add(kind, copy.deepcopy(document)))
            known.update({key: copy.deepcopy(value) for key, value in document.items() if key != "metadata"})
            return copy.deepcopy(known)

    def patch(
        self, kind, name, change, namespace="", *, part="", way="merge", uid="", version="", dry_run=False, seconds=20.0
    ) -> Doc:  # fmt: skip
        with self._call(f"patch {kind}"):
            known = self._get(kind, namespace, name)
            if uid and known["metadata"]["uid"] != uid:
                raise Conflict(f"{kind} {name} has another uid")
            if version and known["metadata"]["resourceVersion"] != version:
                raise Conflict(f"{kind} {name} has changed")
            if kind in self.denied:
                raise Denied(f"patch of {kind} is forbidden")
            notes = change.get("metadata", {}).get("annotations", {})
            if self.follows_boosts and not str(notes.get(BOOST) or 0).lstrip("-").isdigit():
                raise Denied(f"admission webhook denied the request: metadata.annotations[{BOOST}]: Invalid value")
            if dry_run:
                return copy.deepcopy(known)
            known["metadata"]["resourceVersion"] = str(next(self._ticks))
            known.setdefault("spec", {}).update(change.get("spec", {}))
            for key, value in notes.items():
                if value is None:
                    known["metadata"].setdefault("annotations", {}).pop(key, None)
                else:
                    known["metadata"].setdefault("annotations", {})[key] = value
            return copy.deepcopy(known)

    def delete(self, kind, name, namespace="", *, grace=None, foreground=False, uid="", version="", seconds=20.0):
        with self._call(f"delete {kind}"):
            known = self._kind(kind).get((namespace, name))
            if known is None:
                return
            if uid and known["metadata"]["uid"] != uid:
                raise Conflict(f"{kind} {name} has another uid")
            if version and known["metadata"]["resourceVersion"] != version:
                raise Conflict(f"{kind} {name} has changed")
            if kind == "JobSet":
                assert foreground, "a JobSet that is not there any more says nothing of its pods"
                known["metadata"].setdefault("deletionTimestamp", self.time())
                for pod in self.pods(name, namespace):
                    pod["metadata"].setdefault("deletionTimestamp", self.time())
            elif kind == "Pod":
                known["metadata"].setdefault("deletionTimestamp", self.time())
                known["metadata"]["deletionGracePeriodSeconds"] = grace
            else:
                del self._kind(kind)[namespace, name]

    def call(self, method, path, query=None, *, body=None, content="", seconds=20.0) -> Doc:
        assert (method, path.rpartition("/")[2]) == ("POST", "selfsubjectaccessreviews")
        asked = body["spec"]["resourceAttributes"]
        with self._call("review access"):
            return {"status": {"allowed": {"jobs": "Job"}[asked["resource"]] not in self.denied}}

    def logs(
        self, pod, namespace, *, container="", follow=False, previous=False, timestamps=False, tail=None, since="",
        limit_bytes=None, seconds=20.0,
    ) -> Iterator[str]:  # fmt: skip
        with self._call("logs"):
            known = self._get("Pod", namespace, pod)
            if known["status"]["phase"] == "Pending":
                raise Invalid(f"container {container} in pod {pod} is waiting to start")
            lines = [line for line in self.printed.get(known["metadata"]["uid"], []) if line >= since.removesuffix("Z")]
        left = float("inf") if limit_bytes is None else limit_bytes
        for line in lines:
            if left <= 0:
                return
            yield line[: int(min(left, len(line)))]
            left -= len(line) + 1

    # Events in the cluster.

    def time(self) -> str:
        return _stamp(self.clock.now())

    def jobset(self, name: str, namespace: str = "research") -> Any:
        """Return the JobSet, or None."""
        return self._kind("JobSet").get((namespace, name))

    def workload(self, name: str, namespace: str = "research") -> Doc:
        return self._get("Workload", namespace, f"jobset-{name}")

    def pods(self, name: str, namespace: str = "research") -> Docs:
        return [
            one
            for (team, _), one in self._kind("Pod").items()
            if team == namespace and one["metadata"]["labels"][NAME] == name
        ]

    def live(self, name: str) -> bool:
        """Return whether anything of the job runs or will run."""
        jobset = self.jobset(name)
        unfinished = jobset is not None and not _finished(jobset)
        return unfinished or any(pod["status"]["phase"] not in TERMINAL for pod in self.pods(name))

    def say(self, pod: Doc, text: str) -> None:
        number = next(self._ticks)
        stamp = f"{_stamp(self.clock.now())[:-1]}.{number:09}Z"
        self.printed.setdefault(pod["metadata"]["uid"], []).append(f"{stamp} {text}")

    def admit(self, name: str) -> None:
        workload, jobset = self.workload(name), self.jobset(name)
        _set(workload, "Admitted", "True", at=self.time())
        _set(workload, "Evicted", "False", at=self.time())
        jobset["spec"]["suspend"] = False
        self._make_pods(jobset)

    def start(self, name: str) -> None:
        for pod in self.pods(name):
            if pod["status"]["phase"] == "Pending":
                pod["status"] |= {"phase": "Running", "startTime": self.time()}
                pod["status"]["containerStatuses"] = [{"name": "host", "image": "i", "state": {"running": {}}}]

    def evict(self, name: str) -> None:
        workload, jobset = self.workload(name), self.jobset(name)
        stats = workload["status"].setdefault("schedulingStats", {}).setdefault("evictions", [])
        if not stats:
            stats.append({"reason": "Preempted", "underlyingCause": "", "count": 0})
        stats[0]["count"] += 1
        _set(workload, "Evicted", "True", "Preempted", at=self.time())
        jobset["spec"]["suspend"] = True
        for pod in self.pods(name):
            pod["metadata"].setdefault("deletionTimestamp", self.time())
        self.truth.setdefault(name, []).append("evicted")

    def leave(self, name: str) -> None:
        """Remove pods that were told to leave, and a JobSet that was waiting for them."""
        for pod in self.pods(name):
            if "deletionTimestamp" in pod["metadata"] and pod["spec"]["nodeName"] not in self.dead_nodes:
                del self._kind("Pod")[pod["metadata"]["namespace"], pod["metadata"]["name"]]
        workload = self._kind("Workload").get(("research", f"jobset-{name}"))
        if workload and _true(workload, "Evicted") and _true(workload, "Admitted"):
            _set(workload, "Admitted", "False", at=self.time())
        jobset = self.jobset(name)
        if jobset and "deletionTimestamp" in jobset["metadata"] and not self.pods(name):
            self.forget(name)

    def forget(self, name: str) -> None:
        """Remove a JobSet, as after the TTL of a finished one."""
        for kind, own in (("JobSet", name), ("Workload", f"jobset-{name}")):
            self._kind(kind).pop(("research", own), None)
        for pod in self.pods(name):
            del self._kind("Pod")["research", pod["metadata"]["name"]]

    def fail(self, name: str, how: str, host: int = -1, *, pods_stay: bool = True) -> None:
        """Fail a job as `how` (preempted | peerLost | userError); JobSet then applies its rules."""
        pods = [pod for pod in self.pods(name) if "deletionTimestamp" not in pod["metadata"]]
        codes = {"preempted": 143, "peerLost": 134, "userError": 1}
        for index, pod in enumerate(pods):
            culprit = index == host % len(pods)
            code = codes[how] if culprit or how != "userError" else 134
            ended = {"exitCode": code, "reason": "Error", "finishedAt": self.time()}
            pod["status"] |= {"phase": "Failed"}
            pod["status"]["containerStatuses"] = [{"name": "host", "image": "i", "state": {"terminated": ended}}]
            if culprit and how == "preempted":
                _set(pod, "DisruptionTarget", "True", "TerminationByKubelet", at=self.time())
            if culprit and how == "userError":
                self.say(pod, "ValueError: it broke")
        self.react(name, how, pods_stay=pods_stay)

    def react(self, name: str, how: str, *, pods_stay: bool = True) -> None:
        """Apply JobSet's rules after a Job has failed with `how`."""
        pods = [pod for pod in self.pods(name) if "deletionTimestamp" not in pod["metadata"]]
        jobset = self.jobset(name)
        policy = jobset["spec"]["failurePolicy"]
        action = next(rule["action"] for rule in policy["rules"] if rule["name"] == how)
        status = jobset["status"]
        counted = status.get("restartsCountTowardsMax", 0)
        if action == "FailJobSet" or (action == "RestartJobSet" and counted >= policy["maxRestarts"]):
            _set(jobset, "Failed", "True", "FailedJobs", at=self.time())
            self.truth.setdefault(name, []).append("user" if how == "userError" else "hardware")
            return
        status["restarts"] = status.get("restarts", 0) + 1
        if action == "RestartJobSet":
            status["restartsCountTowardsMax"] = counted + 1
        _set(jobset, "RestartingJobSet", "True", f"FailurePolicy_{how}", at=self.time())
        self.truth.setdefault(name, []).append("user" if how == "userError" else "hardware")
        for pod in pods:
            pod["metadata"]["deletionTimestamp"] = self.time()
        if not pods_stay:
            self.leave(name)

    def restart(self, name: str) -> None:
        """Create the hosts of the next attempt, after the last ones are gone."""
        self.leave(name)
        self._make_pods(self.jobset(name))

    def complete(self, name: str) -> None:
        for pod in self.pods(name):
            ended = {"exitCode": 0, "reason": "Completed", "finishedAt": self.time()}
            pod["status"] |= {"phase": "Succeeded"}
            pod["status"]["containerStatuses"] = [{"name": "host", "image": "i", "state": {"terminated": ended}}]
        _set(self.jobset(name), "Completed", "True", "AllJobsCompleted", at=self.time())

    def step(self, *, calm: bool = False) -> None:
        """Let something happen to each JobSet, or not."""
        for _, name in list(self._kind("JobSet")):
            if calm or self.dice.random() < 0.5:
                self._step(name, calm)

    def _step(self, name: str, calm: bool) -> None:
        jobset, pods = self.jobset(name), self.pods(name)
        if "deletionTimestamp" in jobset["metadata"] or any("deletionTimestamp" in one["metadata"] for one in pods):
            return self.leave(name)
        if _finished(jobset):
            return None
        workload = self.workload(name)
        if not _true(workload, "Admitted"):
            return self.admit(name)
        if not pods:
            return self._make_pods(jobset)
        if any(pod["status"]["phase"] == "Pending" for pod in pods):
            return self.start(name)
        if calm:
            return self.complete(name)
        how = self.dice.choice(["evict", "preempted", "peerLost", "userError", "complete", "", "", ""])
        if how == "evict":
            return self.evict(name)
        if how == "complete":
            return self.complete(name)
        return self.fail(name, how, self.dice.randrange(9), pods_stay=self.dice.random() < 0.5) if how else None

    # Internals.

    def _queue(self, jobset: Doc) -> None:
        name, namespace = jobset["metadata"]["name"], jobset["metadata"]["namespace"]
        jobset["spec"]["suspend"] = True
        jobset.setdefault("status", {"conditions": []})
        owner = {"kind": "JobSet", "name": name, "uid": jobset["metadata"]["uid"]}
        metadata = {"name": f"jobset-{name}", "namespace": namespace, "ownerReferences": [owner]}
        spec = {"podSets": [], "queueName": namespace}
        self._kind("Workload").pop((namespace, f"jobset-{name}"), None)
        self._add("Workload", {"metadata": metadata, "spec": spec, "status": {"conditions": []}})

    def _make_pods(self, jobset: Doc) -> None:
        metadata, spec = jobset["metadata"], jobset["spec"]["replicatedJobs"][0]
        for index in range(spec["replicas"]):
            for host in range(spec["template"]["spec"]["parallelism"]):
                labels = {
                    NAME: metadata["name"],
                    UID: metadata["uid"],
                    RESTART: str(jobset["status"].get("restarts", 0)),
                    REPLICATED_JOB: spec["name"],
                }
                name = f"{metadata['name']}-{spec['name']}-{index}-{host}-{next(self._uids):05}"
                pod = {
                    "metadata": {"name": name, "namespace": metadata["namespace"], "labels": labels},
                    "spec": {"nodeName": f"node-{index}-{host}", "containers": [{"name": "host"}]},
                    "status": {"phase": "Pending", "conditions": []},
                }
                self._add("Pod", pod)

    def _add(self, kind: str, document: Doc) -> Doc:
        metadata = document["metadata"]
        metadata |= {"uid": f"uid-{next(self._uids)}", "creationTimestamp": self.time()}
        metadata["resourceVersion"] = str(next(self._ticks))
        self._kind(kind)[metadata["namespace"], metadata["name"]] = document
        return document

    def _kind(self, kind: str) -> dict[tuple[str, str], Doc]:
        return self.objects.setdefault(kind, {})

    def _get(self, kind: str, namespace: str, name: str) -> Doc:
        try:
            return self._kind(kind)[namespace, name]
        except KeyError:
            raise NotFound(f"{kind} {name} not found") from None

    def _call(self, name: str):
        return _Call(self, name)


class _Call:
    """A call with injected faults before and after it."""

    def __init__(self, cluster: FakeCluster, name: str) -> None:
        self._cluster, self._name = cluster, name

    def __enter__(self) -> None:
        cluster = self._cluster
        cluster.meanwhile()
        if self._name.startswith(("create", "apply", "patch", "delete")):
            fence.check()
        self._fault = cluster.faults.pop(cluster.calls, "")
        cluster.calls += 1
        cluster.log.append(self._name)
        cluster.asked[self._name] += 1
        if self._fault == "killed":
            raise Killed
        if cluster.away or self._fault == "refused":
            raise Transient(f"{cluster.server} does not respond")

    def __exit__(self, kind, error, trace) -> None:
        if error is None and self._fault == "lost":
            raise Transient(f"the answer to {self._name} was lost")
        if error is None and self._fault == "killed after":
            raise Killed


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _matches(document: Doc, key: str, value: str) -> bool:
    labels = document["metadata"].get("labels", {})
    return key in labels and value in ("", labels[key])


def _set(document: Doc, kind: str, status: str, reason: str = "", *, at: str) -> None:
    document["metadata"]["resourceVersion"] = f"{document['metadata'].get('resourceVersion', '')}+"
    conditions = document["status"].setdefault("conditions", [])
    conditions[:] = [one for one in conditions if one["type"] != kind]
    conditions.append({"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": at})


def _true(document: Doc, kind: str) -> bool:
    return any(one["type"] == kind and one["status"] == "True" for one in document["status"].get("conditions", []))


def _finished(jobset: Doc) -> bool:
    return _true(jobset, "Completed") or _true(jobset, "Failed")
