"""Authorization: the permission that a request needs, and whether a policy grants it to the caller.

The owner of the emulator, identified by the emulator's own token, may do everything. A service account may do what its
roles allow on the resource itself, on its container, or on the project, once the grant has propagated.
https://cloud.google.com/iam/docs/access-change-propagation
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tpubox.google.iam import conditions, policy, roles
from tpubox.google.iam.conditions import Facts
from tpubox.google.wire.api import Api, Call
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.common_refusals import permission_denied
from tpubox.google.wire.settings import number_of
from tpubox.google.wire.sources import GKE_ACCOUNT, GUESS
from tpubox.google.wire.state import Doc

OWNER = ""
"""The principal that needs no roles."""

_POD = re.compile(r"serviceAccount:([a-z0-9-]+)\.svc\.id\.goog\[(.+)/(.+)\]")
_ITEM_VERBS = {"GET": "get", "DELETE": "delete", "PATCH": "update", "PUT": "update", "POST": "update"}
_COLLECTION_VERBS = {"GET": "list", "POST": "create"}
_OWN_VERBS = (
    *("getIamPolicy", "setIamPolicy", "enable", "disable", "undelete"),
    *("write", "read", "batchCreate", "batchRead"),  # https://cloud.google.com/vertex-ai/docs/general/iam-permissions
)
_COMPUTE_METHODS = ("expandIpCidrRange", "setPrivateIpGoogleAccess")
"""Path segments of Compute Engine that are methods, not names.

