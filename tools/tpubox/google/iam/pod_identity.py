"""Who a pod on a node of GKE is to Google: what GKE's metadata server tells it, and the token that it is given.

With Workload Identity a pod is the account that its service account in Kubernetes is annotated with, if that account
lets it; without an annotation it is itself, and has the roles that were granted to
`serviceAccount:POOL[NAMESPACE/NAME]` or to the principal of the same meaning. Without Workload Identity it is the
account of its node, whatever is annotated. https://cloud.google.com/kubernetes-engine/docs/concepts/workload-identity
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass

from tpubox.google.iam import credentials, permissions
from tpubox.google.iam.conditions import Facts
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.settings import number_of
from tpubox.google.wire.state import Doc
from tpukit.core.errors import Invalid

_TOKEN_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Found:
    """A pod: where it is, and who."""

    cluster: str  # its full name
    zone: str
    federated: bool  # by Workload Identity
    email: str  # of the account that it is, or of itself
    shown: str  # what the metadata server calls it
    refused: str = ""  # why it cannot be who it is to be


def identify(cloud: Cloud, node: str, namespace: str, account: str, annotated: str = "") -> Doc:
    """Where the pod is and who, with a token, or with why there is none. `account` is its own in Kubernetes."""
    found = find(cloud, node, namespace, account, annotated)
    _, project, _, location, _, cluster = found.cluster.split("/")
    made = (cloud.state.get("cluster", found.cluster) or {}).get("createTime", "")
    where = {
        **{"project": project, "number": number_of(project), "location": location, "cluster": cluster},
        **{"zone": found.zone, "node_id": str(10**18 + zlib.crc32(node.encode()))},
        "cluster_uid": hashlib.sha256(f"{found.cluster} {made}".encode()).hexdigest(),
    }
    if found.refused:
        return {**where, "email": found.shown, "refused": found.refused}
    expires = cloud.clock.now() + _TOKEN_SECONDS
    token = credentials.mint(cloud, found.email, expires)
    return {**where, "email": found.shown, "token": token, "expires": expires}


def find(cloud: Cloud, node: str, namespace: str, account: str, annotated: str = "") -> Found:
    full, pool = next(((full, doc) for full, doc in cloud.state.all("pool").items() if node in doc["_nodes"]), ("", {}))
    if not full:
        raise Invalid(f"no pool of GKE has a node {node}")
    cluster_name, zone = full.partition("/nodePools/")[0], pool["_nodes"][node]
    identities = _identity_pool(cloud, cluster_name, pool)
    if not identities:
        own = pool["config"].get("serviceAccount", "default")
        email = permissions.default_account(full.split("/")[1]) if own == "default" else own
        return Found(cluster_name, zone, False, email, email)
    pod = f"{identities}[{namespace}/{account}]"
    if not annotated:
        return Found(cluster_name, zone, True, pod, identities)
    known = f"projects/{annotated.partition('@')[2].partition('.')[0]}/serviceAccounts/{annotated}"
    scopes = [known, known.partition("/serviceAccounts/")[0]]
    permission = "iam.serviceAccounts.getAccessToken"
    exists = cloud.state.get("account", known)
    if not exists or not permissions.may(cloud, f"serviceAccount:{pod}", permission, scopes, Facts(known)):
        # The words of GKE's metadata server, as people report them.
        refused = (
            "Unable to generate access token; IAM returned 403 Forbidden: "
            f"Permission '{permission}' denied on resource (or it may not exist).\n"
            "This error could be caused by a missing IAM policy binding on the target IAM service account."
        )
        return Found(cluster_name, zone, True, annotated, annotated, refused)
    return Found(cluster_name, zone, True, annotated, annotated)


def _identity_pool(cloud: Cloud, cluster_name: str, pool: Doc) -> str:
    """Of the cluster; "" where it has none, or where these nodes show their own account. Pools of a cluster that has
    one take part unless they say otherwise."""
    cluster = cloud.state.get("cluster", cluster_name) or {}
    mode = (pool["config"].get("workloadMetadataConfig") or {}).get("mode", "GKE_METADATA")
    found = (cluster.get("workloadIdentityConfig") or {}).get("workloadPool", "")
    return str(found) if mode == "GKE_METADATA" else ""
