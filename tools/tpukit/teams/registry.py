"""Read, create, change and delete a cluster's teams. The only module here that accesses a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from tpukit.core import waiting
from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, Denied, NotFound, NotYet
from tpukit.jobs import render
from tpukit.jobs.render import kueue
from tpukit.jobs.render.kueue import EGRESS, MADE_WITH, MEMBER, Subject
from tpukit.kube import KINDS, Cluster, Kind
from tpukit.kube.together import together
from tpukit.teams import lock, naming, quotas, settling, transition, usage, workloads
from tpukit.teams.team import Request, Team, member, subject
from tpukit.teams.waiting import Queues
from tpukit.teams.workloads import Doc

PATIENCE_SECONDS = 300.0
"""Time limit for deletions: pods may use their grace period to save."""
_POLL_SECONDS = 0.2
_IDENTITY = "iam.gke.io/gcp-service-account"
_POD_SECURITY = "pod-security.kubernetes.io/enforce"
_EGRESS_POLICY = Kind("networking.k8s.io/v1", "networkpolicies"), "team-egress"
_SHARED = (
    (Kind("admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", namespaced=False), "tpukit-pods"),
    (Kind("admissionregistration.k8s.io/v1", "validatingadmissionpolicies", namespaced=False), "tpukit-pods"),
    (Kind("admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", namespaced=False), "tpukit-queue"),
    (Kind("admissionregistration.k8s.io/v1", "validatingadmissionpolicies", namespaced=False), "tpukit-queue"),
    (KINDS["ClusterRole"], MEMBER),
)
"""Objects that all teams share, in the order in which they are deleted with the last team."""


@dataclass(frozen=True, slots=True)
class Change:
    """The documents of a change, in the order in which they are applied."""

    request: Request
    before: Team | None
    after: Team
    namespace: tuple[dict[str, Any], ...]
    queues: tuple[dict[str, Any], ...]
    rest: tuple[dict[str, Any], ...]
    replaced: bool  # its LocalQueue points to another ClusterQueue from now on
    dropped: bool  # it no longer has its own ClusterQueue

    @property
    def documents(self) -> tuple[dict[str, Any], ...]:
        return (*self.namespace, *self.queues, *self.rest)


def read_queues(cluster: Cluster, team: str = "") -> tuple[Queues, bool]:
    """Return the queues with their contents, and whether those include other teams' jobs.

    With access to one team only, return what is visible of that team.
    """
    try:
        return _read_queues(cluster, ""), True
    except Denied as error:
        if not team:
            hint = "name your team: `tpu team queue TEAM`"
            raise Denied("you may not see the jobs of all teams", hint=hint) from error
        return _read_queues(cluster, team), False
    except NotFound as error:
        raise _kueue_missing(cluster) from error


def _read_queues(cluster: Cluster, team: str) -> Queues:
    kinds = (("Workload", team), ("ClusterQueue", ""), ("LocalQueue", team), ("ResourceFlavor", ""))
    jobs, there, local, flavors = together(*(partial(cluster.list, kind, where) for kind, where in kinds))
    return Queues(jobs, local, there if team else usage.counted(there, jobs), flavors)


def read_teams(cluster: Cluster, account: str, name: str = "") -> list[Team]:
    """Return all teams, or only the one of this name."""
    if name:
        try:
            namespaces = [cluster.get("Namespace", name)]
        except NotFound:
            return []
    else:
        namespaces = cluster.list("Namespace", labels=kueue.TEAM)
    namespaces = [
        one for one in namespaces if kueue.TEAM in one["metadata"].get("labels", {}) and not _is_terminating(one)
    ]
    named = f"metadata.name={account}"
    accounts = {one["metadata"]["namespace"]: one for one in cluster.list("ServiceAccount", name, fields=named)}
    bound = f"metadata.name={MEMBER}"
    bindings = {one["metadata"]["namespace"]: one for one in cluster.list("RoleBinding", name, fields=bound)}
    try:
        queues = cluster.list("ClusterQueue")
    except NotFound as error:
        raise _kueue_missing(cluster) from error
    return [
        _team(one, queues, accounts.get(one["metadata"]["name"]), bindings.get(one["metadata"]["name"]))
        for one in sorted(namespaces, key=lambda one: str(one["metadata"]["name"]))
    ]


def plan(cluster: Cluster, request: Request, account: str) -> Change:
    """Return the change that fulfils the request, or raise if it is impossible."""
    teams = read_teams(cluster, account)
    before = next((team for team in teams if team.name == request.name), None)
    if before is None:
        _check_name_is_free(cluster, request.name)
    there = cluster.list("ClusterQueue")
    total = quotas.total(there)
    after = request.applied(before, [quota.flavor for quota in total if quota.chips])
    if after.made_with_cluster and after.quota:
        hint = "its queue belongs to the cluster's setup: give quotas to teams created with `tpu team add`"
        raise Conflict(f"team {after.name} was created with the cluster and uses the common queue", hint=hint)
    rest = [team for team in settling.with_quota(teams, there) if team.name != after.name]
    quotas.check(total, after, rest, before)
    members = tuple(Subject(*subject(one, after.name)) for one in after.members)
    made = kueue.Team(
        *(after.name, after.queue, after.made_with_cluster, account, after.email, members),
        allow_root=after.allow_root,
        egress=after.egress,
        access=after.access,
    )
    own = _own_queue(there, after.name)
    if after.quota and not own and any(one["metadata"]["name"] == after.name for one in there):
        hint = "use another name for the team"
        raise Conflict(f"ClusterQueue {after.name} exists already, and was not created by tpukit", hint=hint)
    dropped = own is not None and not after.quota
    # The namespace comes first: the quota of a queue without one appears in no command and could not be taken back.
    rendered = render.team(made)
    # Before it comes the policy for its pods: the namespace's own level lets all pods in.
    namespace = tuple(one for one in rendered if _is_first(one))
    remaining = tuple(one for one in rendered if not _is_first(one))
    queues = tuple(transition.writes(there, settling.settled(total, there, [*rest, after])))
    # Read from the cluster, because an earlier change may have ended halfway.
    local = [one for one in cluster.list("LocalQueue", after.name) if one["metadata"]["name"] == after.name]
    replaced = any(one["spec"]["clusterQueue"] != after.queue for one in local)
    return Change(request, before, after, namespace, queues, remaining, replaced, dropped)


def apply(
    cluster: Cluster, change: Change, account: str, clock: Clock, say: Callable[[str], None] = waiting.silent
) -> Change:
    """Apply a change, planned again under the lock, and return what was done.

    Safe to repeat: to finish a change that ended halfway, plan and apply it again. Waiting jobs stay with the team, in
    whichever queue it has.
    """
    name = change.after.name
    if change.after.quota:
        # A queue that is being deleted accepts changes, and is deleted with them when its last job has left it.
        queue = f"ClusterQueue {name} of an earlier quota"
        _wait_until(clock, lambda: not _leaves(cluster, "ClusterQueue", name), queue, say)
    with lock.held(cluster, clock, say) as quota_lock:
        change = plan(cluster, change.request, account)
        for document in (*change.namespace, *change.queues):
            quota_lock.check()
            cluster.apply(document)
    for document in change.rest:
        if change.replaced and document["kind"] == "LocalQueue":
            # Kueue refuses to change a LocalQueue's ClusterQueue, so recreate it. Jobs refer to it by name, and wait in
            # the new one.
            _delete(cluster, "LocalQueue", _get(cluster, "LocalQueue", name))
            _wait_until(clock, lambda: not _exists(cluster, "LocalQueue", name), f"LocalQueue {name}", say)
        cluster.apply(document)
    if change.before and change.before.egress and not change.after.egress:
        kind, policy = _EGRESS_POLICY
        _delete_at(cluster, kind.path(name, policy))
    if change.dropped:
        _delete(cluster, "ClusterQueue", _own_queue(cluster.list("ClusterQueue"), name))
    return change


def jobs(cluster: Cluster, team: str) -> list[str]:
    """Return the names of running or waiting jobs of a team, including new ones that Kueue has not seen yet."""
    sent = [one for kind in ("JobSet", "Job") for one in cluster.list(kind, team)]
    unfinished = {one["metadata"]["name"] for one in sent if not _owned(one) and not _finished(one)}
    queued = {workloads.job(one) for one in cluster.list("Workload", team) if not workloads.ended(one)}
    return sorted(unfinished | queued)


def remove(
    cluster: Cluster, team: Team, account: str, clock: Clock, say: Callable[[str], None] = waiting.silent
) -> list[str]:
    """Remove a team: its jobs, its quota (back to the common queue), and the rest. Return in words what was removed."""
    gone = [f"namespace {team.name} with all that is in it", f"the rights of its members ({len(team.members)})"]
    namespace = _get(cluster, "Namespace", team.name)
    _delete_jobs(cluster, clock, team.name, say)
    there = cluster.list("ClusterQueue")
    if own := _own_queue(there, team.name):
        settle(cluster, account, clock, without=team.name, say=say)
        given = ", ".join(f"{count} × {naming.flavor_name(flavor)}" for flavor, count in team.quota.items())
        gone.append(f"its quota: {given or 'nothing'}, returned to the common queue")
    _delete(cluster, "ClusterRoleBinding", _get(cluster, "ClusterRoleBinding", f"{MEMBER}-{team.name}"))
    _delete(cluster, "Namespace", namespace)
    _delete(cluster, "ClusterQueue", own)
    shared = [(path, _uid_at(cluster, path)) for path in (kind.path(name=name) for kind, name in _SHARED)]
    if not cluster.list("ClusterRoleBinding", labels=kueue.TEAM):
        for path, uid in shared:
            with suppress(Conflict):  # another team was created meanwhile, and this belongs to it
                _delete_at(cluster, path, uid)
    _wait_until(clock, lambda: not _exists(cluster, "Namespace", team.name), f"namespace {team.name}", say)
    queue = f"ClusterQueue {team.name}"
    _wait_until(clock, lambda: not own or not _exists(cluster, "ClusterQueue", team.name), queue, say)
    return gone


def settle(
    cluster: Cluster, account: str, clock: Clock, *, without: str = "", say: Callable[[str], None] = waiting.silent
) -> None:
    """Adjust the queues to hand out exactly the total, however the common queue was last applied; without one team."""
    with lock.held(cluster, clock, say) as quota_lock:
        there = cluster.list("ClusterQueue")
        teams = [one for one in settling.with_quota(read_teams(cluster, account), there) if one.name != without]
        for document in transition.writes(there, settling.settled(quotas.total(there), there, teams)):
            quota_lock.check()
            cluster.apply(document)


def _team(namespace: Doc, queues: Sequence[Doc], account: Doc | None, binding: Doc | None) -> Team:
    meta = namespace["metadata"]
    own = _own_queue(queues, meta["name"])
    quota, borrow = settling.given(own) if own else ({}, None)
    people = (binding or {}).get("subjects") or []
    return Team(
        meta["name"],
        quota,
        borrow,
        tuple(member(one["kind"], one["name"]) for one in people),
        str((account or {"metadata": {}})["metadata"].get("annotations", {}).get(_IDENTITY, "")),
        MADE_WITH in meta.get("annotations", {}),
        allow_root=_allows_root(meta["labels"]),
        access=meta["labels"].get(kueue.ACCESS, "restricted"),
        egress=tuple(filter(None, meta.get("annotations", {}).get(EGRESS, "").split(","))),
    )


def _is_first(document: Doc) -> bool:
    return bool(document["kind"] == "Namespace" or document["metadata"]["name"] == "tpukit-pods")


def _allows_root(labels: Mapping[str, str]) -> bool:
    """Return whether programs may run as root. Our own policy overrides the Pod Security level."""
    if kueue.ACCESS in labels:
        return labels.get(kueue.ALLOW_ROOT) == "yes"
    return bool(labels.get(_POD_SECURITY, "restricted") != "restricted")


def _check_name_is_free(cluster: Cluster, name: str) -> None:
    """Raise if the namespace exists and tpukit did not create it, or if it is being removed."""
    try:
        there = cluster.get("Namespace", name)
    except NotFound:
        return
    if _is_terminating(there):
        raise NotYet(f"namespace {name} is still being removed", hint="run the command again in a minute")
    hint = "use another name for the team"
    raise Conflict(f"namespace {name} exists already, and was not created by tpukit", hint=hint)


def _own_queue(cluster_queues: Iterable[Doc], team: str) -> Doc | None:
    """Return the team's own ClusterQueue, unless another tool created the one of that name."""
    return next(
        (one for one in cluster_queues if one["metadata"]["name"] == team and settling.is_team_queue(one)), None
    )


