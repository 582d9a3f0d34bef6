"""Teams as a cluster has them: read, made, changed, removed. The only module here that talks to one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tpukit import render
from tpukit.clock import Clock
from tpukit.errors import Conflict, Denied, NotFound, NotYet
from tpukit.kube import KINDS, Cluster, Kind
from tpukit.render import kueue
from tpukit.render.kueue import MADE_WITH, MEMBER, Subject
from tpukit.teams import naming, quotas, shares, workloads
from tpukit.teams.team import Team, Wish, member, subject
from tpukit.teams.waiting import Queues
from tpukit.teams.workloads import CHIPS, Doc

PATIENCE_SECONDS = 300.0
"""For what is deleted to be gone: pods may take their grace time to save."""
_LOOK_SECONDS = 0.2
_IDENTITY = "iam.gke.io/gcp-service-account"
_SHARED = (
    (Kind("admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", namespaced=False), "tpukit-queue"),
    (Kind("admissionregistration.k8s.io/v1", "validatingadmissionpolicies", namespaced=False), "tpukit-queue"),
    (KINDS["ClusterRole"], MEMBER),
)
"""What the teams have in common, in the order in which it goes with the last of them."""


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be done, in the order in which it is done."""

    before: Team | None
    after: Team
    documents: tuple[dict[str, Any], ...]
    replaced: bool  # its LocalQueue leads elsewhere from now on
    dropped: bool  # it no longer has a ClusterQueue of its own


def look(cluster: Cluster, team: str = "") -> tuple[Queues, bool]:
    """The queues and all that is in them; and whether the jobs of other teams are there too.

    Who may see one team alone gets what there is of that.
    """
    try:
        every = ""
        jobs = cluster.list("Workload")
    except Denied as error:
        if not team:
            hint = "name your team: `tpu team queue TEAM`"
            raise Denied("you may not see the jobs of all teams", hint=hint) from error
        every = team
        jobs = cluster.list("Workload", team)
    except NotFound as error:
        raise _without_kueue(cluster) from error
    found = Queues(
        jobs, cluster.list("LocalQueue", every), cluster.list("ClusterQueue"), cluster.list("ResourceFlavor")
    )
    return found, not every


def read(cluster: Cluster, account: str, name: str = "") -> list[Team]:
    """All teams, or the one of this name alone."""
    if name:
        try:
            namespaces = [cluster.get("Namespace", name)]
        except NotFound:
            return []
    else:
        namespaces = cluster.list("Namespace", labels=kueue.TEAM)
    namespaces = [one for one in namespaces if kueue.TEAM in one["metadata"].get("labels", {}) and not _leaves(one)]
    named = f"metadata.name={account}"
    accounts = {one["metadata"]["namespace"]: one for one in cluster.list("ServiceAccount", name, fields=named)}
    bound = f"metadata.name={MEMBER}"
    bindings = {one["metadata"]["namespace"]: one for one in cluster.list("RoleBinding", name, fields=bound)}
    try:
        queues = cluster.list("ClusterQueue")
    except NotFound as error:
        raise _without_kueue(cluster) from error
    return [
        _team(one, queues, accounts.get(one["metadata"]["name"]), bindings.get(one["metadata"]["name"]))
        for one in sorted(namespaces, key=lambda one: str(one["metadata"]["name"]))
    ]


