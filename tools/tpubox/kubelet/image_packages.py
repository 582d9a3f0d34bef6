"""Python packages of this machine to hide from a pod because its image does not have them.

There are no images here: pods run this machine's interpreter with its packages. Packages for the development of tpukit
and for the sandbox are hidden from all pods, because no image of a job has them. tpukit itself is hidden from pods of
public images, see `image_names`. Every other package counts as part of the image or as installed by the program: there
is no registry to ask.

A folder whose whole content is hidden is hidden itself, because Python would take an empty folder for a package.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import Distribution, distributions
from pathlib import Path

TOOLKIT = "tpukit"
_NO_IMAGE_HAS = frozenset({"dev", "sandbox"})  # extras of tpukit
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[([^]]*)\])?")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)")


@cache
def not_in_image(packages: Path, *, toolkit: bool) -> tuple[str, ...]:
    """Return the files and folders in `packages` that an image with or without tpukit does not have."""
    installed = {_name(one.name): one for one in distributions(path=[str(packages)])}
    absent = _absent(installed, toolkit=toolkit)
    found = {packages / path for name in absent for path in _paths(installed[name], packages)}
    return tuple(sorted(map(str, _whole_folders({path for path in found if path.exists()}, packages))))


def _whole_folders(paths: set[Path], packages: Path) -> set[Path]:
    while full := {path.parent for path in paths if path.parent != packages and _holds_only(path.parent, paths)}:
        paths = {path for path in paths if path.parent not in full} | full
    return paths


def _holds_only(folder: Path, paths: set[Path]) -> bool:
    """Return whether the folder holds only `paths`, apart from Python's cache."""
    return all(entry in paths for entry in folder.iterdir() if entry.name != "__pycache__")


def _absent(installed: Mapping[str, Distribution], *, toolkit: bool) -> set[str]:
    if TOOLKIT not in installed:
        return set()
    extras = set(installed[TOOLKIT].metadata.get_all("Provides-Extra") or ())
    everything = _needed(installed, extras)
    of_images = _needed(installed, extras - _NO_IMAGE_HAS)
    return everything - of_images | (set() if toolkit else {TOOLKIT})


def _needed(installed: Mapping[str, Distribution], extras: Iterable[str]) -> set[str]:
    """Return the packages that tpukit with these extras needs, including indirect ones.

    Conditions other than extras are assumed to hold: packages for other systems are not installed here.
    """
    seen: set[tuple[str, str]] = set()
    todo = [(TOOLKIT, ""), *((TOOLKIT, extra) for extra in extras)]
    while todo:
        name, extra = wanted = todo.pop()
        if wanted in seen or name not in installed:
            continue
        seen.add(wanted)
        for text in installed[name].requires or ():
            what, _, condition = text.partition(";")
            found, only = _REQUIREMENT.match(what), _EXTRA.search(condition)
            if found and (only[1] if only else "") == extra:
                names = ["", *filter(None, re.split(r"\s*,\s*", (found[2] or "").strip()))]
                todo += [(_name(found[1]), one) for one in names]
    return {name for name, _ in seen}


def _paths(package: Distribution, packages: Path) -> set[str]:
    """Return the package's files and folders; a folder only if other packages cannot have files in it."""
    lines = csv.reader((package.read_text("RECORD") or "").splitlines())
    files = {line[0] for line in lines if line and not line[0].startswith(("..", "/")) and line[0][-4:] != ".pyc"}
    around = {folder: _own(Path(folder), packages) for folder in {file.rpartition("/")[0] for file in files}}
    return {around[file.rpartition("/")[0]] or file for file in files}


def _own(folder: Path, packages: Path) -> str:
    """Return the outermost folder that belongs to the package alone, or "" if other packages may share all of them."""
    for around in (*reversed(folder.parents[:-1]), folder):
        if around.suffix == ".dist-info" or (packages / around / "__init__.py").exists():
            return around.as_posix()
    return ""


def _name(text: str) -> str:
    return re.sub(r"[-_.]+", "-", text).lower()
