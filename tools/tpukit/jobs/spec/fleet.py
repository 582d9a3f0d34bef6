"""The fleet file: TPU VMs, their zones and their work. Flags set the same fields and take precedence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from tpukit import catalogue
from tpukit.core.errors import Invalid, Problem
from tpukit.jobs.spec import located_yaml
from tpukit.jobs.spec.field_kinds import Choice, Flag, Integer, Items, Named, Text
from tpukit.jobs.spec.fields import DURATION, NAME, TEXT, Duration
from tpukit.jobs.spec.forms import Form, Refusal, Violation, refuse
from tpukit.jobs.spec.located_yaml import Node
from tpukit.jobs.spec.model import Model, field
from tpukit.jobs.spec.settings import ZONE

MOST_STREAMS = 1000
"""Most streams: each is an open file while the dataset is split, and all of them are one page of a list."""
_BUCKET = r"(?:gs://)?[a-z0-9][-a-z0-9_.]{1,220}[a-z0-9](?:/[^\x00-\x1f*?\[\]#]+)?/?|/[^\x00-\x1f]+"


def _each_once(zones: tuple[str, ...]) -> tuple[str, ...]:
    if not zones:
        refuse("the list of zones is empty")
    for index, zone in enumerate(zones):
        if zone in zones[:index]:
            raise Refusal([((index,), f"{zone} is named twice", "name each zone once")])
    return zones


def _of_one_host(name: str) -> str:
    try:
        shape = catalogue.find(name)
    except Invalid as error:
        raise Refusal([((), problem.what, problem.hint) for problem in error.problems]) from error
    if shape.hosts > 1:
        refuse(f"{shape.name} has {shape.hosts} hosts, and a worker is one", "write v3-8 or v4-8")
    return shape.name


class FleetSpec(Model):
    """A fleet as a user describes it. Only zones are required."""

    name: str = field(NAME, "Name of the fleet, a label of its TPU VMs (default: your user name).", "ada", default="")
    zones: tuple[str, ...] = field(
        Items(ZONE, 100, _each_once, least=1), "Zones of the TPU VMs.", ["us-central1-a", "us-central1-b"]
    )
    workers_per_zone: int = field(Integer(1, 1000), "TPU VMs in each zone.", 4, default=1)
    tpu_type: str = field(Text(None, _of_one_host), "Type of the TPU VMs, a slice of one host.", "v3-8", default="v3-8")
    capacity: Literal["spot", "on-demand"] = field(
        Choice("spot", "on-demand"), "How the hardware is bought.", "spot", default="spot"
    )
    stay: bool = field(
        Flag(), "Whether a worker waits for hardware in its zone rather than move to another.", True, default=False
    )
    move_after: int = field(DURATION, "How long a worker waits for hardware before it moves.", "5m", default=300)
    gcs_bucket: str | None = field(
        Text(Form(_BUCKET, "write BUCKET or gs://BUCKET/FOLDER", 1024)),
        "Bucket for datasets/ and activations/.",
        "my-data",
        default=None,
    )
    dataset: tuple[str, ...] = field(
        Items(TEXT, 10_000), "Files of JSONL, which may be .gz.", ["data.jsonl"], default=()
    )
    streams: int = field(
        Integer(0, MOST_STREAMS), "Streams of the dataset; 0: as many as there are workers.", 16, default=0
    )
    max_samples: int = field(Integer(0), "Samples of each stream to use, for a test; 0: all.", 100, default=0)
    program: str | None = field(
        Text(Form(r"[^\x00-\x1f:]+:[A-Za-z_]\w*", "write FILE.py:NAME or MODULE:NAME", 1024)),
        "Function that makes shards; the folder of its file is sent along.",
        "extract.py:make",
        default=None,
    )
    options: dict[str, str] = field(
        Named(Text(Form(r"[A-Za-z_][-\w.]*", "use letters, digits, -, . and _", 128)), TEXT),
        "Options of the program.",
        {"model": "Qwen/Qwen2.5-0.5B"},
        default={},
    )
    requirements: str | None = field(
        TEXT, "File in the folder of the program that each host installs.", "requirements.txt", default=None
    )
    shard_samples: int = field(Integer(1), "Samples in each shard.", 500, default=1000)
    patience: int = field(
        DURATION, "Longest time without progress until the program is restarted.", "10m", default=1800
    )
    unattended: int = field(
        Duration(zero=True),
        "Time without a driver after which TPU VMs of the fleet delete themselves; 0s: never.",
        "24h",
        default=86400,
    )
    claim: int = field(DURATION, "Time until another worker may take the stream of a lost worker.", "1m", default=60)

    @classmethod
    def between(cls, good: Mapping[str, Any], raw: Mapping[str, Any]) -> Iterator[Violation]:
        count = len(good.get("zones", ())) * good.get("workers_per_zone", 1)
        if good.get("program") and not good.get("streams", 0) and count > MOST_STREAMS:
            yield ("streams",), f"{count} workers would have as many streams", f"write streams: {MOST_STREAMS} or less"
        if good.get("requirements") and ".py:" not in good.get("program", ".py:"):
            yield (
                ("requirements",),
                "a module is not sent along, only the folder of a file",
                "write program: FILE.py:NAME",
            )


def load(file: Path | None, flags: Mapping[str, Any], default: str = "") -> FleetSpec:
    """Return the fleet in a file, overridden by `flags`: plain data by field name.

    Paths in the file are relative to its folder, those in flags to the current folder. `default`: the name where
    neither sets one.

    Raises:
        Invalid: With every problem found.
    """
    if file is None and "zones" not in flags:
        hint = "write --zones us-central1-a,us-central1-b, or name a fleet file"
        raise Invalid(Problem("--zones", "which zones?", hint))
    root, found = located_yaml.parse(located_yaml.read(file, "fleet"), str(file)) if file else (Node({}, ""), [])
    if root.value is None:
        root.value = {}
    if not isinstance(root.value, dict):
        hint = "start with the line zones: [us-central1-a]"
        raise Invalid(Problem(root.where, "a fleet file has lines of the form key: value", hint))
    for name, value in flags.items():
        node = _node(value, flag_of(name))
        if name == "options" and isinstance(there := root.value.get(name, Node({}, "")).value, dict):
            node.value = {**there, **node.value}
        root.value[name] = node
    if default and "name" not in root.value:
        root.value["name"] = _node(default, "--name")
    found += _settle(root.value, file.parent if file else Path())
    return FleetSpec.from_node(root, found)


def flag_of(name: str) -> str:
    """Return the flag for a field."""
    return "--option" if name == "options" else f"--{name.replace('_', '-')}"


def _node(value: Any, where: str) -> Node:
    if isinstance(value, Mapping):
        return Node({key: _node(item, where) for key, item in value.items()}, where)
    if isinstance(value, (list, tuple)):
        return Node([_node(item, where) for item in value], where)
    return Node(value, where)


def _settle(fields: Mapping[str, Node], base: Path) -> list[Problem]:
    """Make paths absolute, in place, and return problems with missing files."""
    found = []
    dataset, program = fields.get("dataset"), fields.get("program")
    for node in dataset.value if dataset is not None and isinstance(dataset.value, list) else ():
        if isinstance(node.value, str):
            node.value = str(_absolute(node, node.value, base))
            if not Path(node.value).is_file():
                found.append(Problem(node.where, f"there is no file {node.value}", "write the path of the dataset"))
    if program is not None and isinstance(program.value, str) and re.search(r"\.py:\w+$", program.value):
        name, _, function = program.value.rpartition(":")
        path = _absolute(program, name, base)
        program.value = f"{path}:{function}"
        wanted = fields.get("requirements")
        if not path.is_file():
            found.append(Problem(program.where, f"there is no file {path}", "write the path of the program"))
        elif wanted and isinstance(wanted.value, str) and not (path.parent / wanted.value).is_file():
            words = f"there is no {wanted.value} beside {path.name}"
            found.append(Problem(wanted.where, words, "write a file in the folder of the program"))
    return found


def _absolute(node: Node, written: str, base: Path) -> Path:
    start = Path() if node.where.startswith("--") else base
    return (start / Path(written).expanduser()).absolute()
