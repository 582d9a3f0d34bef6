"""Images are built from what was reviewed, and not from what a tag points to later."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILES = sorted([ROOT / "Dockerfile", *ROOT.glob("deploy/*/Dockerfile")])
EXACT = re.compile(r"python:\d+\.\d+\.\d+-slim-bookworm@sha256:[0-9a-f]{64}")


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_image_starts_from_an_exact_version_with_its_digest(file):
    bases = re.findall(r"^FROM (\S+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    assert bases
    assert [base for base in bases if not EXACT.fullmatch(base)] == []


def test_all_images_start_from_the_same_base():
    """The stages that build an environment, and those that run it, need one interpreter."""
    texts = [file.read_text(encoding="utf-8") for file in DOCKERFILES]
    assert len({base for text in texts for base in re.findall(r"^FROM (\S+)", text, re.MULTILINE)}) == 1
