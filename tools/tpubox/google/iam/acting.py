"""Actions of Google's services as an account of the project, such as builds and GKE nodes.

They need the same permissions as programs, grants reach them with the same delay, and their actions are in the record
of calls.
"""

from __future__ import annotations

from collections.abc import Sequence

from tpubox.google.iam import permissions
from tpubox.google.iam.conditions import Facts
from tpubox.google.wire.cloud import Cloud


def may(cloud: Cloud, agent: str, email: str, permission: str, scopes: Sequence[str], facts: Facts) -> bool:
    """Return True if `email` has the permission, and record the call by `agent`, the name of the service."""
    member = f"serviceAccount:{email}"
    given = permissions.may(cloud, member, permission, scopes, facts)
    cloud.state.note(
        {
            "at": cloud.clock.now(),
            "method": "",
            "path": facts.resource,
            "status": 200 if given else 403,
            "principal": member,
            "permissions": [permission],
            "agent": agent,
        }
    )
    return given