def _is_terminating(thing: Doc) -> bool:
    return "deletionTimestamp" in thing["metadata"]


def _delete_jobs(cluster: Cluster, clock: Clock, team: str, say: Callable[[str], None]) -> None:
    """Delete jobs before their namespace, which would delete pods first and make their jobs fail."""
    for kind in ("JobSet", "Job"):
        for one in cluster.list(kind, team):
            _delete(cluster, kind, one)
    _wait_until(clock, lambda: not cluster.list("Pod", team), f"the pods of team {team}", say)


def _owned(thing: Doc) -> bool:
    """Return whether it has an owner, as the Jobs of a JobSet do."""
    return bool(thing["metadata"].get("ownerReferences"))


def _finished(thing: Doc) -> bool:
    conditions = thing.get("status", {}).get("conditions", [])
    return any(one["type"] in ("Completed", "Complete", "Failed") and one["status"] == "True" for one in conditions)


def _exists(cluster: Cluster, kind: str, name: str) -> bool:
    return _get(cluster, kind, name) is not None


def _leaves(cluster: Cluster, kind: str, name: str) -> bool:
    """Return whether it exists and is being deleted."""
    found = _get(cluster, kind, name)
    return found is not None and _is_terminating(found)


def _get(cluster: Cluster, kind: str, name: str) -> Doc | None:
    try:
        return cluster.get(kind, name, name)
    except NotFound:
        return None


