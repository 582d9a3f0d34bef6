"""All JobSets of a cluster at a glance, with two list calls and a few small ones: this store's, colleagues', and those
that somebody sent with kubectl. What is not ours can be looked at; it is touched only after it was adopted.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from tpukit.errors import Conflict, Denied, NotFound, TpukitError
from tpukit.kube import Cluster, Docs
from tpukit.places.base import HostView, Line
from tpukit.places.gke.look import JOBSET, Doc, Found, label, seconds
from tpukit.places.gke.sight import allowed
from tpukit.reasons import State
from tpukit.teams.waiting import Queues
from tpukit.teams.waiting import why as why_in_queue

ADOPTED = "tpukit.dev/adopted-by"
"""Annotation of a JobSet that somebody sent by other means and a person has taken over."""
_INDEX = "batch.kubernetes.io/job-completion-index"
_SHOWN = {"Pending": "waiting", "Running": "running", "Succeeded": "ended", "Failed": "ended"}


@dataclass(frozen=True, slots=True)
class Summary:
    """One JobSet."""

    team: str
    name: str
    state: State
    attempt: int
    tpu: str
    slices: int
    created: float
    ended: float
    message: str
    sender: str  # the store that sent it; empty where tpukit did not
    adopted_by: str
    by: str  # the program that made it

    @property
    def id(self) -> str:
        return f"{self.team}/{self.name}"


def summaries(cluster: Cluster, teams: Sequence[str] = ()) -> list[Summary]:
    """Newest first. Whoever may not look everywhere gives the teams to look at."""
    jobsets, workloads = _list(cluster, "JobSet", teams), _list(cluster, "Workload", teams)
    by_owner = {owner["uid"]: one for one in workloads for owner in one["metadata"].get("ownerReferences", [])}
    found = [Found(one, by_owner.get(one["metadata"]["uid"])) for one in jobsets]
    queues = None
    if any(one.admitted_at is None and not one.finished for one in found):
        local_queues = _list(cluster, "LocalQueue", teams)
        cluster_queues, flavors = allowed(cluster, "ClusterQueue"), allowed(cluster, "ResourceFlavor")
        if cluster_queues is not None and flavors is not None:
            queues = Queues(workloads, local_queues, cluster_queues, flavors)
    return sorted((_summary(one, queues) for one in found), key=lambda one: -one.created)


def find(cluster: Cluster, name: str, teams: Sequence[str] = ()) -> Summary:
    """By TEAM/NAME, or by a name that one team alone has."""
    found = [one for one in summaries(cluster, teams) if name in (one.id, one.name)]
    if not found:
        raise NotFound(f"there is no job {name}, here or on {cluster.server}", hint="`tpu job list` shows all")
    if len(found) > 1:
        raise NotFound(f"{name} could be {', '.join(one.id for one in found)}", hint="write the team before it")
    return found[0]


def hosts(cluster: Cluster, job: Summary) -> list[HostView]:
    return sorted((_host(pod) for pod in _pods(cluster, job)), key=lambda host: (host.slice, host.index, host.name))


def logs(cluster: Cluster, job: Summary, *, follow: bool) -> Iterator[Line]:
    """Of the pods that are there now, host by host; with `follow`, of all at once as lines come, until they end."""
    pods = [pod for pod in _pods(cluster, job) if pod.get("status", {}).get("phase", "Pending") != "Pending"]
    pods.sort(key=lambda pod: str(pod["metadata"]["name"]))
    if not follow:
        for pod in pods:
            yield from _lines(cluster, pod, follow=False)
        return
    lines: SimpleQueue[Line | None] = SimpleQueue()

    def read(pod: Doc) -> None:
        try:
            for line in _lines(cluster, pod, follow=True):
                lines.put(line)
        except TpukitError as error:
            lines.put(Line(_name(pod), f"(its log ends here: {error.message})"))
        finally:
            lines.put(None)

    for pod in pods:
        threading.Thread(target=read, args=(pod,), daemon=True).start()
    left = len(pods)
    while left:
        line = lines.get()
        if line is None:
            left -= 1
        else:
            yield line


def adopt(cluster: Cluster, job: Summary, owner: str) -> None:
    cluster.patch("JobSet", job.name, {"metadata": {"annotations": {ADOPTED: owner}}}, job.team)


def stop(cluster: Cluster, job: Summary) -> None:
    if not job.adopted_by:
        raise Conflict(f"{job.id} was sent by others", hint=f"`tpu job adopt {job.id}` takes it over first")
    cluster.delete("JobSet", job.name, job.team, foreground=True)


def again(cluster: Cluster, job: Summary) -> None:
    """Send it once more as it was sent; where it goes on from is its program's affair."""
    if not job.adopted_by:
        raise Conflict(f"{job.id} was sent by others", hint=f"`tpu job adopt {job.id}` takes it over first")
    if not job.state.ended:
        raise Conflict(f"{job.id} is {job.state}", hint=f"`tpu job stop {job.id}` first")
    old = cluster.get("JobSet", job.name, job.team)
    spec: dict[str, Any] = {key: value for key, value in old["spec"].items() if key != "suspend"}
    kept = {
        key: old["metadata"][key] for key in ("name", "namespace", "labels", "annotations") if key in old["metadata"]
    }
    cluster.delete("JobSet", job.name, job.team, foreground=True)
    cluster.create({"apiVersion": old["apiVersion"], "kind": "JobSet", "metadata": kept, "spec": spec})


