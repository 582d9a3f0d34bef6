"""Write constraints.txt: the newest compatible versions of everything `tpukit[dev]` needs, by name and version.

    python tools/constraints.py python3.11 python3.12 python3.13

Each interpreter resolves for itself, because some packages drop older interpreters; a version that not all of them
accept gets a marker. The file has names and versions only: the user's configuration decides where packages come from.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "constraints.txt"
HEAD = """\
# Versions that were tested together, for `pip install -c constraints.txt -e .[dev]`.
# Written by tools/constraints.py; see CONTRIBUTING.md.
"""


def resolve(python: str) -> tuple[str, dict[str, str]]:
    """Return the interpreter's version ("3.13"), and what pip would install for it."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        pip = [f"{folder}/venv/bin/python", "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([python, "-m", "venv", f"{folder}/venv"], check=True)
        what = ["install", "--quiet", "--dry-run", "--ignore-installed", "--report", str(report), f"{ROOT}[dev]"]
        subprocess.run([*pip, *what], check=True)
        found = json.loads(report.read_text(encoding="utf-8"))
    versions = {item["metadata"]["name"].lower(): item["metadata"]["version"] for item in found["install"]}
    del versions["tpukit"]
    return found["environment"]["python_version"], versions


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


def main(pythons: list[str]) -> None:
    if not pythons:
        sys.exit(__doc__)
    resolved = sorted((resolve(python) for python in pythons), key=lambda item: tuple(map(int, item[0].split("."))))
    TARGET.write_text(HEAD + "\n".join(lines(resolved)) + "\n", encoding="utf-8")
    print(f"{TARGET.name}: {len(lines(resolved))} lines for Python {', '.join(python for python, _ in resolved)}")


if __name__ == "__main__":
    main(sys.argv[1:])
