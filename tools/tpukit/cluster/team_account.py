"""A Google account of a team's own: it reaches the team's folder of the bucket, and nothing of any other team.

The folder is a managed one: https://cloud.google.com/storage/docs/managed-folders. A condition on the names of objects
would let the account read and write below a prefix and not list it, because Google checks lists against the bucket.
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
"""On the whole bucket: what it is, and nothing that is in it. Orbax asks that before it removes an old checkpoint."""


def account_of(team: str) -> str:
    """The name of a team's account: within Google's 6 to 30 characters, and one for each team."""
    plain = f"team-{team}"
    if len(plain) <= _LONGEST and not plain.endswith("-"):
        return plain
    mark = f"{zlib.crc32(team.encode()):08x}"
    return f"{plain[: _LONGEST - len(mark) - 1].rstrip('-')}-{mark}"


def folder_of(team: str, bucket: str) -> str:
    """The team's part of a bucket; what its members write as `artifacts` in their settings."""
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
    """What takes account and folder away. A folder with something in it is refused."""
    return [
        _on_bucket("remove", bucket, email),
        gcloud.command("storage", "managed-folders", "delete", f"{folder_of(team, bucket)}/"),
        gcloud.command("iam", "service-accounts", "delete", email),
    ]


def lines(made: list[Step]) -> list[str]:
    return [line for step in made for line in step.lines()]


def run(made: list[Step], clock: Clock, say: Callable[[str], None]) -> None:
    """Safe to repeat: what is there stays as it is."""
    for step in made:
        bootstrap.have(step, clock, say)