def _list(cluster: Cluster, kind: str, teams: Sequence[str]) -> Docs:
    try:
        return cluster.list(kind)
    except Denied:
        if not teams:
            raise
        return [one for team in teams for one in cluster.list(kind, team)]


def _lines(cluster: Cluster, pod: Doc, *, follow: bool) -> Iterator[Line]:
    container = pod["spec"]["containers"][0]["name"]
    namespace = pod["metadata"]["namespace"]
    for line in cluster.logs(pod["metadata"]["name"], namespace, container=container, follow=follow):
        yield Line(_name(pod), line)


def _name(pod: Doc) -> str:
    return str(pod["metadata"]["name"].rpartition("-")[0])


def _pods(cluster: Cluster, job: Summary) -> Docs:
    return cluster.list("Pod", job.team, labels=f"{JOBSET}jobset-name={job.name}")


def _summary(found: Found, queues: Queues | None) -> Summary:
    assert found.jobset is not None
    metadata, spec = found.jobset["metadata"], found.jobset["spec"]
    trains = max(spec.get("replicatedJobs", [{}]), key=_chips)
    selector = _pod_spec(trains).get("nodeSelector", {})
    words = [selector.get(f"cloud.google.com/gke-tpu-{part}", "") for part in ("accelerator", "topology")]
    state, message, ended = _state(found, queues)
    managers = [
        one.get("manager", "") for one in metadata.get("managedFields", []) if one.get("subresource") != "status"
    ]
    return Summary(
        metadata["namespace"],
        metadata["name"],
        state,
        found.attempt,
        " ".join(filter(None, words)) or "-",
        int(trains.get("replicas", 1)),
        seconds(metadata["creationTimestamp"]),
        ended,
        message,
        found.sender,
        str(metadata.get("annotations", {}).get(ADOPTED, "")),
        managers[0] if managers else "",
    )


def _state(found: Found, queues: Queues | None) -> tuple[State, str, float]:
    for kind, state in (("Completed", State.COMPLETED), ("Failed", State.FAILED)):
        if condition := found.condition(kind):
            return state, str(condition.get("message", "")), seconds(condition["lastTransitionTime"])
    if found.leaving:
        return State.RUNNING, "is being removed", 0.0
    if found.admitted_at is not None:
        return State.RUNNING, "", 0.0
    why = why_in_queue(found.workload, queues) if found.workload and queues else ""
    return State.SCHEDULED, why or "waits in the queue of its team", 0.0


def _host(pod: Doc) -> HostView:
    status = pod.get("status", {})
    ended = next(
        (
            one["state"]["terminated"]
            for one in status.get("containerStatuses", [])
            if "terminated" in one.get("state", {})
        ),
        None,
    )
    return HostView(
        _name(pod),
        slice=int(label(pod, f"{JOBSET}job-index") or 0),
        index=int(label(pod, _INDEX) or 0),
        state=_SHOWN.get(status.get("phase", "Pending"), "lost"),
        node=pod["spec"].get("nodeName") or "",
        code=ended["exitCode"] if ended else None,
    )


def _pod_spec(replicated: Doc) -> Doc:
    spec: Doc = replicated.get("template", {}).get("spec", {}).get("template", {}).get("spec", {})
    return spec


def _chips(replicated: Doc) -> int:
    """Of one host, for finding the part that trains."""
    containers = _pod_spec(replicated).get("containers", [])
    return sum(int(one.get("resources", {}).get("limits", {}).get("google.com/tpu", 0)) for one in containers)
