"""testIamPermissions: which of the permissions that are asked about the caller has. Anybody may ask; on a thing that is
not there nobody has any.

https://cloud.google.com/iam/docs/testing-permissions
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tpukit.sandbox.google.api import Api, Call
from tpukit.sandbox.google.cloud import Cloud
from tpukit.sandbox.google.conditions import Facts
from tpukit.sandbox.google.permissions import OWNER, may
from tpukit.sandbox.google.sources import GUESS
from tpukit.sandbox.google.state import Doc

_PERMISSION = re.compile(r"[a-z]+(\.[a-zA-Z]+){2,}")


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
        if not _PERMISSION.fullmatch(permission):  # the words are a guess; that wildcards are refused is documented
            raise GUESS.invalid(f"Permission {permission} is not valid for this resource.")
    who = call.request.principal
    return [one for one in asked if who == OWNER or may(cloud, who, one, scopes, facts)]
