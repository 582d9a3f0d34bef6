"""A Google account for one team, with access to the team's folder of the bucket and to no other team's.

The folder is a managed one: https://cloud.google.com/storage/docs/managed-folders. With a condition on object names,
the account could read and write below a prefix but not list it, because Google checks lists against the bucket.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

from tpukit.cluster import bootstrap, gcloud
from tpukit.cluster.bootstrap import Step
from tpukit.cluster.programs import Command
from tpukit.core.clock import Clock

_LONGEST = 30
ROLE = "roles/storage.objectUser"
BUCKET_ROLE = "roles/storage.bucketViewer"
"""Role on the whole bucket for its metadata, not its objects. Orbax reads it before it removes an old checkpoint."""


def account_of(team: str) -> str:
    """Return the name of a team's account: within Google's 6 to 30 characters, and unique to the team."""
    plain = f"team-{team}"
    if len(plain) <= _LONGEST and not plain.endswith("-"):
        return plain
    mark = f"{zlib.crc32(team.encode()):08x}"
    return f"{plain[: _LONGEST - len(mark) - 1].rstrip('-')}-{mark}"


def folder_of(team: str, bucket: str) -> str:
    """Return the team's part of a bucket, which its members set as `artifacts` in their settings."""
    return f"{bucket.rstrip('/')}/teams/{team}"


def steps(team: str, project: str, bucket: str) -> list[Step]:
    name, folder = account_of(team), f"{folder_of(team, bucket)}/"
    email, of_project = gcloud.email(name, project), f"--project={project}"
    return [
        Step(
            f"account {name}",
            (
                gcloud.command(
                    *("iam", "service-accounts", "create", name, of_project, f"--display-name=Jobs of team {team}")
                ),
            ),
            gcloud.command("iam", "service-accounts", "describe", email, of_project, "--format=value(email)"),
        ),
        Step(
            f"folder {folder}",
            (
                gcloud.command("storage", "managed-folders", "create", folder),
                gcloud.command(
                    *("storage", "managed-folders", "add-iam-policy-binding", folder),
                    *(f"--member=serviceAccount:{email}", f"--role={ROLE}", "--format=none"),
                ),
            ),
            gcloud.command("storage", "managed-folders", "describe", folder, "--format=value(name)"),
        ),
        Step(f"{bucket} is known to {name}", (_on_bucket("add", bucket, email),)),
    ]


def _on_bucket(verb: str, bucket: str, email: str) -> Command:
    return gcloud.command(
        *("storage", "buckets", f"{verb}-iam-policy-binding", "/".join(bucket.split("/")[:3])),
        *(f"--member=serviceAccount:{email}", f"--role={BUCKET_ROLE}", "--format=none"),
    )


def removal(team: str, email: str, bucket: str) -> list[Command]:
    """Return the commands that delete account and folder. Google refuses a folder that is not empty."""
    return [
        _on_bucket("remove", bucket, email),
        gcloud.command("storage", "managed-folders", "delete", f"{folder_of(team, bucket)}/"),
        gcloud.command("iam", "service-accounts", "delete", email),
    ]


def lines(made: list[Step]) -> list[str]:
    return [line for step in made for line in step.lines()]


def run(made: list[Step], clock: Clock, say: Callable[[str], None]) -> None:
    """Create account and folder. Safe to repeat."""
    for step in made:
        bootstrap.have(step, clock, say)
