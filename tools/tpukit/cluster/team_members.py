"""Roles that team members need at Google Cloud, besides the role in the team's namespace.

Access to the control plane by its DNS name requires the IAM permission `container.clusters.connect`
(https://cloud.google.com/kubernetes-engine/docs/concepts/network-isolation). The role that includes it shows clusters
and gives no access inside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tpukit.cluster import gcloud, team_account
from tpukit.cluster.programs import Command

CONNECT = "roles/container.clusterViewer"
LOGS = "roles/logging.viewer"
"""Role for `tpu job logs` of deleted pods. It shows the logs of the whole project."""


def people(members: Sequence[str]) -> list[str]:
    """Return the members that IAM knows; service accounts of the namespace belong to Kubernetes."""
    return [one for one in members if one.startswith(("user:", "group:"))]


def commands(team: str, members: Sequence[str], project: str, bucket: str) -> list[Command]:
    """Return the commands that grant the roles; `bucket` is "" if the team's folder is unknown."""
    return [command for one in people(members) for command in _of(team, one, project, bucket)]


def _of(team: str, member: str, project: str, bucket: str) -> Iterator[Command]:
    for role in (CONNECT, LOGS):
        yield gcloud.command(
            *("projects", "add-iam-policy-binding", project, f"--member={member}", f"--role={role}"),
            *("--condition=None", "--format=none"),
        )
    if bucket:
        folder = f"{team_account.folder_of(team, bucket)}/"
        yield gcloud.command(
            *("storage", "managed-folders", "add-iam-policy-binding", folder, f"--member={member}"),
            *(f"--role={team_account.ROLE}", "--format=none"),
        )
