"""The releases of JobSet and Kueue that these manifests are written for, and the known faults of others."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tpukit.core.errors import Problem

JOBSET = "v0.12.0"
KUEUE = "v0.19.2"
TESTED = {"JobSet": JOBSET, "Kueue": KUEUE}

_RELEASE = re.compile(r"v(\d+)\.(\d+)\.(\d+)(?:-[a-z0-9.]+)?")
_KUEUE_PULL = "https://github.com/kubernetes-sigs/kueue/pull"

Release = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of some releases of JobSet or Kueue."""

    name: str
    releases: tuple[tuple[Release, Release], ...]  # each from the first up to, but not including, the second
    what: str  # continues "Kueue v0.16.6 ..."
    link: str
    refused: bool = False  # the release must not be installed; otherwise a warning


FAULTS = (
    # Releases up to v0.7.3 use gcr.io/kubebuilder/kube-rbac-proxy, which cannot be pulled since March 2025:
    # https://github.com/kubernetes-sigs/kubebuilder/discussions/3907
    Fault(
        "JobSet",
        (((0, 0, 0), (0, 8, 0)),),
        "can no longer be installed: its proxy image gcr.io/kubebuilder/kube-rbac-proxy is gone",
        "https://github.com/kubernetes-sigs/jobset/pull/722",
        refused=True,
    ),
    Fault(
        "JobSet",
        (((0, 8, 0), (0, 12, 0)),),
        "counts the Jobs of a deleted JobSet as those of a new one with the same name",
        "https://github.com/kubernetes-sigs/jobset/pull/1167",
    ),
    Fault(
        "Kueue",
        (((0, 0, 0), (0, 15, 0)),),
        "can no longer be installed: its proxy image may be gone, and it does not know kueue.x-k8s.io/v1beta2",
        "https://github.com/kubernetes-sigs/kueue/blob/main/CHANGELOG/CHANGELOG-0.15.md",
        refused=True,
    ),
    Fault(
        "Kueue",
        (((0, 16, 6), (0, 16, 8)), ((0, 17, 1), (0, 17, 3))),  # FinishOrphanedWorkloads is on by default in these
        "may mark the Workload of a new JobSet as finished, which blocks the queue",
        "https://github.com/kubernetes-sigs/kueue/issues/10901",
        refused=True,
    ),
    Fault(
        "Kueue",
        (((0, 15, 6), (0, 15, 8)), ((0, 16, 3), (0, 16, 5))),
        "may stop preempting, because it waits for a preemption that has ended",
        f"{_KUEUE_PULL}/10206",
    ),
    Fault(
        "Kueue",
        (((0, 15, 0), (0, 16, 8)), ((0, 17, 0), (0, 17, 3))),
        "admits jobs without quota whose requests exceed int64",
        f"{_KUEUE_PULL}/11151",
    ),
    Fault(
        "Kueue",
        (((0, 15, 0), (0, 16, 9)), ((0, 17, 0), (0, 17, 4))),
        "may leave the first job of a queue waiting for a preemption, and all jobs behind it",
        f"{_KUEUE_PULL}/11647",
    ),
    Fault(
        "Kueue",
        (((0, 18, 0), (0, 18, 4)),),
        "may crash when the number of slices of a running JobSet changes",
        f"{_KUEUE_PULL}/13025",
    ),
)


def faults(name: str, version: str) -> tuple[Fault, ...]:
    """Return the known faults of a release; none if the text is not a release."""
    release = _parse(version)
    if release is None:
        return ()
    return tuple(
        fault
        for fault in FAULTS
        if fault.name == name and any(first <= release < fixed for first, fixed in fault.releases)
    )


def problem(name: str, version: str, where: str) -> Problem | None:
    """Return the problem with a release of JobSet or Kueue requested at `where`, if any."""
    hint = f"write {where}={TESTED[name]}, or leave it out"
    if _parse(version) is None:
        return Problem(where, f"{version!r} is not a release of {name}", hint)
    for fault in faults(name, version):
        if fault.refused:
            return Problem(where, _line(fault, version), hint)
    return None


def warnings(name: str, version: str) -> list[str]:
    """Return a line for each known fault of a release, with the page that describes it."""
    return [_line(fault, version) for fault in faults(name, version)]


def newer(version: str, than: str) -> bool:
    """Return whether a release is newer than another. Text that is not a release is not newer."""
    one, other = _parse(version), _parse(than)
    return one is not None and other is not None and one > other


def _line(fault: Fault, version: str) -> str:
    return f"{fault.name} {version} {fault.what}: {fault.link}"


def _parse(version: str) -> Release | None:
    found = _RELEASE.fullmatch(version)
    if not found:
        return None
    major, minor, patch = map(int, found.groups())
    return major, minor, patch
