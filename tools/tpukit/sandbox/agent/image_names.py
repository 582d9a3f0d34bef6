"""Images, of which there are none here: which ones cannot be pulled, which ones another process stands for, and which
ones have tpukit."""

from __future__ import annotations

import re

from tpukit.sandbox import releases

MISSING = "does-not-exist"
"""A name with this in it stands for an image that cannot be pulled."""
_GONE = "gcr.io/kubebuilder/"  # since March 2025: https://github.com/kubernetes-sigs/kubebuilder/discussions/3907
_RELEASES = re.compile(rf"registry\.k8s\.io/({'|'.join(releases.NAMES)})/\1:")

ELSEWHERE = frozenset(releases.image(name) for name in releases.NAMES)
"""Controllers that the sandbox runs outside its nodes."""


_PUBLIC = re.compile(
    r"((docker\.io/)?(library/)?(alpine|bash|busybox|debian|python|ubuntu)|(docker\.io/)?google/cloud-sdk"
    r"|registry\.k8s\.io/.+|gcr\.io/google\.com/cloudsdktool/.+|us-docker\.pkg\.dev/cloud-tpu-images/.+)([:@].*)?"
)
"""Images of others, as they are used on clusters like these. The rest are taken to be of tpukit's Dockerfile."""


def has_tpukit(image: str) -> bool:
    return not _PUBLIC.fullmatch(image)


def missing(image: str) -> bool:
    return MISSING in image or image.startswith(_GONE) or (bool(_RELEASES.match(image)) and image not in ELSEWHERE)


def in_artifact_registry(image: str) -> bool:
    return "-docker.pkg.dev/" in image