def plan(cluster: Cluster, wish: Wish, account: str) -> Change:
    """What makes the team what it is wished to be; raises what cannot be."""
    teams = {team.name: team for team in read(cluster, account)}
    before = teams.pop(wish.name, None)
    if before is None:
        _free(cluster, wish.name)
    after = wish.applied(before)
    if after.made_with_cluster and after.quota:
        hint = "its queue belongs to the cluster's own setup: give quotas to teams made with `tpu team add`"
        raise Conflict(f"team {after.name} came with the cluster and shares the common queue", hint=hint)
    there = cluster.list("ClusterQueue")
    total = quotas.total(there)
    quotas.check(total, after, teams.values())
    queues = [render.cluster_queue(one) for one in quotas.divide(total, [*teams.values(), after])]
    members = tuple(Subject(*subject(one, after.name)) for one in after.members)
    made = kueue.Team(after.name, after.queue, after.made_with_cluster, account, after.email, members)
    own = _own_queue(there, after.name)
    if after.quota and not own and any(one["metadata"]["name"] == after.name for one in there):
        hint = "use another name for the team"
        raise Conflict(f"there is a ClusterQueue {after.name} already, and tpukit did not make it", hint=hint)
    dropped = own is not None and not after.quota
    if own and dropped:
        queues.append(_emptied(own))
    documents = (*_shrinking_first(queues, there), *render.team(made))
    # Asked of the cluster, because a change may have ended halfway.
    local = [one for one in cluster.list("LocalQueue", after.name) if one["metadata"]["name"] == after.name]
    replaced = any(one["spec"]["clusterQueue"] != after.queue for one in local)
    return Change(before, after, documents, replaced, dropped)


def carry_out(cluster: Cluster, change: Change, account: str, clock: Clock) -> None:
    """Twice is once, and once more goes on where it ended halfway. Jobs that wait go with the team's queue."""
    name = change.after.name
    for document in change.documents:
        if change.replaced and document["kind"] == "LocalQueue":
            # Kueue lets no LocalQueue change where it leads. One that is gone is made anew, and jobs find it by name.
            cluster.delete("LocalQueue", name, name)
            _until(clock, lambda: not _there(cluster, "LocalQueue", name), f"LocalQueue {name}")
        cluster.apply(document)
    if change.dropped:
        cluster.delete("ClusterQueue", name)
    if quotas.overdrawn(cluster.list("ClusterQueue")):
        settle(cluster, account)  # two teams were given the same slices at once


def jobs(queues: Queues, team: str) -> list[Doc]:
    """What runs or waits in a team's namespace."""
    return [one for one in queues.workloads if workloads.team(one) == team and not workloads.ended(one)]


def remove(cluster: Cluster, team: Team, account: str, clock: Clock) -> list[str]:
    """All of a team: its jobs end, its quota goes back to the common queue, then the rest goes. What went, in words."""
    gone = [f"namespace {team.name} with all that is in it", f"what its members could do ({len(team.members)})"]
    _end_jobs(cluster, clock, team.name)
    there = cluster.list("ClusterQueue")
    if own := _own_queue(there, team.name):
        others = [one for one in read(cluster, account) if one.name != team.name]
        queues = [render.cluster_queue(one) for one in quotas.divide(quotas.total(there), others)]
        for document in _shrinking_first([*queues, _emptied(own)], there):
            cluster.apply(document)
        given = ", ".join(f"{count} × {naming.flavor_name(flavor)}" for flavor, count in team.quota.items())
        gone.append(f"its quota: {given or 'nothing'} back to the common queue")
    cluster.delete("ClusterRoleBinding", f"{MEMBER}-{team.name}")
    cluster.delete("Namespace", team.name)
    if own:
        cluster.delete("ClusterQueue", team.name)
    if not cluster.list("ClusterRoleBinding", labels=kueue.TEAM):
        for kind, name in _SHARED:
            with suppress(NotFound):
                cluster.call("DELETE", kind.path(name=name))
    _until(clock, lambda: not _there(cluster, "Namespace", team.name), f"namespace {team.name}")
    _until(clock, lambda: not own or not _there(cluster, "ClusterQueue", team.name), f"ClusterQueue {team.name}")
    return gone


def settle(cluster: Cluster, account: str) -> None:
    """Make the queues hand out what there is and no more, whoever applied the common queue last."""
    there = cluster.list("ClusterQueue")
    made = [render.cluster_queue(one) for one in quotas.divide(quotas.total(there), read(cluster, account))]
    for document in _shrinking_first(made, there):
        cluster.apply(document)


