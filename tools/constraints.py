"""Write the versions that were tested together: constraints.txt, and with hashes tools/locked/{run,dev}.txt.

    python tools/constraints.py python3.11 python3.12 python3.13
    python tools/constraints.py --keep python3.11 python3.12 python3.13

constraints.txt has the newest compatible versions of everything `tpukit[dev]` needs; with --keep it stays as it is. The
locked files name what `make run` and `make setup` install, with the hashes of all files of each version.

Each interpreter resolves for itself, because some packages drop older interpreters; a version that not all of them
accept gets a marker, and so does a locked package that macOS does not need. Run it on Linux. The files have names,
versions and hashes only: the user's configuration decides where packages come from.
"""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "constraints.txt"
LOCKED = ROOT / "tools" / "locked"
RUN = "local,editable"
"""The parts of tpukit that `make run` installs."""
HEAD = """\
# Versions that were tested together, for `pip install -c constraints.txt -e .[dev]`.
# Written by tools/constraints.py; see CONTRIBUTING.md.
"""
LOCKED_HEAD = """\
# Everything that .[{extras}] needs, for `pip install --require-hashes --no-deps -r`.
# Written by tools/constraints.py; see CONTRIBUTING.md.
"""
_DEFAULT_INDEX = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"


@dataclass(frozen=True)
class Resolved:
    """What pip would install for an interpreter ("3.13"), and what of it macOS needs too."""

    python: str
    versions: Mapping[str, str]
    on_mac: Set[str]


def resolve(python: str, extras: str, constraints: Path | None = None) -> Resolved:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        pip = [f"{folder}/venv/bin/python", "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([python, "-m", "venv", f"{folder}/venv"], check=True)
        what = ["install", "--quiet", "--dry-run", "--ignore-installed", "--report", str(report), f"{ROOT}[{extras}]"]
        subprocess.run([*pip, *what, *(("-c", str(constraints)) if constraints else ())], check=True)
        found = json.loads(report.read_text(encoding="utf-8"))
    packages = {item["metadata"]["name"].lower(): item["metadata"] for item in found["install"]}
    on_mac = needed(packages, extras, {**found["environment"], "sys_platform": "darwin", "platform_system": "Darwin"})
    versions = {name: about["version"] for name, about in packages.items() if name != "tpukit"}
    return Resolved(found["environment"]["python_version"], versions, on_mac)


def needed(packages: Mapping[str, Mapping[str, Any]], extras: str, environment: Mapping[str, str]) -> Set[str]:
    """Return the packages that tpukit with its extras needs in an environment, directly or through others."""
    spelled = {canonicalize_name(name): name for name in packages}
    every = {name: [Requirement(text) for text in about.get("requires_dist", ())] for name, about in packages.items()}
    found, todo = set(), [("tpukit", extra) for extra in ("", *extras.split(","))]
    while todo:
        name, extra = todo.pop()
        if (name, extra) in found:
            continue
        found.add((name, extra))
        for one in every[name]:
            if one.marker.evaluate({**environment, "extra": extra}) if one.marker else not extra:
                todo += [(spelled[canonicalize_name(one.name)], inner) for inner in ("", *one.extras)]
    return {name for name, _ in found}


def lines(resolved: list[tuple[str, dict[str, str]]]) -> list[str]:
    """Return a line per package, or one per range of interpreters that differ. `resolved` goes from old to new."""
    written = []
    for name in sorted({name for _, versions in resolved for name in versions}):
        runs: list[tuple[str, str]] = []  # first interpreter of a range, and the version from there on
        for python, versions in resolved:
            if name in versions and (not runs or runs[-1][1] != versions[name]):
                runs.append((python, versions[name]))
        for index, (first, version) in enumerate(runs):
            bounds = [f'python_version >= "{first}"'] if index else []
            bounds += [f'python_version < "{runs[index + 1][0]}"'] if index + 1 < len(runs) else []
            written.append(f"{name}=={version}" + (f"; {' and '.join(bounds)}" if bounds else ""))
    return written


def locked(wanted: Sequence[str], on_mac: Set[str], hashes: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the lines with the hashes of all files of each version, as pip reads them."""
    written = []
    for line in wanted:
        pin, _, bounds = line.partition("; ")
        linux = [] if pin.partition("==")[0] in on_mac else ['sys_platform == "linux"']
        markers = " and ".join([*([bounds] if bounds else []), *linux])
        options = [f"--hash=sha256:{one}" for one in sorted(hashes[pin])]
        written.append(" \\\n    ".join([pin + (f"; {markers}" if markers else ""), *options]))
    return written


def hashes_of(index: str, pin: str) -> list[str]:
    """Return the hashes of all files of `name==version` in the index that pip uses."""
    name, version = pin.split("==")
    plain = canonicalize_name(name)
    context = ssl.create_default_context(cafile=os.environ.get("PIP_CERT"))
    request = urllib.request.Request(f"{index.rstrip('/')}/{plain}/", headers={"Accept": "text/html"})  # noqa: S310
    with urllib.request.urlopen(request, context=context, timeout=60) as answer:  # noqa: S310
        links = re.findall(r'/([^/"#]+)#sha256=([0-9a-f]{64})', answer.read().decode())
    form = re.compile(plain.replace("-", "[-_.]+") + "-" + re.escape(version) + r"(-|\.tar\.|\.zip)", re.IGNORECASE)
    found = [hash_ for file, hash_ in links if form.match(file)]
    assert found, f"{index} has no file of {pin}"
    return found


def index_url() -> str:
    """Return the index that pip is configured for."""
    for key in ("install.index-url", "global.index-url"):
        words = [sys.executable, "-m", "pip", "config", "get", key]
        if found := subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip():
            return os.environ.get("PIP_INDEX_URL", found)
    default = subprocess.run([sys.executable, "-c", _DEFAULT_INDEX], capture_output=True, text=True, check=True)
    return os.environ.get("PIP_INDEX_URL", default.stdout.strip())


def main(arguments: list[str]) -> None:
    pythons = [word for word in arguments if word != "--keep"]
    if not pythons:
        sys.exit(__doc__)
    constraints = TARGET if "--keep" in arguments else None
    everything = _resolved(pythons, "dev", constraints)
    if constraints is None:
        TARGET.write_text(HEAD + "\n".join(_lines(everything)) + "\n", encoding="utf-8")
    pins = sorted({line.partition(";")[0] for line in _lines(everything)})
    with ThreadPoolExecutor(8) as pool:
        hashes = dict(zip(pins, pool.map(partial(hashes_of, index_url()), pins), strict=True))
    LOCKED.mkdir(exist_ok=True)
    for name, extras, found in (("run", RUN, _resolved(pythons, RUN, TARGET)), ("dev", "dev", everything)):
        on_mac = frozenset().union(*(one.on_mac for one in found))
        text = LOCKED_HEAD.format(extras=extras) + "\n".join(locked(_lines(found), on_mac, hashes)) + "\n"
        (LOCKED / f"{name}.txt").write_text(text, encoding="utf-8")
        print(f"{name}.txt: {len(_lines(found))} lines for Python {', '.join(one.python for one in found)}")


def _resolved(pythons: Sequence[str], extras: str, constraints: Path | None) -> list[Resolved]:
    found = [resolve(python, extras, constraints) for python in pythons]
    return sorted(found, key=lambda one: tuple(map(int, one.python.split("."))))


def _lines(found: Sequence[Resolved]) -> list[str]:
    return lines([(one.python, dict(one.versions)) for one in found])


if __name__ == "__main__":
    main(sys.argv[1:])
