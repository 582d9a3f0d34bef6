"""Settings of a user for all jobs: settings.yaml in the XDG config folder, or the file named by $TPUKIT_SETTINGS."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tpukit.core.errors import Invalid, Problem
from tpukit.jobs.spec import located_yaml
from tpukit.jobs.spec.field_kinds import Flag, Items, Named, Text
from tpukit.jobs.spec.fields import BUCKET_PATH, IMAGE, LABEL, TEAM, TEXT
from tpukit.jobs.spec.forms import Form, refuse, shown
from tpukit.jobs.spec.job import JobSpec
from tpukit.jobs.spec.model import Model, field
from tpukit.jobs.spec.program_config import KEY
from tpukit.jobs.spec.words import either, flow

_PROJECT = r"(?:[a-z0-9][-a-z0-9.]*:)?[a-z][-a-z0-9]{4,28}[a-z0-9]"
_REGION = r"[a-z]+-[a-z]+[0-9]+"


def _free(alias: str) -> str:
    if alias in JobSpec.fields:
        refuse(f"{shown(alias)} is a field of the job file", "use another name")
    return alias


PROJECT = Text(Form(_PROJECT, "write the id of the project, such as my-project-1", 128))
REGION = Text(Form(_REGION, "write a region, such as us-central2", 32))
ZONE = Text(Form(rf"{_REGION}-[a-z0-9]+", "write a zone, such as us-central2-b", 32))
_WORD = Text(Form(r"[A-Za-z0-9_][-A-Za-z0-9_.]*", "write one word", 128))
_CONTEXT = Text(Form(r"[-A-Za-z0-9_.:@/]+", "write the name of a context of the kubeconfig", 256))
_REPOSITORY = Text(
    Form(
        r"[a-z0-9-]+-docker\.pkg\.dev/[-a-z0-9.:]+(?:/[-a-z0-9.]+)?/[a-z][-a-z0-9]*",
        "write REGION-docker.pkg.dev/PROJECT/REPOSITORY",
        256,
    )
)
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
    """Settings for all jobs of a person."""

    team: str = field(TEAM, "Team of jobs that name none.", "research", default="tpu-training")
    context: str | None = field(
        _CONTEXT,
        "Context of the kubeconfig that jobs are sent to (default: the current one of kubectl).",
        "gke_my-project-1_us-central2_tpu-cluster",
        default=None,
    )
    project: str | None = field(PROJECT, "Google Cloud project.", "my-project-1", default=None)
    region: str | None = field(REGION, "Region of the cluster.", "us-central2", default=None)
    zone: str | None = field(ZONE, "Zone of TPU VMs.", "us-central2-b", default=None)
    runtime_version: str | None = field(
        _WORD, "Software version of TPU VMs (default: by their generation).", "tpu-ubuntu2204-base", default=None
    )
    queued: bool = field(
        Flag(),
        "Whether requests for TPU VMs wait in Google's queue for capacity; otherwise they fail without capacity.",
        True,
        default=True,
    )
    setup: tuple[str, ...] = field(
        Items(TEXT, 64),
        "Command that prepares each host of a TPU VM, in the job's code. It runs again when the command, or a file "
        "that it names, has changed.",
        ["pip", "install", "-r", "requirements.txt"],
        default=(),
    )
    ssh_user: str | None = field(_WORD, "Login on TPU VMs (default: your login on this machine).", "ada", default=None)
    ssh_key: str | None = field(
        TEXT,
        "Private SSH key for TPU VMs (default: a key that tpukit creates).",
        "~/.ssh/google_compute_engine",
        default=None,
    )
    external_ips: bool = field(Flag(), "Whether TPU VMs get external addresses.", True, default=True)
    image: str | None = field(
        IMAGE,
        "Container image of jobs that name none.",
        f"us-central1-docker.pkg.dev/my-project-1/tpu-cluster/train@sha256:{'0' * 64}",
        default=None,
    )
    repository: str | None = field(
        _REPOSITORY,
        "Repository that `tpu image push` pushes to.",
        "us-central1-docker.pkg.dev/my-project-1/tpu-cluster",
        default=None,
    )
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
        "Store of jobs: sqlite, a file on this machine (the default), or a database that a team shares.",
        "firestore://my-project-1",
        default=None,
    )
    inventory_sheet: str | None = field(
        _WORD,
        "Id of a Google Sheet, from its address, into which `tpu serve` writes the holders of TPU VMs.",
        "1AbC-dEf_2gHiJkLmNoPqRsTuVwXyZ",
        default=None,
    )
    fit: bool = field(
        Flag(), "Whether `tpu run` compiles each job first, and refuses jobs that do not fit.", True, default=False
    )
    aliases: dict[str, str] = field(
        Named(Text(KEY, _free), _SETTING),
        "Short names for settings of programs, in addition to the built-in ones.",
        {"wu": "config.training.warmup_steps"},
        default={},
    )


def path() -> Path:
    """Return the path of the settings file, whether or not it exists."""
    if named := os.environ.get("TPUKIT_SETTINGS"):
        return Path(named)
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "tpukit" / "settings.yaml"


def hint(*keys: str) -> str:
    """Return what to do about missing settings: the commands, and the lines to add to the file."""
    commands = " and ".join(f"`tpu settings {key} {_example(key)}`" for key in keys)
    lines = " and ".join(f"`{written(key, _example(key))}`" for key in keys)
    return f"run {commands}, or add {lines} to {path()}"


def _example(key: str) -> str:
    return flow(Settings.fields[key].examples[0])


def written(key: str, text: str) -> str:
    """Return the line of the file that gives `key` this value."""
    return with_lines("", {key: read_value(key, text)}).rstrip("\n")


def read_value(key: str, text: str) -> Any:
    """Return a value as written on a command line: YAML, or the text itself for text settings."""
    if isinstance(Settings.fields[key].kind, Text):
        return text
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise Invalid(Problem(key, f"{text!r} is not YAML", f"write {Settings.example((key,))}")) from error


def unknown(key: str) -> tuple[str, str]:
    """Return the problem with a key that does not exist, and the keys that may be meant."""
    near = difflib.get_close_matches(key.lower(), list(Settings.fields), n=1)
    return f"there is no setting {shown(key)}", f"write {either(near or list(Settings.fields))}"


def source(key: str) -> str:
    """Return where the value of a setting comes from: FILE:LINE, or default."""
    file = path()
    root = located_yaml.parse(located_yaml.read(file), str(file))[0] if file.exists() else None
    given = root.value if root is not None and isinstance(root.value, dict) else {}
    return str(given[key].where) if key in given and given[key].value is not None else "default"


def store() -> str:
    """Return the store's address from $TPUKIT_STORE or the settings; empty: a file on this machine."""
    return os.environ.get("TPUKIT_STORE") or load().store or ""