def _team(namespace: Doc, queues: Sequence[Doc], account: Doc | None, binding: Doc | None) -> Team:
    meta = namespace["metadata"]
    own = _own_queue(queues, meta["name"])
    quota, borrow = _quota(own) if own else ({}, None)
    people = (binding or {}).get("subjects") or []
    return Team(
        meta["name"],
        quota,
        borrow,
        tuple(member(one["kind"], one["name"]) for one in people),
        str((account or {"metadata": {}})["metadata"].get("annotations", {}).get(_IDENTITY, "")),
        MADE_WITH in meta.get("annotations", {}),
    )


def _quota(queue: Doc) -> tuple[dict[str, int], dict[str, int] | None]:
    """Whole slices that a queue has of its own, and that it may borrow; those of none are left out."""
    own, limits = {}, {}
    unlimited = True
    for (flavor, resource), share in shares.shares(queue).items():
        shape = naming.shape(flavor)
        if resource != CHIPS or shape is None:
            continue
        own[flavor] = int(share.own) // shape.chips
        unlimited = unlimited and share.limit is None
        limits[flavor] = int(share.limit or 0) // shape.chips
    kept = {flavor: count for flavor, count in own.items() if count}
    return kept, None if unlimited else {flavor: count for flavor, count in limits.items() if count}


def _free(cluster: Cluster, name: str) -> None:
    """A namespace that somebody else made is not taken over, nor one that is about to go."""
    try:
        there = cluster.get("Namespace", name)
    except NotFound:
        return
    if _leaves(there):
        raise NotYet(f"namespace {name} is still being removed", hint="call again in a moment")
    hint = "use another name for the team"
    raise Conflict(f"there is a namespace {name} already, and tpukit did not make it", hint=hint)


def _own_queue(cluster_queues: Iterable[Doc], team: str) -> Doc | None:
    """The ClusterQueue that is the team's alone. One of that name that somebody else made is not."""
    ours = (one for one in cluster_queues if one["metadata"].get("labels", {}).get(kueue.TEAM) == team)
    return next((one for one in ours if one["metadata"]["name"] == team), None)


def _emptied(queue: Doc) -> dict[str, Any]:
    """A queue that is about to go, with nothing of its own: it stays until its jobs end, as one that borrows."""
    flavors = dict.fromkeys(flavor for flavor, _ in shares.shares(queue))
    nothing = [kueue.Quota(flavor, 0, 0, 0) for flavor in flavors]
    return render.cluster_queue(kueue.team_queue(queue["metadata"]["name"], nothing))


def _shrinking_first(queues: Sequence[dict[str, Any]], there: Iterable[Doc]) -> list[dict[str, Any]]:
    """In an order in which at no moment more is handed out than there is."""
    now = {one["metadata"]["name"]: _chips(one) for one in there}
    return sorted(queues, key=lambda one: _chips(one) > now.get(one["metadata"]["name"], 0))


def _chips(queue: Doc) -> int:
    return int(sum(share.own for (_, resource), share in shares.shares(queue).items() if resource == CHIPS))


def _leaves(thing: Doc) -> bool:
    return "deletionTimestamp" in thing["metadata"]


def _end_jobs(cluster: Cluster, clock: Clock, team: str) -> None:
    """Jobs go before their namespace: that takes the pods first, which their jobs would take for failures."""
    for kind in ("JobSet", "Job"):
        for one in cluster.list(kind, team):
            cluster.delete(kind, one["metadata"]["name"], team)
    _until(clock, lambda: not cluster.list("Pod", team), f"a pod of team {team}")


def _there(cluster: Cluster, kind: str, name: str) -> bool:
    try:
        cluster.get(kind, name, name)
    except NotFound:
        return False
    return True


def _until(clock: Clock, gone: Callable[[], bool], what: str) -> None:
    due = clock.now() + PATIENCE_SECONDS
    while not gone():
        if clock.now() > due:
            raise NotYet(f"{what} is still there after {PATIENCE_SECONDS:.0f} s", hint="call again to go on")
        clock.sleep(_LOOK_SECONDS)


def _without_kueue(cluster: Cluster) -> NotFound:
    hint = "`tpu cluster addons` installs it, with the queues"
    return NotFound(f"{cluster.server} has no Kueue (v1beta2)", hint=hint)
