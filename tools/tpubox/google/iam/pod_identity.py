"""The identity of a Pod on a GKE node: the answers of GKE's metadata server, and the token.

With Workload Identity, a Pod is the account in the annotation of its Kubernetes service account, if that account
permits it; without an annotation it is itself, with the roles granted to `serviceAccount:POOL[NAMESPACE/NAME]` or to
the equivalent principal. Without Workload Identity it is the account of its node, whatever the annotation.
https://cloud.google.com/kubernetes-engine/docs/concepts/workload-identity
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
    """Location and identity of a Pod."""

    cluster: str  # full name
    zone: str
    federated: bool  # by Workload Identity
    email: str  # of its account, or its own principal
    shown: str  # name in the metadata server
    refused: str = ""  # reason why it cannot use its identity


def identify(cloud: Cloud, node: str, namespace: str, account: str, annotated: str = "") -> Doc:
    """Return location, identity and token of a Pod, or the refusal. `account` is its Kubernetes service account."""
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
        return Found(cluster_name, zone, federated=False, email=email, shown=email)
    pod = f"{identities}[{namespace}/{account}]"
    if not annotated:
        return Found(cluster_name, zone, federated=True, email=pod, shown=identities)
    known = f"projects/{annotated.partition('@')[2].partition('.')[0]}/serviceAccounts/{annotated}"
    scopes = [known, known.partition("/serviceAccounts/")[0]]
    permission = "iam.serviceAccounts.getAccessToken"
    exists = cloud.state.get("account", known)
    if not exists or not permissions.may(cloud, f"serviceAccount:{pod}", permission, scopes, Facts(known)):
        # The words of GKE's metadata server, as users report them.
        refused = (
            "Unable to generate access token; IAM returned 403 Forbidden: "
            f"Permission '{permission}' denied on resource (or it may not exist).\n"
            "This error could be caused by a missing IAM policy binding on the target IAM service account."
        )
        return Found(cluster_name, zone, federated=True, email=annotated, shown=annotated, refused=refused)
    return Found(cluster_name, zone, federated=True, email=annotated, shown=annotated)


def _identity_pool(cloud: Cloud, cluster_name: str, pool: Doc) -> str:
    """Return the cluster's identity pool; "" if it has none, or if these nodes show their own account.

    Node pools of a cluster with an identity pool use it by default.
    """
    cluster = cloud.state.get("cluster", cluster_name) or {}
    mode = (pool["config"].get("workloadMetadataConfig") or {}).get("mode", "GKE_METADATA")
    found = (cluster.get("workloadIdentityConfig") or {}).get("workloadPool", "")
    return str(found) if mode == "GKE_METADATA" else ""
