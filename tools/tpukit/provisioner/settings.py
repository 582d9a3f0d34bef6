"""Settings for all JobSets in a ConfigMap, or for one in its annotations, under the same names. Pure.

| name                 | meaning                                                                          |
|----------------------|----------------------------------------------------------------------------------|
| capacity             | spot, on-demand, flex-start, reservation:NAME; several are tried in this order   |
| zones                | where to create pools; several are tried in this order                           |
| node-service-account | email of the account that nodes run as                                           |
| secondary-boot-disk  | image with preloaded container images (projects/P/global/images/I)               |
| additional-networks  | network:subnetwork, several separated by commas                                  |
| network-tags         | of the nodes, separated by commas                                                |
| workload-policy      | resource policy of tpu7x slices; TOPOLOGY stands for the topology                |
| auto-repair          | true or false                                                                    |
| auto-upgrade         | false; true in a cluster that has a release channel, where GKE refuses false     |
| disk-size-gb         | of the boot disk                                                                 |
| disk-kms-key         | key that encrypts the boot disk (projects/P/locations/L/keyRings/R/cryptoKeys/K) |

In the ConfigMap only: max-operations, error-limit, removal-delay, minimum-age, suspended-grace, node-timeout,
pod-timeout.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tpukit.core.errors import Invalid, Problem
from tpukit.provisioner.pool_names import PREFIX

_KINDS = ("spot", "on-demand", "flex-start")


@dataclass(frozen=True, slots=True)
class Capacity:
    kind: str  # spot, on-demand, flex-start, reservation
    reservation: str = ""  # NAME, or projects/P/reservations/NAME

    def __str__(self) -> str:
        return f"reservation:{self.reservation}" if self.reservation else self.kind


@dataclass(frozen=True, slots=True)
class Options:
    capacity: tuple[Capacity, ...] = (Capacity("on-demand"),)
    zones: tuple[str, ...] = ()
    node_service_account: str = ""
    secondary_boot_disk: str = ""
    additional_networks: tuple[tuple[str, str], ...] = ()
    network_tags: tuple[str, ...] = ()
    workload_policy: str = "tpukit-TOPOLOGY"
    auto_repair: bool = True
    auto_upgrade: bool = False
    disk_size_gb: int = 100
    disk_kms_key: str = ""


DEFAULTS = Options()


@dataclass(frozen=True, slots=True)
class Settings:
    options: Options = DEFAULTS
    max_operations: int = 5  # https://github.com/hashicorp/terraform-provider-google/issues/15205 says 5 at once
    error_limit: int = 5  # pools in ERROR that are recreated for one Job
    removal_delay: float = 30.0  # between first noticing an unneeded pool and its removal
    minimum_age: float = 60.0
    suspended_grace: float = 600.0  # how long pools of a suspended JobSet are retained
    node_timeout: float = 1800.0  # how long hosts of a running pool may be missing
    pod_timeout: float = 900.0  # how long a pool whose hosts are all ready may wait for its pod


def of_config_map(data: Mapping[str, str]) -> Settings:
    """Read a ConfigMap. Raise Invalid with all problems at once."""
    problems: list[Problem] = []
    known = {name: _NUMBERS[name] for name in _NUMBERS}
    numbers = _read(data, known, "ConfigMap", problems)
    options = _options(Options(), data, "ConfigMap", problems)
    unknown = [name for name in data if name not in known and name not in _OPTIONS and name not in IDENTITY]
    allowed = ", ".join(sorted([*known, *_OPTIONS]))
    problems += [Problem("ConfigMap", f"there is no setting {name!r}", f"there are {allowed}") for name in unknown]
    if problems:
        raise Invalid(problems)
    return replace(Settings(), options=options, **numbers)


def of_jobset(defaults: Options, annotations: Mapping[str, str], problems: list[Problem]) -> Options:
    """Return the defaults, overridden by the JobSet's annotations."""
    own = {
        name: annotations[key]
        for key in annotations
        if key.startswith(f"{PREFIX}/") and (name := key.partition("/")[2]) in _OPTIONS
    }
    return _options(defaults, own, PREFIX, problems)


IDENTITY = ("project", "location", "cluster")
"""Names in the ConfigMap that identify the cluster at Google."""


def _options(defaults: Options, data: Mapping[str, str], where: str, problems: list[Problem]) -> Options:
    return replace(defaults, **_read(data, _OPTIONS, where, problems))


def _read(
    data: Mapping[str, str], readers: Mapping[str, Callable[[str], Any]], where: str, problems: list[Problem]
) -> dict[str, Any]:
    values = {}
    for name in readers.keys() & data.keys():
        try:
            values[name.replace("-", "_")] = readers[name](data[name].strip())
        except ValueError as error:
            problems.append(Problem(where, f"{name}: {data[name]!r} is not valid", str(error)))
    return values


def _words(text: str) -> Sequence[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _capacity(text: str) -> tuple[Capacity, ...]:
    kinds = []
    for word in _words(text):
        kind, _, name = word.partition(":")
        if kind == "reservation" and name:
            kinds.append(Capacity(kind, name))
        elif word in _KINDS:
            kinds.append(Capacity(word))
        else:
            raise ValueError(f"write one or more of {', '.join(_KINDS)} and reservation:NAME, separated by commas")
    if not kinds:
        raise ValueError("name at least one kind of capacity")
    return tuple(kinds)


def _zones(text: str) -> tuple[str, ...]:
    if wrong := [zone for zone in _words(text) if not re.fullmatch(r"[a-z]+-[a-z]+\d+-[a-z]", zone)]:
        raise ValueError(f"{wrong[0]!r} is not a zone: write, for example, us-central2-b")
    return tuple(_words(text))


def _networks(text: str) -> tuple[tuple[str, str], ...]:
    pairs = [tuple(word.split(":")) for word in _words(text)]
    if any(len(pair) != 2 or not all(pair) for pair in pairs):
        raise ValueError("write network:subnetwork, several separated by commas")
    return tuple((network, subnet) for network, subnet in pairs)


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("write true or false")
    return text == "true"


def _count(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,5}", text):
        raise ValueError("write a number from 1 on")
    return int(text)


def _seconds(text: str) -> float:
    if not re.fullmatch(r"\d{1,6}(\.\d+)?s?", text):
        raise ValueError("write seconds, as in 30s")
    return float(text.removesuffix("s"))


_OPTIONS: Mapping[str, Callable[[str], Any]] = {
    "capacity": _capacity,
    "zones": _zones,
    "node-service-account": str,
    "secondary-boot-disk": str,
    "additional-networks": _networks,
    "network-tags": lambda text: tuple(_words(text)),
    "workload-policy": str,
    "auto-repair": _boolean,
    "auto-upgrade": _boolean,
    "disk-size-gb": _count,
    "disk-kms-key": str,
}
_NUMBERS: Mapping[str, Callable[[str], Any]] = {
    "max-operations": _count,
    "error-limit": _count,
    "removal-delay": _seconds,
    "minimum-age": _seconds,
    "suspended-grace": _seconds,
    "node-timeout": _seconds,
    "pod-timeout": _seconds,
}
