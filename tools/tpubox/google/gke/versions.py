"""GKE versions: the offered ones, aliases such as `latest` or `1.34`, and the permitted upgrades."""

from __future__ import annotations

import re

from tpubox.box import binaries
from tpubox.google.wire.sources import GKE_NODE_MINOR, GKE_NODE_VERSION, GKE_VERSION, GKE_VERSION_FORM, GUESS
from tpubox.google.wire.state import Doc


def _offered(kubernetes: str) -> tuple[str, ...]:
    """Return the GKE version of this Kubernetes version, and those of the two previous minor versions.

    Numbers of builds and of older patches are invented.
    """
    major, minor, patch = kubernetes.removeprefix("v").split(".")
    older = (f"{major}.{int(minor) - back}.1-gke.3084001" for back in (1, 2))
    return (f"{major}.{minor}.{patch}-gke.1000000", *older)


VERSIONS = _offered(binaries.versions()["kubernetes"])
"""Offered versions, newest first. The first is the default, and the version of the box's API server."""

_FORM = re.compile(r"-?|latest|1\.[0-9]+(\.[0-9]+(-.*)?)?")


def for_control_plane(asked: str) -> str:
    """Return the version of a new cluster: `-` is the default, `1.34` the newest of 1.34."""
    found = VERSIONS[0] if asked in ("", "-", "latest") else _newest(asked)
    if found is None:
        raise GKE_VERSION.invalid(f'Master version "{asked}" is unsupported.')
    return found


def for_upgrade(cluster: Doc, asked: str) -> str:
    """Return the version that a control plane may upgrade to: a later patch, or the next minor version.

    https://cloud.google.com/kubernetes-engine/docs/how-to/upgrading-a-cluster
    """
    wanted, current = for_control_plane(asked), str(cluster["currentMasterVersion"])
    steps = _order(wanted)[1] - _order(current)[1]
    if steps > 1:
        raise GUESS.invalid(
            f'Master cannot be upgraded to "{wanted}": cannot upgrade the master more than a minor version at a time.'
        )
    if steps < 0:
        raise GUESS.invalid(
            f'Master cannot be downgraded to "{wanted}": the minor version of "{current}" cannot be decreased.'
        )
    return wanted


def for_nodes(cluster: Doc, asked: str) -> str:
    """Return the version of the cluster's nodes: `-` is the control plane's, which is also the upper bound."""
    if not _FORM.fullmatch(asked):
        raise GKE_VERSION_FORM.invalid(
            f"Version \"{asked}\" is invalid. It should have the form 1.X, 1.X.Y, 1.X.Y-.*, 'latest'"
        )
    master = str(cluster["currentMasterVersion"])
    found = master if asked in ("", "-") else VERSIONS[0] if asked == "latest" else _newest(asked)
    if found is None:
        raise GUESS.invalid(f'Node version "{asked}" is unsupported.')
    if _order(found)[:2] > _order(master)[:2]:
        raise GKE_NODE_MINOR.invalid(
            f'Node version "{found}" must not have a greater minor version than master version "{master}".'
        )
    if _order(found) > _order(master):
        raise GKE_NODE_VERSION.invalid(
            f'desired node version "{found}" cannot be greater than current master version "{master}".'
        )
    return found


def _newest(asked: str) -> str | None:
    """Return the newest version with the requested prefix: 1.34 and 1.34.1 match, 1.3 does not."""
    return next((one for one in VERSIONS if one == asked or one.startswith((f"{asked}.", f"{asked}-"))), None)


def _order(version: str) -> tuple[int, ...]:
    number, _, build = version.partition("-gke.")
    return (*(int(part) for part in number.split(".")), int(build or 0))