https://cloud.google.com/compute/docs/reference/rest/v1/subnetworks
"""
_OTHER_NAMES = {
    "logging.metrics": "logMetrics",
    "aiplatform.experiments": "tensorboardExperiments",
    "aiplatform.runs": "tensorboardRuns",
    "aiplatform.timeSeries": "tensorboardTimeSeries",
}
"""Collections whose permissions differ from their paths."""
_OF_WHAT_IS_INSIDE = {
    "aiplatform.tensorboardExperiments.batchCreate": "aiplatform.tensorboardTimeSeries.batchCreate",
    "aiplatform.tensorboards.batchRead": "aiplatform.tensorboardTimeSeries.batchRead",
}
"""Methods of a resource that act on the resources inside it."""
_WITH_POLICY = re.compile(r"projects/[^/]+/(?:serviceAccounts|locations/[^/]+/repositories)/[^/:]+")


def check(cloud: Cloud, api: Api, path: str, call: Call) -> None:
    """Refuse a request that the caller may not make. Cloud Storage checks by itself, because it knows the object."""
    service = api.permissions
    if not service or "project" not in call.names or path.endswith("testIamPermissions"):
        return
    accounts = _ACCOUNTS[service](call) if service in _ACCOUNTS else []
    for account in accounts:
        _check_exists(cloud, account)
    project = f"projects/{call['project']}"
    name = re.sub(r"^projects/[^/]+", project, path.partition(":")[0])
    if "account" in call.names:  # by its address, however the path names it
        name = re.sub(r"/serviceAccounts/[^/]+", f"/serviceAccounts/{call['account']}", name)
    permission = _permission(service, call.request.method, path)
    if call.request.principal == OWNER:
        call.request.needed.append(permission)
        return
    own = _WITH_POLICY.match(name)
    scopes = [own[0], project] if own else [project]
    granted = _changed_roles(cloud, scopes[0], call) if permission.endswith(".setIamPolicy") else ()
    need(cloud, call, permission, scopes, Facts(name, granted=granted))
    for account in accounts:
        act_as(cloud, call, account)


def need(cloud: Cloud, call: Call, permission: str, scopes: Sequence[str], facts: Facts) -> None:
    principal = call.request.principal
    call.request.needed.append(permission)
    if principal == OWNER or may(cloud, principal, permission, scopes, facts):
        return
    raise permission_denied(principal, permission, facts.resource)


def act_as(cloud: Cloud, call: Call, email: str) -> None:
    """Refuse a caller who may not act as the account that the nodes run as."""
    project = f"projects/{call['project']}"
    scopes = [f"{project}/serviceAccounts/{email}", project]
    call.request.needed.append("iam.serviceAccounts.actAs")
    if not may(cloud, call.request.principal, "iam.serviceAccounts.actAs", scopes, Facts(scopes[0])):
        shown = "default" if email == default_account(call["project"]) else email
        raise GUESS.refused(
            400,
            f'The user does not have access to service account "{shown}". Ask a project owner to grant you the '
            "iam.serviceAccountUser role on the service account.",
        )


def _check_exists(cloud: Cloud, email: str) -> None:
    found = re.fullmatch(r"[^@]+@([a-z0-9-]+)\.iam\.gserviceaccount\.com", email)
    project = found[1] if found else ""
    known = project in cloud.settings.projects
    if known and not cloud.state.get("account", f"projects/{project}/serviceAccounts/{email}"):
        raise GKE_ACCOUNT.invalid(f'Service account "{email}" does not exist.')


def may(cloud: Cloud, principal: str, permission: str, scopes: Sequence[str], facts: Facts) -> bool:
    names = {principal, _principal_uri(principal)}
    for scope in scopes:
        for binding in policy.effective(cloud, scope):
            condition = (binding.get("condition") or {}).get("expression", "")
            role = binding["role"]
            allowed = roles.allows(role, permission) or permission in roles.permissions(cloud, role)
            given = not names.isdisjoint(binding["members"]) and allowed
            if given and (not condition or conditions.holds(condition, facts)):
                return True
    return False


def _principal_uri(principal: str) -> str:
    """Return the other form in which a policy may name a Pod's service account.

    https://cloud.google.com/iam/docs/principal-identifiers#allow
    """
    found = _POD.fullmatch(principal)
    if not found:
        return principal
    pools = f"projects/{number_of(found[1])}/locations/global/workloadIdentityPools"
    return f"principal://iam.googleapis.com/{pools}/{found[1]}.svc.id.goog/subject/ns/{found[2]}/sa/{found[3]}"


def _permission(service: str, method: str, path: str) -> str:
    """Return the permission of a request: POST to projects/P/locations/L/clusters needs container.clusters.create."""
    plain, _, verb = path.partition(":")
    parts = plain.strip("/").split("/")
    if "nodePools" in parts:
        # https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters.nodePools/create
        return f"{service}.clusters.{'get' if method == 'GET' else 'update'}"
    if parts[-1] in _COMPUTE_METHODS:
        return f"{service}.{parts[-3]}.{parts[-1]}"
    # `projects/P/global/networks` has a segment without a name, which shifts its collections by one.
    item = len(parts) % 2 == ("global" in parts[2:3])
    collection = parts[-2] if item else parts[-1]
    collection = _OTHER_NAMES.get(f"{service}.{collection}", collection)
    if verb in _OWN_VERBS:
        own = f"{service}.{collection}.{verb}"
        return _OF_WHAT_IS_INSIDE.get(own, own)
    verbs = _ITEM_VERBS if item else _COLLECTION_VERBS
    return f"{service}.{collection}.{'update' if verb and method != 'GET' else verbs.get(method, 'update')}"


def _changed_roles(cloud: Cloud, scope: str, call: Call) -> tuple[str, ...]:
    before, after = policy.get(cloud, scope), call.body.get("policy", {})
    return tuple(sorted({role for role, _ in _grants(before) ^ _grants(after)}))


def _grants(document: Doc) -> set[tuple[str, str]]:
    return {
        (one["role"], f"{member} {(one.get('condition') or {}).get('expression', '')}")
        for one in document.get("bindings", [])
        for member in one.get("members", [])
    }


def _accounts_of_nodes(call: Call) -> list[str]:
    """Return the accounts of the nodes; Compute Engine's default account where none is named."""
    cluster, pool = call.body.get("cluster") or {}, call.body.get("nodePool")
    configs = [(one.get("config") or {}) for one in cluster.get("nodePools", [])]
    if cluster and not configs:
        configs.append(cluster.get("nodeConfig") or {})
    if pool is not None:
        configs.append(pool.get("config") or {})
    return sorted({config.get("serviceAccount") or default_account(call["project"]) for config in configs})


def default_account(project: str) -> str:
    """Return the address of Compute Engine's default account.

    https://cloud.google.com/compute/docs/access/service-accounts#default_service_account
    """
    return f"{number_of(project)}-compute@developer.gserviceaccount.com"


def _accounts_of_vms(call: Call) -> list[str]:
    nodes = [call.body, *((spec.get("node") or {}) for spec in (call.body.get("tpu") or {}).get("nodeSpec", []))]
    return sorted({email for node in nodes if (email := (node.get("serviceAccount") or {}).get("email"))})


_ACCOUNTS = {"container": _accounts_of_nodes, "tpu": _accounts_of_vms}
"""Readers of the accounts that a request gives to its machines, by service."""
