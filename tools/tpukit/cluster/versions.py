"""The releases of JobSet and Kueue that these manifests are written for, and those that can still be installed."""

from __future__ import annotations

import re

from tpukit.core.errors import Problem

JOBSET = "v0.12.0"
KUEUE = "v0.16.6"

_RELEASE = re.compile(r"v(\d+)\.(\d+)\.(\d+)(?:-[a-z0-9.]+)?")
_OLDEST = {
    # Releases up to v0.7.3 use gcr.io/kubebuilder/kube-rbac-proxy, which cannot be pulled since March 2025:
    # https://github.com/kubernetes-sigs/jobset/pull/722
    # https://github.com/kubernetes-sigs/kubebuilder/discussions/3907
    "JobSet": ((0, 8, 0), JOBSET, "its proxy image gcr.io/kubebuilder/kube-rbac-proxy is gone"),
    # https://github.com/kubernetes-sigs/kueue/blob/main/CHANGELOG/CHANGELOG-0.15.md
    "Kueue": ((0, 15, 0), KUEUE, "its proxy image may be gone, and it does not know kueue.x-k8s.io/v1beta2"),
}


def problem(name: str, version: str, where: str) -> Problem | None:
    """Return the problem with a release of JobSet or Kueue requested at `where`, if any."""
    oldest, tested, why = _OLDEST[name]
    found = _RELEASE.fullmatch(version)
    if not found:
        return Problem(where, f"{version!r} is not a release of {name}", f"write {where}={tested}, or leave it out")
    if tuple(map(int, found.groups())) < oldest:
        first = "v" + ".".join(map(str, oldest))
        what = f"{name} {version} can no longer be installed: {why}"
        return Problem(where, what, f"write {where}={tested}, or leave it out; {first} is the oldest that works")
    return None
