"""Load a job file and `--set` into a JobSpec, or report everything that is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tpukit.core.errors import Invalid, Problem
from tpukit.jobs.spec import located_yaml, overrides, program_config
from tpukit.jobs.spec.job import JobSpec
from tpukit.jobs.spec.located_yaml import Node


def load(path: str | os.PathLike[str], sets: Sequence[str] = (), aliases: Mapping[str, str] | None = None) -> JobSpec:
    """Return the job in a file. Its folders are relative to the file, those in `--set` to the current folder."""
    file = Path(path)
    return loads(located_yaml.read(file), str(file), sets, aliases, base=file.parent)


def loads(
    text: str,
    name: str = "job.yaml",
    sets: Sequence[str] = (),
    aliases: Mapping[str, str] | None = None,
    *,
    base: Path | None = None,
) -> JobSpec:
    """Return the job in a text. Folders become absolute if `base` gives the folder that they are relative to."""
    known = {**program_config.ALIASES, **(aliases or {})}
    root, found = located_yaml.parse(text, name)
    if root.value is None and not sets:
        raise Invalid(Problem(root.where, "the job file is empty", "write at least name, tpu and command"))
    if root.value is None:
        root.value = {}
    if not isinstance(root.value, dict):
        hint = "start with the line name: pretrain"
        raise Invalid(Problem(root.where, "a job file has lines of the form key: value", hint))
    if "config" in root.value:
        found += program_config.expand(root.value["config"], known)
    found += overrides.apply(root, sets, known)
    if base is not None:
        found += _settle(root.value, base)
    return JobSpec.from_node(root, found, known)


def _settle(fields: Mapping[str, Node], base: Path) -> list[Problem]:
    """Make folders absolute, in place, and return problems with missing ones."""
    found = []
    for name in ("code", "workdir"):
        node = fields.get(name)
        if node is None or not isinstance(node.value, str) or not node.value.isprintable() or "://" in node.value:
            continue
        written = node.value
        start = Path() if node.where.startswith("--set ") else base
        folder = (Path.home() / written[2:] if written.startswith("~/") else start / written).absolute()
        node.value = str(folder)
        if name == "code" and not folder.is_dir():
            found.append(Problem(node.where, f"code: there is no folder {written}", "write the folder of the program"))
    return found
