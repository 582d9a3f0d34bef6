"""Rules for image names: which cannot be pulled, which another process stands for, and which contain tpukit.

The sandbox has no images.
"""

from __future__ import annotations

import re

from tpubox.box import releases

MISSING = "does-not-exist"
"""Part of a name that marks an image as impossible to pull."""
_GONE = "gcr.io/kubebuilder/"  # since March 2025: https://github.com/kubernetes-sigs/kubebuilder/discussions/3907
_RELEASES = re.compile(rf"registry\.k8s\.io/({'|'.join(releases.NAMES)})/\1:")

ELSEWHERE = frozenset(releases.image(name) for name in releases.NAMES)
"""Images of controllers that the sandbox runs outside its nodes."""


_PUBLIC = re.compile(
    r"((docker\.io/)?(library/)?(alpine|bash|busybox|debian|python|ubuntu)|(docker\.io/)?google/cloud-sdk"
    r"|registry\.k8s\.io/.+|gcr\.io/google\.com/cloudsdktool/.+|us-docker\.pkg\.dev/cloud-tpu-images/.+)([:@].*)?"
)
"""Public images that are common on such clusters. All others are assumed to be built from tpukit's Dockerfile."""


_DOMAIN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*(:[0-9]+)?")
_WORD = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
_DIGEST = r"@[A-Za-z][A-Za-z0-9]*([-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9A-Fa-f]{32,}"
_REST = re.compile(rf"{_WORD}(/{_WORD})*(:\w[\w.-]{{0,127}})?({_DIGEST})?", re.ASCII)


def malformed(image: str) -> str | None:
    """Return the error of containerd's parser beyond "invalid format", or None if the name is valid.

    https://github.com/distribution/reference/blob/main/regexp.go
    """
    domain, slash, rest = image.partition("/")
    if not slash or not (re.search(r"[.:A-Z]", domain) or domain == "localhost"):
        domain, rest = "", image
    if (not domain or _DOMAIN.fullmatch(domain)) and _REST.fullmatch(rest):
        return None
    name = re.split(r"[:@]", rest, maxsplit=1)[0]
    return ": repository name must be lowercase" if name != name.lower() else ""


def has_tpukit(image: str) -> bool:
    return not _PUBLIC.fullmatch(image)


def missing(image: str) -> bool:
    return MISSING in image or image.startswith(_GONE) or (bool(_RELEASES.match(image)) and image not in ELSEWHERE)


_RESERVED = re.compile(r"([^/:]*\.)?(test|example|invalid|example\.(com|net|org))(:[0-9]+)?/")
"""Registry names that cannot exist: https://www.rfc-editor.org/rfc/rfc2606"""
_REGISTRY = re.compile(r"(?P<place>[a-z0-9-]+)-docker\.pkg\.dev/(?P<path>[^:@]*)")
_PLACE = re.compile(r"us|europe|asia|[a-z]+-[a-z]+[0-9]{1,2}")


def impossible(image: str) -> str:
    """Return why no registry can have the image, in the words of a container runtime; empty if one might."""
    host, _, path = image.partition("/")
    found = _REGISTRY.match(image)
    if _RESERVED.match(image) or (found and not _PLACE.fullmatch(found["place"])):
        head = f'failed to do request: Head "https://{host}/v2/{re.split("[:@]", path)[0]}/manifests"'
        return f"{head}: dial tcp: lookup {host.partition(':')[0]}: no such host"
    if found and found["path"].count("/") < 2:  # PROJECT/REPOSITORY/IMAGE
        return "not found"
    return ""


def in_artifact_registry(image: str) -> bool:
    return "-docker.pkg.dev/" in image
