"""Existing permissions, as far as they are known, and those that apply to projects.

Complete for Cloud Storage; for other services, the listed collections are complete. Any other permission is accepted as
it is. https://cloud.google.com/iam/docs/roles-permissions
"""

from __future__ import annotations

import re

_TAGS = "createTagBinding deleteTagBinding listEffectiveTags listTagBindings"
_VERBS: dict[str, str] = {
    "iam.roles": f"create delete get list undelete update {_TAGS}",
    "iam.serviceAccountKeys": "create delete disable enable get list",
    "iam.serviceAccounts": (
        "actAs create delete disable enable get getAccessToken getIamPolicy getOpenIdToken implicitDelegation list "
        f"setIamPolicy signBlob signJwt undelete update {_TAGS}"
    ),
    "resourcemanager.projects": (
        "create createBillingAssignment createPolicyBinding delete deleteBillingAssignment deletePolicyBinding get "
        "getIamPolicy list move searchPolicyBindings setIamPolicy undelete update updateLiens updatePolicyBinding"
    ),
    "storage.anywhereCaches": "create disable get list pause resume update",
    "storage.bucketOperations": "cancel get list",
    "storage.buckets": (
        "create delete enableObjectRetention get getIamPolicy getIpFilter getObjectInsights list relocate restore "
        f"setIamPolicy setIpFilter update viewIntelligenceDetails {_TAGS}"
    ),
    "storage.featureConfigs": "create delete get list update",
    "storage.folders": "create delete get list rename",
    "storage.hmacKeys": "create delete get list update",
    "storage.intelligenceConfigs": "get update",
    "storage.managedFolders": "create delete get getIamPolicy list setIamPolicy",
    "storage.multipartUploads": "abort create list listParts",
    "storage.objects": (
        "create createContext delete deleteContext get getIamPolicy list move overrideUnlockedRetention restore "
        "setIamPolicy setRetention update updateContext"
    ),
}
_WHOLE_SERVICES = ("storage",)
_ABOVE_PROJECTS = re.compile(r"resourcemanager\.(projects\.(create|list)|(folders|organizations)\..+)")
"""Permissions that apply only above projects.

https://github.com/aquasecurity/cloudsploit/issues/978
https://cloud.google.com/resource-manager/docs/access-control-proj (the two of projects apply to their container)
"""
_SHAPE = re.compile(r"[a-z]+(\.[a-zA-Z]+){2,}")


def is_valid(permission: str) -> bool:
    """Return True if a role or a permission test of a project may contain it."""
    if not _SHAPE.fullmatch(permission) or _ABOVE_PROJECTS.fullmatch(permission):
        return False
    # Node pools have no permissions of their own: changing one changes its cluster.
    if permission.startswith("container.nodePools."):
        return False
    collection, _, verb = permission.rpartition(".")
    if collection in _VERBS:
        return verb in _VERBS[collection].split()
    return permission.partition(".")[0] not in _WHOLE_SERVICES
