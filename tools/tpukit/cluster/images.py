"""Build images of jobs with Cloud Build from a folder with a Dockerfile, push them, and refer to them by digest."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpukit.cluster import bootstrap, diagnosis, gcloud, programs
from tpukit.cluster.programs import Cancelled, Command
from tpukit.core import paths
from tpukit.core.errors import Invalid, NotFound, Problem, TpukitError

_SECONDS = 3600
_DOCKER = "gcr.io/cloud-builders/docker"
_BUILD = re.compile(r"/builds/([-0-9a-f]{36})")
# gcloud's advice to use its beta command and its progress messages do not help here.
_NOISE = re.compile(r"only displays logs from|^gcloud beta builds|^Waiting for build|^Created \[|^$")


@dataclass(frozen=True, slots=True)
class Repository:
    """A Docker repository of Artifact Registry: REGION-docker.pkg.dev/PROJECT/NAME."""

    url: str

    @property
    def project(self) -> str:
        """The project; a domain-scoped one (example.com:p) is two parts of the address."""
        return ":".join(self.url.split("/")[1:-1])

    @property
    def location(self) -> str:
        return self.url.partition("-docker.pkg.dev/")[0]

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


def pushers(repository: Repository) -> Command:
    """Return the command that lets the image build account push to this repository, and to no other."""
    email = gcloud.email(bootstrap.IMAGE_ACCOUNT, repository.project)
    return gcloud.command(
        *("artifacts", "repositories", "add-iam-policy-binding", repository.name),
        *(f"--project={repository.project}", f"--location={repository.location}"),
        *(f"--member=serviceAccount:{email}", "--role=roles/artifactregistry.writer", "--format=none"),
    )


def config_file() -> Path:
    return paths.data() / "image-build.json"


def config(image: str, dockerfile: str) -> dict[str, Any]:
    """Return the build: https://cloud.google.com/build/docs/building/build-containers.

    It logs to Cloud Logging, where a user-specified account may write without a bucket.
    """
    return {
        "steps": [{"name": _DOCKER, "args": ["build", "--file", dockerfile, "--tag", image, "."]}],
        "images": [image],
        "options": {"logging": "CLOUD_LOGGING_ONLY"},
    }


def submit(repository: Repository, folder: Path, file: Path) -> Command:
    email = gcloud.email(bootstrap.IMAGE_ACCOUNT, repository.project)
    return gcloud.command(
        *("builds", "submit", str(folder), f"--config={file}", f"--project={repository.project}"),
        f"--service-account=projects/{repository.project}/serviceAccounts/{email}",
        f"--gcs-source-staging-dir=gs://{bootstrap.source_bucket(repository.project)}/source",
        *(f"--timeout={_SECONDS}s", "--suppress-logs", "--format=json(id,status,results.images)"),
    )


def check(folder: Path, dockerfile: str) -> None:
    if not (folder / dockerfile).is_file():
        hint = "pass the folder with the Dockerfile; tpukit's checkout has one with JAX and tpukit"
        raise Invalid(Problem(str(folder), f"there is no {dockerfile}", hint))


def push(repository: Repository, folder: Path, dockerfile: str, name: str, tag: str, say: Callable[[str], None]) -> str:
    """Build and push an image, and return it by digest. Ctrl-C leaves the build running."""
    check(folder, dockerfile)
    programs.need("gcloud", gcloud.INSTALL)
    image, file = f"{repository.url}/{name}:{tag}", config_file()
    file = file.with_name(f"{file.stem}.{os.getpid()}.json")
    file.write_text(json.dumps(config(image, dockerfile)), encoding="utf-8")
    printed: list[str] = []
    notes: list[str] = []

    def note(line: str) -> None:
        notes.append(line)
        if not _NOISE.search(line) and not line.startswith("ERROR"):
            say(line)

    say(f"building {image} from {folder}")
    try:
        done = programs.stream(submit(repository, folder, file), printed.append, on_note=note)
    finally:
        file.unlink(missing_ok=True)
    found = _BUILD.search("\n".join(notes))
    if done.presses:
        left = f"the build {found[1]} continues; " if found else ""
        raise Cancelled("the push was interrupted", hint=f"{left}the same command starts a new build")
    if done.code:
        raise _failure(repository, found[1] if found else "", done.errors)
    digest = _digest("\n".join(printed), image)
    return f"{repository.url}/{name}@{digest}"


def _digest(printed: str, image: str) -> str:
    try:
        images = json.loads(printed)["results"]["images"]
        return str(next(one["digest"] for one in images if one["name"] == image))
    except (ValueError, LookupError, TypeError, StopIteration):
        raise NotFound(f"the build did not print the digest of {image}", hint="this is the output of gcloud") from None


def _failure(repository: Repository, build: str, errors: str) -> TpukitError:
    """Return the error of a refused build, or of a failed one with the reason from its record."""
    if not build:
        return diagnosis.failure("gcloud", errors, "sending the build")
    project = f"--project={repository.project}"
    why = gcloud.command("builds", "describe", build, project, "--format=value(statusDetail)")
    try:
        detail = gcloud.read(why, "reading the build").strip()
    except TpukitError:
        detail = ""
    error = diagnosis.failure("gcloud", detail or errors, "the build")
    if "denied" in detail or "does not have" in detail:
        hint = (
            f"`tpu cluster up` gives {bootstrap.IMAGE_ACCOUNT} the roles that it needs; they take effect after minutes"
        )
    else:
        hint = f"its log: `gcloud beta builds log {build} {project}`"
    return type(error)(error.message.partition("\n  ")[0] if isinstance(error, Invalid) else error.message, hint=hint)
