"""The checks of a cluster: what each measures, its limit, and what to do if it fails. Pure.

A check that was not measured on every host is `not seen`, with a reason, and never passed. A limit that no source
states leaves the value without a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tpukit.catalogue import Slice

State = Literal["passed", "failed", "not seen"]
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
    """The values that one host measured, by check. A text is what it was refused.

    `unseen` has the reasons for what it did not measure.
    """

    host: str
    values: Mapping[str, float | str] = field(default_factory=dict)
    unseen: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    what: str
    unit: str
    limit: Callable[[Target], float | None]
    least: bool  # the limit is the smallest good value; otherwise the largest
    advice: str
    due: Callable[[Target], bool] = lambda target: True


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

    @property
    def what(self) -> str:
        return next((check.what for check in CHECKS if check.name == self.check), "")

    def to_json(self) -> dict[str, Any]:
        return {**{name: getattr(self, name) for name in _FIELDS}, "what": self.what}

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> Result:
        return Result(**{name: document[name] for name in _FIELDS})


_FIELDS = ("target", "check", "state", "value", "limit", "unit", "text", "advice")


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
        "let the team's pods raise it, `tpu team add TEAM --access tpu`, and set `access: tpu` in its jobs",
    ),
    Check(
        "ici",
        "bandwidth between the chips of a slice",
        "bytes/s",
        lambda target: _share(target.network.ici, of=_links(target.shape.topology)),
        True,
        "recreate the pool: one bad link slows the whole slice",
        due=lambda target: target.shape.chips > 1,
    ),
    Check(
        "dcn",
        "bandwidth between slices, for each chip",
        "bytes/s",
        lambda target: _share(target.network.dcn),
        True,
        "place the slices in one zone, and see the network section of jobset/README.md",
        due=lambda target: target.slices > 1,
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
        "install tensorboardX and google-cloud-storage in the image; the job's account must write to the bucket",
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
        "seconds from the request to leave to SIGTERM in the program",
        "s",
        lambda target: 15.0,
        False,
        "keep the jobs' launcher as the first process of the container; wrappers must start the program with `exec`",
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


def judge(target: Target, samples: Sequence[Sample], hosts: int, why: str = "") -> list[Result]:
    """Return a result for each check of one job, by the worst of its hosts.

    `hosts`: how many should have reported. `why`: why some did not.
    """
    return [_result(check, target, samples, hosts, why) for check in CHECKS if check.due(target)]


def failed(results: Iterable[Result]) -> list[Result]:
    return [one for one in results if one.state == "failed"]


def blind(results: Iterable[Result]) -> list[str]:
    """Return the targets of which no check has a verdict."""
    verdicts: dict[str, set[State]] = {}
    for one in results:
        verdicts.setdefault(one.target, set()).add(one.state)
    return [target for target, states in verdicts.items() if states == {"not seen"}]


def _result(check: Check, target: Target, samples: Sequence[Sample], hosts: int, why: str) -> Result:
    limit = check.limit(target)
    refusals, measured, unseen = dict[str, str](), dict[str, float](), dict[str, str]()
    for sample in samples:
        said = sample.values.get(check.name)
        if isinstance(said, str):
            refusals[sample.host] = said
        elif said is not None:
            measured[sample.host] = float(said)
        elif reason := sample.unseen.get(check.name):
            unseen[sample.host] = reason

    def made(state: State, value: float | None, text: str) -> Result:
        advice = check.advice if state == "failed" else ""
        return Result(target.name, check.name, state, value, limit, check.unit, text, advice)

    if refusals:
        host = min(refusals)
        return made("failed", None, f"{host}: {refusals[host]}")
    worst = (min if check.least else max)(sorted(measured), key=measured.__getitem__, default="")
    value = measured.get(worst)
    good = value is not None and limit is not None and (value >= limit if check.least else value <= limit)
    if value is not None and limit is not None and not good:
        return made("failed", value, worst)
    if len(measured) < hosts:
        return made("not seen", None, _reason(unseen, why) or f"{len(measured)} of {hosts} hosts reported it")
    return made("passed", value, worst) if good else made("not seen", value, "no source states what to expect")


def _reason(unseen: Mapping[str, str], why: str) -> str:
    """Return the reason that all hosts share, else that of the first host, else that of the job."""
    if not unseen:
        return why
    host = min(unseen)
    return unseen[host] if len(set(unseen.values())) == 1 else f"{host}: {unseen[host]}"


def _links(topology: str) -> float:
    """Return the share of its links that a chip at a corner uses. It limits what the whole slice can exchange.

    A chip has two links along each axis. Those of a corner lead nowhere on one side, unless the axis is closed to a
    ring, and on both where the axis has one chip.
    """
    edges = [int(edge) for edge in topology.split("x")]
    return sum(edge > 1 for edge in edges) / (2 * len(edges))


def _share(bandwidth: float | None, *, of: float = 1.0) -> float | None:
    return None if bandwidth is None else bandwidth * of * _SHARE
