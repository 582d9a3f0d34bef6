"""Which Python packages of this machine a pod does not see, because its image does not have them.

There are no images here: pods run this machine's interpreter, with the packages beside it. Among these are some that
no image of a job has: what tpukit is developed with, and what the sandbox alone needs. They are hidden from all pods.
tpukit is hidden from pods of public images too, see `image_names`. Whatever else is installed counts as part of the
image, or as what a program installs itself: there is no registry to ask.

A pod sees a folder of links in place of site-packages. It is made once for each kind of image; nothing is copied.
"""

from __future__ import annotations

import csv
import hashlib
import re
import shutil
import sysconfig
import threading
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import Distribution, distributions
from pathlib import Path

from tpukit.pods import Mount

TOOLKIT = "tpukit"
_NO_IMAGE_HAS = frozenset({"dev", "sandbox"})  # extras of tpukit
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[([^]]*)\])?")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)")


class Views:
    """What pods see in place of the packages of this machine."""

    def __init__(self, folder: Path, packages: Path | None = None) -> None:
        """`packages`: the folder that Python finds them in."""
        self._folder = folder
        self._packages = packages or Path(sysconfig.get_path("purelib"))
        self._whole = folder / "machine"  # where pods have the real folder, for the links
        self._lock = threading.Lock()
        self._made: dict[bool, Path] = {}

    def mounts(self, *, toolkit: bool) -> list[Mount]:
        """For a pod whose image has tpukit, or has not. The first one waits for its view to be made."""
        with self._lock:
            if toolkit not in self._made:
                self._made[toolkit] = self._make(hidden(self._packages, toolkit=toolkit))
        return [
            Mount(self._packages, str(self._whole), read_only=True),
            Mount(self._made[toolkit], str(self._packages), read_only=True),
        ]

    def _make(self, hide: frozenset[str]) -> Path:
        """Named after what is in it: pods that an agent before this one started look at those that it made."""
        self._whole.mkdir(parents=True, exist_ok=True)
        known = "\n".join([*sorted(hide), "", *sorted(entry.name for entry in self._packages.iterdir())])
        view = self._folder / hashlib.sha256(known.encode()).hexdigest()[:16]
        if not view.exists():
            new = view.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)  # of an agent that was killed
            self._link("", new, hide)
            new.rename(view)
        return view

    def _link(self, part: str, to: Path, hide: frozenset[str]) -> None:
        to.mkdir()
        for entry in (self._packages / part).iterdir():
            path = f"{part}{entry.name}"
            if path in hide:
                continue
            if any(one.startswith(f"{path}/") for one in hide):
                self._link(f"{path}/", to / entry.name, hide)
            else:
                (to / entry.name).symlink_to(self._whole / path)
        if part and not any(to.iterdir()):
            to.rmdir()  # Python would take it for a package


@cache
def hidden(packages: Path, *, toolkit: bool) -> frozenset[str]:
    """Files and folders below `packages`, by relative path, that an image with tpukit, or without, does not have."""
    installed = {_name(one.name): one for one in distributions(path=[str(packages)])}
    return frozenset(
        path for name in _not_in_image(installed, toolkit=toolkit) for path in _paths(installed[name], packages)
    )


def _not_in_image(installed: Mapping[str, Distribution], *, toolkit: bool) -> set[str]:
    if TOOLKIT not in installed:
        return set()
    extras = set(installed[TOOLKIT].metadata.get_all("Provides-Extra") or ())
    everything = _needed(installed, extras)
    of_images = _needed(installed, extras - _NO_IMAGE_HAS)
    return everything - of_images | (set() if toolkit else {TOOLKIT})


def _needed(installed: Mapping[str, Distribution], extras: Iterable[str]) -> set[str]:
    """Packages that tpukit with these extras needs, and those that they need. Conditions other than extras are taken
    to hold: what is needed on another system only is not installed here."""
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
    """The package's own files and folders: whole ones where nobody else's files can be in them."""
    lines = csv.reader((package.read_text("RECORD") or "").splitlines())
    files = [Path(line[0]) for line in lines if line and not line[0].startswith(("..", "/"))]
    return {_own(file, packages) for file in files}


def _own(file: Path, packages: Path) -> str:
    for folder in reversed(file.parents[:-1]):
        if folder.suffix == ".dist-info" or (packages / folder / "__init__.py").exists():
            return folder.as_posix()
    return file.as_posix()


def _name(text: str) -> str:
    return re.sub(r"[-_.]+", "-", text).lower()
