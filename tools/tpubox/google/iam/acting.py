"""What Google's services do as an account of the project: builds as theirs, nodes of GKE as theirs.

They need the permissions that programs need, grants reach them as late, and what they did is in the record of calls.
"""

from __future__ import annotations

from collections.abc import Sequence

from tpubox.google.iam import permissions
from tpubox.google.iam.conditions import Facts
from tpubox.google.wire.cloud import Cloud


def may(cloud: Cloud, agent: str, email: str, permission: str, scopes: Sequence[str], facts: Facts) -> bool:
    """`agent`: the service, as the record calls it. `email`: of the account that it acts as."""
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
