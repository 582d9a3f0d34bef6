"""Write tools/locks/NAME.txt: what the builds of images and the Cloud Build steps install, by version and hash.

    python3.13 tools/locks.py            all of them
    python3.13 tools/locks.py serve      one of them

Run it on Linux with x86-64 and the Python of the images, after constraints.txt has changed. pip refuses every file
whose hash is not in the list (`--require-hashes`). Each list has the hash of one file for each package: that of this
platform.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tools" / "locks"
SETS = {
    "build": "hatchling",  # builds the wheel of tpukit
    "base": f"{ROOT}",
    "train": f"{ROOT}[tpu]",
    "provisioner": f"{ROOT}[provisioner]",
    "queue": f"{ROOT}[firestore,tpu]",
    "serve": f"{ROOT}[gke,firestore,rest]",
}
HEAD = """\
# What a build installs, for `pip install --require-hashes --no-deps -r`.
# Written by tools/locks.py; see CONTRIBUTING.md.
"""


def resolve(requirement: str) -> list[dict[str, str]]:
    """Return name, version and hash of each package that pip would install here."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--dry-run"]
        how = ["--ignore-installed", "--only-binary=:all:", "-c", f"{ROOT / 'constraints.txt'}"]
        subprocess.run([*pip, *how, "--report", str(report), requirement], check=True)
        found = json.loads(report.read_text(encoding="utf-8"))["install"]
    return [
        {
            "name": one["metadata"]["name"].lower(),
            "version": one["metadata"]["version"],
            "hash": one["download_info"]["archive_info"]["hashes"]["sha256"],
        }
        for one in found
        if one["metadata"]["name"] != "tpukit"
    ]


def text(packages: list[dict[str, str]]) -> str:
    """Return the file for these packages, in the order of their names."""
    rows = sorted(f"{one['name']}=={one['version']} --hash=sha256:{one['hash']}" for one in packages)
    return HEAD + "\n".join(rows) + "\n"


def main(names: list[str]) -> None:
    if unknown := set(names) - set(SETS):
        sys.exit(f"there is no {', '.join(sorted(unknown))}: write any of {', '.join(SETS)}")
    FOLDER.mkdir(exist_ok=True)
    for name in names or SETS:
        packages = resolve(SETS[name])
        (FOLDER / f"{name}.txt").write_text(text(packages), encoding="utf-8")
        print(f"{name}.txt: {len(packages)} packages")


if __name__ == "__main__":
    main(sys.argv[1:])
