"""IAM: custom roles of a project, with explicit permissions.

https://cloud.google.com/iam/docs/reference/rest/v1/projects.roles
"""

from __future__ import annotations

import base64
import json
import re
import zlib

from tpubox.google.iam import known_permissions
from tpubox.google.iam.service_accounts import api
from tpubox.google.wire.api import Call, camel, public
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import GUESS, PERMISSION_NOT_VALID
from tpubox.google.wire.state import Doc

ROLES = "projects/{project}/roles"
ROLE = ROLES + "/{role}"
_FIELDS = ("title", "description", "includedPermissions", "stage")


@api.on("POST", ROLES, body="CreateRoleRequest")
def _create(cloud: Cloud, call: Call) -> Doc:
    short = call.body.get("roleId", "")
    if not re.fullmatch(r"[a-zA-Z0-9_.]{3,64}", short):
        raise GUESS.invalid(
            f"The role_id {short!r} must be 3 to 64 characters of a-z, A-Z, 0-9, underscore and period."
        )
    name = f"projects/{call['project']}/roles/{short}"
    if old := cloud.state.get("role", name):
        if old.get("deleted"):
            raise GUESS.not_ready(
                f"You can't create a role with role_id ({short}) where there is an existing role with that role_id "
                "in a deleted state."
            )
        raise GUESS.exists(f"A role named {short} in projects/{call['project']} already exists.")
    asked = call.body.get("role", {})
    return _put(cloud, {"stage": "ALPHA", **{key: asked[key] for key in _FIELDS if key in asked}, "name": name})


@api.on("GET", ROLES)
def _listed(cloud: Cloud, call: Call) -> Doc:
    """Return the roles, without their permissions unless the full view is requested."""
    full = call.query.get("view") == "FULL"
    every = call.flag("showDeleted")
    found = cloud.state.all("role", f"projects/{call['project']}/").values()
    shown = [public(role) for role in found if every or not role.get("deleted")]
    return {"roles": shown if full else [{key: role[key] for key in role if key != _FIELDS[2]} for role in shown]}


@api.on("GET", ROLE)
def _show(cloud: Cloud, call: Call) -> Doc:
    return public(_find(cloud, call))


@api.on("PATCH", ROLE, body="Role")
def _patch(cloud: Cloud, call: Call) -> Doc:
    role = _find(cloud, call)
    mask = call.query.get("updateMask", "")
    fields = [camel(one.strip()) for one in mask.split(",")] if mask else [key for key in _FIELDS if key in call.body]
    if role.get("deleted") and "deleted" not in fields:
        raise GUESS.not_ready(f"You can't update the role ({call['role']}) because it is deleted.")
    _check_etag(role, call)
    changed = {key: call.body[key] for key in fields if key in call.body}
    rest = {key: value for key, value in role.items() if key not in fields and key != "etag"}
    return _put(cloud, {**rest, **changed})


@api.on("DELETE", ROLE)
def _delete(cloud: Cloud, call: Call) -> Doc:
    """Mark the role as deleted; Google keeps it restorable for a week."""
    role = _find(cloud, call)
    if role.get("deleted"):
        raise GUESS.not_ready(f"You can't delete role_id ({call['role']}) because it is already deleted.")
    return _put(cloud, {**role, "deleted": True})


@api.on("POST", ROLE + ":undelete", body="UndeleteRoleRequest")
def _undelete(cloud: Cloud, call: Call) -> Doc:
    role = _find(cloud, call)
    _check_etag(role, call)
    return _put(cloud, {key: value for key, value in role.items() if key != "deleted"})


@api.on("POST", "permissions:queryTestablePermissions", body="QueryTestablePermissionsRequest")
def _testable(cloud: Cloud, call: Call) -> Doc:
    """Return no permissions. gcloud asks in order to warn of permissions in testing stage, and there are none."""
    return {}


def _find(cloud: Cloud, call: Call) -> Doc:
    role = cloud.state.get("role", f"projects/{call['project']}/roles/{call['role']}")
    if role is None:
        raise GUESS.not_found(f"The role named projects/{call['project']}/roles/{call['role']} was not found.")
    return role


def _put(cloud: Cloud, role: Doc) -> Doc:
    for permission in role.get("includedPermissions", ()):
        if not known_permissions.is_valid(permission):
            raise PERMISSION_NOT_VALID.invalid(f"Permission {permission} is not valid.")
    plain = {key: value for key, value in role.items() if key != "etag"}
    mark = zlib.crc32(f"{json.dumps(plain, sort_keys=True)} {cloud.state.next()}".encode())
    stored = {**plain, "etag": base64.b64encode(mark.to_bytes(4, "big")).decode()}
    cloud.state.put("role", stored["name"], stored)
    return public(stored)


def _check_etag(role: Doc, call: Call) -> None:
    if call.body.get("etag") and call.body["etag"] != role["etag"]:
        raise GUESS.aborted("There were concurrent changes of the role.")
