"""Check a Cloud Build of the environment before it changes anything.

Pure functions over the output of gcloud, kubectl and Terraform, about the timeout, the account, the location of the
state, and what the plan deletes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tpukit.cluster import busy_pools
from tpukit.cluster.busy_pools import CLUSTER, Doomed
from tpukit.core.errors import Conflict, Denied, Invalid

SECONDS = {"provision": 4 * 3600, "destroy": 2 * 3600}
"""Minimum timeouts. A slice may take two hours, then the queues; a build that is cut off leaves the state locked."""
PERMISSIONS = ("compute.networks.create", "container.clusters.create")
"""Permissions without which an account cannot create an environment."""
OF_DEFAULTS = "resourcemanager.projects.setIamPolicy"
"""Permission that Google's default accounts lack even as editors. Ours has it conditionally, so it is not checked."""
_DEFAULT_ACCOUNTS = ("-compute@developer.gserviceaccount.com", "@cloudbuild.gserviceaccount.com")


def time(build: Mapping[str, Any], verb: str) -> None:
    """Refuse a build whose timeout is too short."""
    seconds = float(str(build.get("timeout", "3600s")).removesuffix("s"))
    if seconds < SECONDS[verb]:
        raise Invalid(
            f"this build would time out after {seconds:.0f} s, in the middle of Terraform's work, and leave the state "
            "locked. Nothing was changed",
            hint=f"leave out --timeout, or write --timeout={SECONDS[verb]}s",
        )


def account(build: Mapping[str, Any], allowed: Mapping[str, Any], project: str) -> None:
    """Refuse a build whose account lacks the permissions it needs."""
    email = str(build.get("serviceAccount", "")).rpartition("/")[2] or "an account that Google chose"
    by_default = email.endswith(_DEFAULT_ACCOUNTS) or "@" not in email
    needed = {*PERMISSIONS, *((OF_DEFAULTS,) if by_default else ())}
    if missing := sorted(needed - set(allowed.get("permissions", []))):
        domain = ".".join(reversed(project.split(":")))
        ours = f"projects/{project}/serviceAccounts/tpu-cluster-build@{domain}.iam.gserviceaccount.com"
        raise Denied(
            f"this build runs as {email}, which lacks {', '.join(missing)}. Nothing was changed",
            hint=f"send it with --service-account={ours}, which `tpu cluster bootstrap` makes",
        )


def older_state(state: Mapping[str, Any], steps: Mapping[str, str]) -> None:
    """Refuse to create a second environment next to one whose state has the old common prefix."""
    found = {
        instance.get("attributes", {}).get("name")
        for resource in state.get("resources", [])
        if resource.get("type") == CLUSTER
        for instance in resource.get("instances", [])
    }
    if not state.get("resources") or (found and steps["CLUSTER_NAME"] not in found):
        return
    bucket, older, own = steps["STATE_BUCKET"], steps["OLDER_PREFIX"], steps["STATE_PREFIX"]
    raise Conflict(
        f"the state of {steps['CLUSTER_NAME']} is in gs://{bucket}/{older}, from before each cluster had a folder of "
        "its own. Nothing was changed",
        hint=f"keep using it with _TF_STATE_PREFIX={older}, or move it once: gcloud storage mv "
        f"gs://{bucket}/{older}/default.tfstate gs://{bucket}/{own}/default.tfstate",
    )


def same_cluster(state: Mapping[str, Any], steps: Mapping[str, str]) -> None:
    """Refuse a state that holds another cluster than the requested one, which would be deleted."""
    for name in _clusters(state.get("values", {}).get("root_module", {})):
        if name != steps["CLUSTER_NAME"]:
            raise Conflict(
                f"gs://{steps['STATE_BUCKET']}/{steps['STATE_PREFIX']} is the state of cluster {name}, which would be "
                f"deleted for {steps['CLUSTER_NAME']}. Nothing was changed",
                hint="leave out _TF_STATE_PREFIX: each cluster then has its own state",
            )


def _clusters(module: Mapping[str, Any]) -> Iterator[str]:
    for resource in module.get("resources", []):
        if resource.get("type") == CLUSTER:
            yield str(resource["values"]["name"])
    for child in module.get("child_modules", []):
        yield from _clusters(child)


def replacing(going: Doomed, steps: Mapping[str, str]) -> None:
    """Refuse to delete or replace pools or the cluster unless `_ALLOW_REPLACE` is set."""
    if going and steps["ALLOW_REPLACE"] != "true":
        what = "the cluster" if going.everything else ", ".join(sorted(going.pools))
        raise Conflict(
            f"this would delete or replace {what}; the plan above has the details. Nothing was changed",
            hint="to confirm, run the build again with _ALLOW_REPLACE=true",
        )


def running(going: Doomed, cluster: str, nodes: Mapping[str, Any], pods: Mapping[str, Any], evict: bool) -> None:
    """Refuse while jobs run on what would be deleted. `cluster` is "absent", "asked" or "silent"."""
    if not going or evict or cluster == "absent":
        return
    if cluster != "asked":
        raise Conflict(
            "the pools to delete may run jobs, and the cluster does not respond. Nothing was changed",
            hint="the step before shows the error; _EVICT=true deletes the pools without this check",
        )
    if found := busy_pools.busy(going, nodes, pods):
        lines = "\n  ".join(f"{pool} runs {', '.join(jobs)}" for pool, jobs in found.items())
        raise Conflict(
            f"pools that would be deleted run jobs:\n  {lines}",
            hint="wait for the jobs, or stop them; _EVICT=true deletes the pools anyway",
        )
