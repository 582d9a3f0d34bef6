"""Checks of policy bindings: applicable roles, valid members, conditions that can be parsed."""

from __future__ import annotations

import re

from tpubox.google.iam import conditions, predefined_roles, roles
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import (
    ACCOUNT_NOT_FOUND,
    GUESS,
    IDENTITY_POOL,
    MEMBER_TYPE,
    PUBLIC_PROJECT,
    ROLE_NOT_SUPPORTED,
)
from tpubox.google.wire.state import Doc

PUBLIC = ("allUsers", "allAuthenticatedUsers")
_EMAIL = r"[^@\s:?]+@[^@\s:?]+\.[^@\s:?]+"
_POD = r"[a-z0-9.:-]+\.svc\.id\.goog\[[^/\]]+/[^/\]]+\]"
_MEMBERS = {
    "user": _EMAIL,
    "group": _EMAIL,
    "serviceAccount": f"{_EMAIL}|{_POD}",
    "domain": r"[^@\s:?]+\.[^@\s:?]+",
    "deleted": rf"(user|group|serviceAccount):{_EMAIL}\?uid=\d+|principal://.+",
    "projectOwner": ".+",
    "projectEditor": ".+",
    "projectViewer": ".+",
    "principal": "//.+",
    "principalSet": "//.+",
}
"""Form of the part after the type.

https://cloud.google.com/iam/docs/principal-identifiers
"""


def check(cloud: Cloud, resource: str, binding: Doc) -> None:
    _check_role(cloud, resource, binding.get("role", ""))
    for member in binding["members"]:
        _check_member(cloud, resource, member)
    if "condition" in binding:
        _check_condition(binding)


def _check_role(cloud: Cloud, resource: str, role: str) -> None:
    known = re.fullmatch(r"(roles|projects/[^/]+/roles|organizations/[^/]+/roles)/[A-Za-z0-9_.]+", role)
    if not known or (known[1] == "roles" and not predefined_roles.can_be_granted(role, resource)):
        raise ROLE_NOT_SUPPORTED.invalid(f"Role {role} is not supported for this resource.")
    if roles.is_custom(role) and not (roles.exists(cloud, role) and role.split("/")[1] == _project(cloud, resource)):
        raise GUESS.invalid(f"Role {role} does not exist in the resource's hierarchy.")


def _project(cloud: Cloud, resource: str) -> str:
    kind, name = resource.split("/")[:2]
    bucket = cloud.state.get("bucket", name) if kind == "b" else None
    return cloud.project(bucket["projectNumber"]) if bucket else name


def _check_member(cloud: Cloud, resource: str, member: str) -> None:
    if member in PUBLIC:
        if re.fullmatch(r"projects/[^/]+", resource):
            raise PUBLIC_PROJECT.invalid("Request contains an invalid argument.")
        return
    kind, _, name = member.partition(":")
    if kind not in _MEMBERS or not name:
        raise MEMBER_TYPE.invalid(
            f"The member {member} is of an unknown type. Please set a valid type prefix for the member."
        )
    if not re.fullmatch(_MEMBERS[kind], name):
        raise GUESS.invalid(f"Invalid member: {member}")
    if kind == "serviceAccount":
        _check_account(cloud, name)


def _check_account(cloud: Cloud, email: str) -> None:
    pool = re.fullmatch(r"([a-z0-9-]+)\.svc\.id\.goog\[.+/.+\]", email)
    if pool and pool[1] in cloud.settings.projects and not _has_identities(cloud, pool[1]):
        raise IDENTITY_POOL.invalid(
            f"Identity Pool does not exist ({pool[1]}.svc.id.goog). Please check that you specified a valid "
            "resource name as returned in the `name` attribute in the configuration API."
        )
    owner = re.fullmatch(r"[^@]+@([a-z0-9-]+)\.iam\.gserviceaccount\.com", email)
    if not owner or owner[1] not in cloud.settings.projects:
        return
    account = cloud.state.get("account", f"projects/{owner[1]}/serviceAccounts/{email}")
    # A new account is visible to its readers at once, but unknown to policies for a while.
    if not account or account.get("_made", 0.0) + cloud.settings.arrival_seconds > cloud.clock.now():
        raise ACCOUNT_NOT_FOUND.invalid(f"Service account {email} does not exist.")


def _check_condition(binding: Doc) -> None:
    condition = binding["condition"]
    for field in ("title", "expression"):
        if not condition.get(field):
            raise GUESS.invalid(f"The condition of role {binding['role']} has no {field}.")
    if not conditions.parses(condition["expression"]):
        raise GUESS.invalid(f"Condition expression {condition['expression']!r} cannot be compiled.")
    # https://cloud.google.com/iam/docs/conditions-overview; the error text is a guess.
    if not predefined_roles.takes_condition(binding["role"]):
        raise GUESS.invalid(f"Conditions can't be set on the basic role {binding['role']}.")
    if set(PUBLIC) & set(binding["members"]):
        raise GUESS.invalid("Conditions can't be set for allUsers and allAuthenticatedUsers.")


def _has_identities(cloud: Cloud, project: str) -> bool:
    """Return True if the project has an identity pool.

    Its first cluster with Workload Identity creates the pool, which then stays. A project that started with all APIs
    enabled is assumed to have one.
    """
    return "*" in cloud.settings.enabled or cloud.state.get("identity_pool", project) is not None
