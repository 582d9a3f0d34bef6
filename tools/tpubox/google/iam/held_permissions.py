"""testIamPermissions: the subset of the requested permissions that the caller has.

Every caller may ask; on a missing resource no caller has any. https://cloud.google.com/iam/docs/testing-permissions
"""

from __future__ import annotations

from collections.abc import Sequence

from tpubox.google.iam import known_permissions, roles
from tpubox.google.iam.conditions import Facts
from tpubox.google.iam.permissions import OWNER, may
from tpubox.google.wire.api import Api, Call
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import TESTED_PERMISSION
from tpubox.google.wire.state import Doc


def register(api: Api, resource: str, kind: str = "", *, body: str, separator: str = ":") -> None:
    """Serve testIamPermissions for resources at this path, stored as documents of `kind`; empty for projects."""

    @api.on("POST", f"{resource}{separator}testIamPermissions", body=body)
    def _answer(cloud: Cloud, call: Call) -> Doc:
        name, project = resource.format(**call.names), f"projects/{call['project']}"
        scopes = [name] if name == project else [name, project]
        asked = call.body.get("permissions", [])
        found = held(cloud, call, asked, scopes, Facts(name))
        there = not kind or cloud.state.get(kind, name) is not None
        return {"permissions": found} if there and found else {}


def held(cloud: Cloud, call: Call, asked: Sequence[str], scopes: Sequence[str], facts: Facts) -> list[str]:
    for permission in asked:
        # The error text is a guess; the refusal of wildcards is documented.
        if not known_permissions.is_valid(permission):
            raise TESTED_PERMISSION.invalid(f"Permission {permission} is not valid for this resource.")
    who = call.request.principal
    known = [one for one in asked if one.partition(".")[0] in _services(cloud)]
    return [one for one in known if who == OWNER or may(cloud, who, one, scopes, facts)]


def _services(cloud: Cloud) -> set[str]:
    """Return the services whose permissions exist here: those that are emulated or part of a role."""
    emulated = {api.permissions for api in cloud.apis.values()}
    granted = {pattern.partition(".")[0] for patterns in roles.ROLES.values() for pattern in patterns}
    return {*emulated, *granted, "storage"} - {"", "*"}
