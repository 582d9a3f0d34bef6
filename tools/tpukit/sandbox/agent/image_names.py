"""Images, of which there are none here: which ones cannot be pulled, and which ones another process stands for."""

from __future__ import annotations

import re

from tpukit.sandbox import releases

MISSING = "does-not-exist"
"""A name with this in it stands for an image that cannot be pulled."""
_GONE = "gcr.io/kubebuilder/"  # since March 2025: https://github.com/kubernetes-sigs/kubebuilder/discussions/3907
_RELEASES = re.compile(rf"registry\.k8s\.io/({'|'.join(releases.NAMES)})/\1:")

ELSEWHERE = frozenset(releases.image(name) for name in releases.NAMES)
"""Controllers that the sandbox runs outside its nodes."""


def missing(image: str) -> bool:
    return MISSING in image or image.startswith(_GONE) or (bool(_RELEASES.match(image)) and image not in ELSEWHERE)
