"""testIamPermissions: which of the permissions that are asked about the caller has. Anybody may ask; on a thing that is
not there nobody has any.

https://cloud.google.com/iam/docs/testing-permissions
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
    """For things at this path, which are documents of that kind; projects are none."""

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
        # The words are a guess; that wildcards are refused is documented.
        if not known_permissions.is_valid(permission):
            raise TESTED_PERMISSION.invalid(f"Permission {permission} is not valid for this resource.")
    who = call.request.principal
    known = [one for one in asked if one.partition(".")[0] in _services(cloud)]
    return [one for one in known if who == OWNER or may(cloud, who, one, scopes, facts)]


def _services(cloud: Cloud) -> set[str]:
    """Whose permissions one can have here: nobody has those of a service that is neither emulated nor in any role."""
    emulated = {api.permissions for api in cloud.apis.values()}
    granted = {pattern.partition(".")[0] for patterns in roles.ROLES.values() for pattern in patterns}
    return {*emulated, *granted, "storage"} - {"", "*"}
