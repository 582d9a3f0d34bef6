"""The checks of a cluster: what each measures, its limit, and what to do if it fails. Pure.

A value that no host measured is unknown, never passed. A limit that no source states leaves the value without a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tpukit.catalogue import Slice

State = Literal["passed", "failed", "unknown"]
MEMLOCK_BYTES = 68_719_476_736
"""https://cloud.google.com/kubernetes-engine/docs/how-to/tpus states it for containers that are not privileged."""
_SHARE = 0.5
"""Share of the network's stated bandwidth that a healthy slice exceeds with large all-reduces."""


@dataclass(frozen=True, slots=True)
class Network:
    """Bandwidths of a chip in bytes a second, in one direction; None if no source states one."""

    ici: float | None
    dcn: float | None


@dataclass(frozen=True, slots=True)
class Target:
    """A job of the verification: one slice of a pool, or several."""

    pool: str
    shape: Slice
    slices: int
    network: Network

    @property
    def name(self) -> str:
        return self.pool if self.slices == 1 else f"{self.pool} × {self.slices}"


@dataclass(frozen=True, slots=True)
class Sample:
    """The values that one host measured, by check. A text is the reason why it could not."""

    host: str
    values: Mapping[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    what: str
    unit: str
    limit: Callable[[Target], float | None]
    least: bool  # the limit is the smallest good value; otherwise the largest
    advice: str
    several: bool = False  # only for jobs of several slices


@dataclass(frozen=True, slots=True)
class Result:
    target: str
    check: str
    state: State
    value: float | None
    limit: float | None
    unit: str
    text: str  # the host that decided, or why nothing was measured
    advice: str = ""


CHECKS = (
    Check(
        "chips",
        "chips that a host can use",
        "",
        lambda target: float(target.shape.chips_per_host),
        True,
        "if programs may not open the chips, set `access: tpu` in the job and `tpu team add TEAM --access tpu`",
    ),
    Check(
        "memlock",
        "memory that a host may lock",
        "bytes",
        lambda target: float(MEMLOCK_BYTES),
        True,
        "set `access: tpu` in the job, which lets it raise the limit",
    ),
    Check(
        "ici",
        "bandwidth between the chips of a slice",
        "bytes/s",
        lambda target: _share(target.network.ici) if target.shape.chips > 1 else None,
        True,
        "recreate the pool: one bad link slows the whole slice",
    ),
    Check(
        "dcn",
        "bandwidth between slices, for each chip",
        "bytes/s",
        lambda target: _share(target.network.dcn),
        True,
        "place the slices in one zone, and see the network section of jobset/README.md",
        several=True,
    ),
    Check(
        "bucket-write",
        "seconds to write 1 MiB to the bucket",
        "s",
        lambda target: 10.0,
        False,
        "give the team's account roles/storage.objectUser on the bucket: `tpu team add TEAM --own-account --bind`",
    ),
    Check(
        "bucket-read",
        "seconds to read it back",
        "s",
        lambda target: 10.0,
        False,
        "give the team's account roles/storage.objectUser on the bucket: `tpu team add TEAM --own-account --bind`",
    ),
    Check(
        "image",
        "seconds from the pod's node to the start of its container",
        "s",
        lambda target: 300.0,
        False,
        "keep images in the cluster's region, and let the nodes' account read the repository",
    ),
    Check(
        "tensorboard",
        "seconds until an event file can be read",
        "s",
        lambda target: 60.0,
        False,
        "see `tpu job logs JOB` of the uploader; its account needs roles/aiplatform.user",
    ),
    Check(
        "logs",
        "seconds until a line of each host can be read",
        "s",
        lambda target: 60.0,
        False,
        "you need the right to read pods' logs: `tpu team add TEAM --member WHO`",
    ),
    Check(
        "notice",
        "seconds from a preemption to SIGTERM in the program",
        "s",
        lambda target: 15.0,
        False,
        "the image's entrypoint must pass SIGTERM on: start the program with `exec`",
    ),
    Check(
        "clock",
        "seconds by which a host's clock differs from Google's",
        "s",
        lambda target: 2.0,
        False,
        "recreate the node: its time synchronisation does not work",
    ),
)
NAMES = tuple(check.name for check in CHECKS)


def judge(target: Target, samples: Sequence[Sample], hosts: int) -> list[Result]:
    """Return a result for each check of one job, by the worst of its hosts. `hosts`: how many should have reported."""
    due = [check for check in CHECKS if target.slices > 1 or not check.several]
    return [_result(check, target, samples, hosts) for check in due]


def failed(results: Iterable[Result]) -> list[Result]:
    return [one for one in results if one.state != "passed"]


def _result(check: Check, target: Target, samples: Sequence[Sample], hosts: int) -> Result:
    limit = check.limit(target)
    refusals = {sample.host: said for sample in samples if isinstance(said := sample.values.get(check.name), str)}
    measured = {
        sample.host: said for sample in samples if isinstance(said := sample.values.get(check.name), (int, float))
    }

    def made(state: State, value: float | None, text: str) -> Result:
        advice = check.advice if state == "failed" else ""
        return Result(target.name, check.name, state, value, limit, check.unit, text, advice)

    if refusals:
        host = min(refusals)
        return made("failed", None, f"{host}: {refusals[host]}")
    if len(measured) < hosts:
        return made("unknown", None, f"{len(measured)} of {hosts} hosts reported it")
    host = (min if check.least else max)(sorted(measured), key=measured.__getitem__)
    value = float(measured[host])
    if limit is None:
        return made("unknown", value, "no source states what to expect")
    good = value >= limit if check.least else value <= limit
    return made("passed" if good else "failed", value, host)


def _share(bandwidth: float | None) -> float | None:
    return None if bandwidth is None else bandwidth * _SHARE