def load() -> Settings:
    """Return the user's settings; the defaults if there is no file."""
    file = path()
    return _parse(located_yaml.read(file), file) if file.exists() else Settings()


def _parse(text: str, file: Path) -> Settings:
    root, found = located_yaml.parse(text, str(file))
    if root.value is None:
        return Settings()
    if not isinstance(root.value, dict):
        hint = "start with the line team: research"
        raise Invalid(Problem(root.where, "a settings file has lines of the form key: value", hint))
    return Settings.from_node(root, found)


def save(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Write these settings into the file, and return those that were new or different.

    The rest of the file stays as it is, with its comments. The file is replaced atomically.
    """
    before = load().to_json(given=True)
    changed = {name: value for name, value in changes.items() if before.get(name) != value}
    if not changed:
        return {}
    wanted, file = Settings.from_json({**before, **changed}), path()
    text = with_lines(located_yaml.read(file) if file.exists() else "", changed)
    _replace(file, text, wanted, changed)
    return changed


def remove(key: str) -> None:
    """Remove a setting from the file, so that its default applies. Do nothing if it is not there."""
    file, before = path(), load().to_json(given=True)
    if key not in before:
        return
    wanted = Settings.from_json({name: value for name, value in before.items() if name != key})
    _replace(file, with_lines(located_yaml.read(file), {key: None}), wanted, {key: None})


def _replace(file: Path, text: str, wanted: Settings, changed: Mapping[str, Any]) -> None:
    try:
        same = _parse(text, file) == wanted
    except Invalid:  # a file in another style than one line for each name
        same = False
    if not same:
        lines = "\n  ".join(yaml.safe_dump(changed, sort_keys=False).splitlines())
        raise Invalid(Problem(str(file), "tpukit cannot edit this file line by line", f"write into it\n  {lines}"))
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}.{os.getpid()}")
    new.write_text(text, encoding="utf-8")
    new.replace(file)


def with_lines(text: str, changes: Mapping[str, Any]) -> str:
    """Return a settings file with other values for these names.

    Existing names stay on their line, new ones go to the end, and None removes a name.
    """
    lines = text.splitlines()
    for name, value in changes.items():
        one_line = f"{name}: {flow(value)}" if isinstance(value, (list, tuple, dict)) else ""
        made = [one_line or yaml.safe_dump({name: value}, width=10_000).rstrip("\n")]
        at = next((number for number, old in enumerate(lines) if re.match(rf"{re.escape(name)}\s*:", old)), None)
        if at is None:
            lines += [] if value is None else made
            continue
        end = at + 1
        while end < len(lines) and lines[end][:1] in (" ", "\t"):  # a value may continue in the lines below
            end += 1
        lines[at:end] = [] if value is None else made
    return "".join(f"{line}\n" for line in lines)