def _delete(cluster: Cluster, kind: str, seen: Doc | None) -> None:
    """Delete exactly the object that was read. Raise Conflict if another object has its name now."""
    if seen is not None:
        meta = seen["metadata"]
        cluster.delete(kind, meta["name"], meta.get("namespace", ""), uid=meta["uid"])


def _uid_at(cluster: Cluster, path: str) -> str:
    """Return the uid of the object at a path, or "" if there is none."""
    try:
        return str(cluster.call("GET", path)["metadata"]["uid"])
    except NotFound:
        return ""


def _delete_at(cluster: Cluster, path: str, uid: str | None = None) -> None:
    """Delete the object with this uid, or the current one. Raise Conflict if another object has its name now."""
    seen = _uid_at(cluster, path) if uid is None else uid
    if seen:
        with suppress(NotFound):
            cluster.call("DELETE", path, body={"preconditions": {"uid": seen}})


def _wait_until(clock: Clock, gone: Callable[[], bool], what: str, say: Callable[[str], None]) -> None:
    hint = "run the command again to continue"
    what = f"{what} to be removed"
    waiting.until(clock, PATIENCE_SECONDS, gone, what, hint=hint, pause=_POLL_SECONDS, say=say)


def _kueue_missing(cluster: Cluster) -> NotFound:
    hint = "`tpu cluster addons` installs it, with the queues"
    return NotFound(f"{cluster.server} has no Kueue (v1beta2)", hint=hint)
