"""What a person sets once for all jobs: settings.yaml under the XDG config folder, or where $TPUKIT_SETTINGS says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from tpukit.errors import Invalid, Problem
from tpukit.spec import document
from tpukit.spec.config import KEY
from tpukit.spec.fields import BucketPath, Image, Label, Team
from tpukit.spec.forms import Form, refuse, shown
from tpukit.spec.job import JobSpec
from tpukit.spec.model import Model

_PROJECT = r"(?:[a-z0-9][-a-z0-9.]*:)?[a-z][-a-z0-9]{4,28}[a-z0-9]"
_REGION = r"[a-z]+-[a-z]+[0-9]+"


def _free(alias: str) -> str:
    if alias in JobSpec.model_fields:
        refuse(f"{shown(alias)} is a field of the job file", "use another name")
    return alias


Project = Annotated[str, Form(_PROJECT, "write the id of the project, such as my-project-1", 128)]
Region = Annotated[str, Form(_REGION, "write a region, such as us-central2", 32)]
Zone = Annotated[str, Form(rf"{_REGION}-[a-z0-9]+", "write a zone, such as us-central2-b", 32)]
Tensorboard = Annotated[
    str,
    Form(
        rf"projects/[-a-z0-9.:]+/locations/{_REGION}/tensorboards/[0-9]+",
        "write projects/PROJECT/locations/REGION/tensorboards/NUMBER",
        256,
    ),
]
Alias = Annotated[str, KEY, AfterValidator(_free)]
Setting = Annotated[
    str, Form(r"config(?:\.[A-Za-z_][-A-Za-z0-9_]*)+", "write config.NAME, such as config.training.learning_rate", 512)
]


class Settings(Model):
    team: Team = Field("tpu-training", description="Team of jobs that name none.", examples=["research"])
    project: Project | None = Field(None, description="Google Cloud project.", examples=["my-project-1"])
    region: Region | None = Field(None, description="Region of the cluster.", examples=["us-central2"])
    zone: Zone | None = Field(None, description="Zone of TPU VMs.", examples=["us-central2-b"])
    artifacts: BucketPath | None = Field(
        None,
        description="Bucket for staged code and for runs whose job names no workdir.",
        examples=["gs://my-artifacts"],
    )
    tensorboard: Tensorboard | None = Field(
        None,
        description="Vertex AI TensorBoard that the uploader sends to.",
        examples=["projects/my-project-1/locations/us-central1/tensorboards/123"],
    )
    tools_image: Image | None = Field(
        None,
        description="Image with tpukit, for the uploader.",
        examples=["us-docker.pkg.dev/my-project-1/tools/tpukit:1"],
    )
    service_account: Label = Field(
        "cloud-tpu-sa", description="Kubernetes service account that pods run as.", examples=["cloud-tpu-sa"]
    )
    aliases: dict[Alias, Setting] = Field(
        default_factory=dict,
        description="Short names for settings of programs, beside the built-in ones.",
        examples=[{"wu": "config.training.warmup_steps"}],
    )


def path() -> Path:
    """Where the settings are read from, whether or not there is a file."""
    if named := os.environ.get("TPUKIT_SETTINGS"):
        return Path(named)
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "tpukit" / "settings.yaml"


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
