"""All JobSets of a cluster, including other users', with two list requests and a few small ones.

JobSets that this store did not send are listed, and changed only after they were adopted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, Denied, NotFound, TpukitError, Transient
from tpukit.jobs.reasons import State
from tpukit.jobs.render.jobset import OWNER, SENT
from tpukit.kube import Cluster, Docs
from tpukit.kube.documents import SLIM
from tpukit.kube.together import together
from tpukit.places.base import HostView, Line, Unmanaged
from tpukit.places.gke import log_lines
from tpukit.places.gke.jobsets import JOBSET, NAME, Doc, JobSetState, host_of, label, phase, seconds
from tpukit.places.gke.namespace import allowed
from tpukit.places.gke.pod_log import PodLog, Target
from tpukit.places.gke.rerunning import RERUN, pending_of
from tpukit.teams.waiting import Queues
from tpukit.teams.waiting import why as why_in_queue

ADOPTED = "tpukit.dev/adopted-by"
"""Annotation of a JobSet that was sent by other means and adopted by a user."""
FOLLOW_SECONDS = 1.0
_INDEX = "batch.kubernetes.io/job-completion-index"
_SHOWN = {"Pending": "waiting", "Running": "running", "Succeeded": "ended", "Failed": "ended"}


def listed(cluster: Cluster, teams: Sequence[str] = ()) -> list[Unmanaged]:
    """Return all JobSets, newest first. `teams` are the namespaces to list without the permission to list all."""
    jobsets, workloads, reruns = together(
        *(partial(_list, cluster, kind, teams) for kind in ("JobSet", "Workload")), partial(_reruns, cluster, teams)
    )
    by_owner = {owner["uid"]: one for one in workloads for owner in one["metadata"].get("ownerReferences", [])}
    states = [JobSetState(one, by_owner.get(one["metadata"]["uid"])) for one in jobsets]
    queues = None
    if any(one.admitted_at is None and not one.finished for one in states):
        local_queues, cluster_queues, flavors = together(
            partial(_list, cluster, "LocalQueue", teams),
            *(partial(allowed, cluster, kind) for kind in ("ClusterQueue", "ResourceFlavor")),
        )
        if cluster_queues is not None and flavors is not None:
            queues = Queues(workloads, local_queues, cluster_queues, flavors)
    there = {(one["metadata"]["namespace"], one["metadata"]["name"]) for one in jobsets}
    half_way = [one for one in _half_way(reruns) if (one.team, one.id.partition("/")[2]) not in there]
    return sorted([*(_described(one, queues) for one in states), *half_way], key=lambda one: -one.created)


def hosts(cluster: Cluster, job: Unmanaged) -> list[HostView]:
    return sorted((_host(pod) for pod in _pods(cluster, job)), key=lambda host: (host.slice, host.index, host.name))


def logs(cluster: Cluster, job: Unmanaged, clock: Clock, *, follow: bool) -> Iterator[Line]:
    """Yield lines of the current pods, host by host; with `follow`, of all in turn as lines come, until they end."""
    readers: dict[str, PodLog] = {}
    while True:
        try:
            pods = [pod for pod in _pods(cluster, job) if phase(pod) != "Pending"]
        except Transient:
            if not follow:
                raise
            clock.sleep(FOLLOW_SECONDS)
            continue
        for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["name"])):
            reader = readers.setdefault(pod["metadata"]["uid"], PodLog(Target.of(cluster, pod)))
            try:
                for text, at in log_lines.timed(reader.rest()):
                    yield Line(reader.target.host, text, at)
            except TpukitError as error:
                if not follow:
                    yield Line(reader.target.host, f"(its log ends here: {error.message})")
        if not follow or not any(phase(pod) == "Running" for pod in pods):
            return
        clock.sleep(FOLLOW_SECONDS)


def adopt(cluster: Cluster, job: Unmanaged, owner: str) -> None:
    name = job.id.partition("/")[2]
    uid = cluster.get("JobSet", name, job.team)["metadata"]["uid"]
    cluster.patch("JobSet", name, {"metadata": {"annotations": {ADOPTED: owner}}}, job.team, uid=uid)


def stop(cluster: Cluster, job: Unmanaged) -> None:
    """Delete exactly the JobSet that was adopted, and not a later one of the same name."""
    name = job.id.partition("/")[2]
    try:
        there = cluster.get("JobSet", name, job.team)
    except NotFound:
        return
    if ADOPTED not in (there["metadata"].get("annotations") or {}):
        raise Conflict(f"{job.id} was sent by others", hint=f"`tpu job adopt {job.id}` takes it over first")
    cluster.delete("JobSet", name, job.team, foreground=True, uid=there["metadata"]["uid"])


def _list(cluster: Cluster, kind: str, teams: Sequence[str], labels: str = "") -> Docs:
    slim = SLIM.get(kind)
    try:
        return cluster.list(kind, labels=labels, type=slim)
    except Denied:
        if not teams:
            raise
        return [one for team in teams for one in cluster.list(kind, team, labels=labels, type=slim)]


def _reruns(cluster: Cluster, teams: Sequence[str]) -> Docs:
    try:
        return _list(cluster, "ConfigMap", teams, labels=RERUN)
    except Denied:
        return []


def _half_way(reruns: Docs) -> Iterator[Unmanaged]:
    """Yield reruns whose old JobSet is gone and whose new one was not created, because the call was interrupted."""
    for one in reruns:
        if pending := pending_of(one):
            state = JobSetState(pending["jobset"])
            team, name = one["metadata"]["namespace"], pending["jobset"]["metadata"]["name"]
            created = seconds(one["metadata"].get("creationTimestamp"))
            message = f"is being sent again; `tpu job rerun {team}/{name}` continues"
            yield _summary(state, team, State.PENDING, message, created, 0.0)


def _pods(cluster: Cluster, job: Unmanaged) -> Docs:
    return cluster.list("Pod", job.team, labels=f"{NAME}={job.id.partition('/')[2]}", type=SLIM["Pod"])


def _described(state: JobSetState, queues: Queues | None) -> Unmanaged:
    assert state.jobset is not None
    metadata = state.jobset["metadata"]
    now, message, ended = _now(state, queues)
    return _summary(state, metadata["namespace"], now, message, seconds(metadata["creationTimestamp"]), ended)


def _summary(state: JobSetState, team: str, now: State, message: str, created: float, ended: float) -> Unmanaged:
    assert state.jobset is not None
    metadata, spec = state.jobset["metadata"], state.jobset.get("spec", {})
    trains = max(spec.get("replicatedJobs") or [{}], key=_chips)
    selector = _pod_spec(trains).get("nodeSelector", {})
    words = [selector.get(f"cloud.google.com/gke-tpu-{part}", "") for part in ("accelerator", "topology")]
    managers = [
        one.get("manager", "") for one in metadata.get("managedFields", []) if one.get("subresource") != "status"
    ]
    annotations = metadata.get("annotations") or {}
    adopted_by = str(annotations.get(ADOPTED, ""))
    sender = str(annotations.get(OWNER) or ("another tpukit" if state.sender else managers[0] if managers else ""))
    return Unmanaged(
        id=f"{team}/{metadata['name']}",
        team=team,
        state=now,
        created=_sent(annotations.get(SENT)) or created,
        ended=ended,
        message=message,
        owner=adopted_by or sender,
        tpu=" ".join(filter(None, words)) or "-",
        slices=int(trains.get("replicas", 1)),
        attempts=state.made_for + state.restarts + state.evictions + 1,
        adopted=bool(adopted_by),
    )


def _sent(text: str | None) -> float:
    """Parse a time; 0.0 if it is invalid, since other programs may write anything into an annotation."""
    try:
        return seconds(text)
    except ValueError:
        return 0.0


def _now(state: JobSetState, queues: Queues | None) -> tuple[State, str, float]:
    for kind, reached in (("Completed", State.COMPLETED), ("Failed", State.FAILED)):
        if condition := state.condition(kind):
            return reached, str(condition.get("message", "")), seconds(condition["lastTransitionTime"])
    if state.leaving:
        return State.RUNNING, "is being removed", 0.0
    if state.admitted_at is not None:
        return State.RUNNING, "", 0.0
    why = why_in_queue(state.workload, queues) if state.workload and queues else ""
    return State.SCHEDULED, why or "waits in the queue of its team", 0.0


def _host(pod: Doc) -> HostView:
    statuses = pod.get("status", {}).get("containerStatuses", [])
    ended = next((one["state"]["terminated"] for one in statuses if one.get("state", {}).get("terminated")), None)
    return HostView(
        host_of(pod),
        slice=int(label(pod, f"{JOBSET}job-index") or 0),
        index=int(label(pod, _INDEX) or 0),
        state=_SHOWN.get(phase(pod), "lost"),
        node=pod.get("spec", {}).get("nodeName") or "",
        code=ended["exitCode"] if ended else None,
    )


def _pod_spec(replicated: Doc) -> Doc:
    spec: Doc = replicated.get("template", {}).get("spec", {}).get("template", {}).get("spec", {})
    return spec


def _chips(replicated: Doc) -> int:
    """Return the chips of one host, to find the part that trains."""
    containers = _pod_spec(replicated).get("containers", [])
    return sum(int(one.get("resources", {}).get("limits", {}).get("google.com/tpu", 0)) for one in containers)
