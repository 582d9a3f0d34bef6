"""What a person sets once for all jobs: settings.yaml under the XDG config folder, or where $TPUKIT_SETTINGS says."""

from __future__ import annotations

import os
from pathlib import Path

from tpukit.errors import Invalid, Problem
from tpukit.spec import document
from tpukit.spec.config import KEY
from tpukit.spec.fields import BUCKET_PATH, IMAGE, LABEL, TEAM
from tpukit.spec.forms import Form, refuse, shown
from tpukit.spec.job import JobSpec
from tpukit.spec.kinds import Named, Text
from tpukit.spec.model import Model, field

_PROJECT = r"(?:[a-z0-9][-a-z0-9.]*:)?[a-z][-a-z0-9]{4,28}[a-z0-9]"
_REGION = r"[a-z]+-[a-z]+[0-9]+"


def _free(alias: str) -> str:
    if alias in JobSpec.fields:
        refuse(f"{shown(alias)} is a field of the job file", "use another name")
    return alias


PROJECT = Text(Form(_PROJECT, "write the id of the project, such as my-project-1", 128))
REGION = Text(Form(_REGION, "write a region, such as us-central2", 32))
ZONE = Text(Form(rf"{_REGION}-[a-z0-9]+", "write a zone, such as us-central2-b", 32))
_TENSORBOARD = Text(
    Form(
        rf"projects/[-a-z0-9.:]+/locations/{_REGION}/tensorboards/[0-9]+",
        "write projects/PROJECT/locations/REGION/tensorboards/NUMBER",
        256,
    )
)
_STORE = Text(
    Form(
        rf"sqlite|firestore://{_PROJECT}(?:/(?:[a-z][-a-z0-9]{{2,61}}[a-z0-9]|\(default\)))?",
        "write sqlite, or firestore://PROJECT, or firestore://PROJECT/DATABASE",
        256,
    )
)
_SETTING = Text(
    Form(r"config(?:\.[A-Za-z_][-A-Za-z0-9_]*)+", "write config.NAME, such as config.training.learning_rate", 512)
)


class Settings(Model):
    """What holds for all jobs of a person."""

    team: str = field(TEAM, "Team of jobs that name none.", "research", default="tpu-training")
    project: str | None = field(PROJECT, "Google Cloud project.", "my-project-1", default=None)
    region: str | None = field(REGION, "Region of the cluster.", "us-central2", default=None)
    zone: str | None = field(ZONE, "Zone of TPU VMs.", "us-central2-b", default=None)
    artifacts: str | None = field(
        BUCKET_PATH,
        "Bucket for staged code and for runs whose job names no workdir.",
        "gs://my-artifacts",
        default=None,
    )
    tensorboard: str | None = field(
        _TENSORBOARD,
        "Vertex AI TensorBoard that the uploader sends to.",
        "projects/my-project-1/locations/us-central1/tensorboards/123",
        default=None,
    )
    tools_image: str | None = field(
        IMAGE, "Image with tpukit, for the uploader.", "us-docker.pkg.dev/my-project-1/tools/tpukit:1", default=None
    )
    service_account: str = field(
        LABEL, "Kubernetes service account that pods run as.", "cloud-tpu-sa", default="cloud-tpu-sa"
    )
    store: str | None = field(
        _STORE,
        "Where jobs are remembered: a file on this machine unless told, or a database that a team shares.",
        "firestore://my-project-1",
        default=None,
    )
    aliases: dict[str, str] = field(
        Named(Text(KEY, _free), _SETTING),
        "Short names for settings of programs, beside the built-in ones.",
        {"wu": "config.training.warmup_steps"},
        default={},
    )


def path() -> Path:
    """Where the settings are read from, whether or not there is a file."""
    if named := os.environ.get("TPUKIT_SETTINGS"):
        return Path(named)
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "tpukit" / "settings.yaml"


def store() -> str:
    """Where jobs are remembered: what $TPUKIT_STORE says, or the settings; empty: a file on this machine."""
    return os.environ.get("TPUKIT_STORE") or load().store or ""


def load() -> Settings:
    """The person's settings; the defaults where there is no file."""
    file = path()
    if not file.exists():
        return Settings()
    root, found = document.parse(document.read(file), str(file))
    if root.value is None:
        return Settings()
    if not isinstance(root.value, dict):
        hint = "start with the line team: research"
        raise Invalid(Problem(root.where, "a settings file is made of lines such as key: value", hint))
    return Settings.from_node(root, found)
