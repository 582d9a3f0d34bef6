"""The version of the code is the newest release of the changelog, and the one that the README installs."""

from __future__ import annotations

import re
from pathlib import Path

import tpukit

ROOT = Path(__file__).resolve().parents[3]


def test_version_is_the_newest_of_the_changelog_and_the_wheel_of_the_readme() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", changelog, re.MULTILINE)
    assert headings[0] == ("Unreleased", "")
    assert headings[1][0] == tpukit.__version__ and headings[1][1]
    wheels = re.findall(r"tpukit-([0-9.]+)-py3-none-any\.whl", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert set(wheels) == {tpukit.__version__}
