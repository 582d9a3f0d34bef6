"""A driver's memory of hosts, over the attempts of a job that is preempted for weeks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tpukit.core.clock import ManualClock
from tpukit.core.errors import Transient
from tpukit.google.tpu_vm import Node
from tpukit.places.base import Handle
from tpukit.places.tpu_vm import target
from tpukit.places.tpu_vm.asking import Hosts
from tpukit.places.tpu_vm.log_store import LogStore
from tpukit.places.tpu_vm.machines import NODES
from tpukit.places.tpu_vm.observing import Observer
from tpukit.places.tpu_vm.shared_code import Code
from unit.places.tpu_vm.test_machines import PLAN, handle, node

ATTEMPTS = 30
ELSEWHERE = replace(PLAN, target=replace(target.of(PLAN), zone="us-central1-a"))


@dataclass
class Zone:
    there: list[Node] = field(default_factory=list)

    def nodes(self, zone: str) -> list[Node]:
        return self.there if zone == target.of(PLAN).zone else [node(name, number="other") for name in names()]

    def queued(self, zone: str) -> list[Any]:
        return []

    def host_keys(self, zone: str, name: str) -> list[list[str]]:
        return [["key"], ["key"]]


class Silence:
    """A channel over which no host answers."""

    def ask(self, calls: list[Any]) -> list[Any]:
        return [Transient("no route to host") for _ in calls]


def names() -> tuple[str, ...]:
    return target.nodes(PLAN)


@pytest.fixture
def observer(tmp_path: Path) -> Observer:
    zone: Any = Zone()
    channel: Any = Silence()
    return Observer(zone, Hosts(zone, channel, Code(tmp_path), lambda: "store"), LogStore(tmp_path), ManualClock())


def observe(observer: Observer, number: int) -> None:
    ids = [f"{number}-{index}" for index in range(2)]
    observer.client.there = [node(name, number=each) for name, each in zip(names(), ids, strict=True)]
    begun = handle(number)
    observer.observe([Handle(PLAN, replace_learned(begun.attempt, ids))])


def replace_learned(attempt: Any, ids: list[str]) -> Any:
    from msgspec.structs import replace

    return replace(attempt, learned={NODES: ids})


def test_memory_of_silent_hosts_and_host_keys_does_not_grow_with_attempts(observer):
    for number in range(ATTEMPTS):
        observe(observer, number)
    assert len(observer.silent) == 4
    assert len(observer.hosts.host_keys) == 2


def test_memory_of_hosts_in_another_zone_stays(observer):
    observer.observe([Handle(ELSEWHERE, replace_learned(handle().attempt, ["other", "other"]))])
    known = len(observer.hosts.host_keys)
    observe(observer, 1)
    assert len(observer.hosts.host_keys) == known + 2


def test_memory_of_silent_hosts_goes_with_their_tpu_vms(observer):
    observe(observer, 0)
    observer.client.there = []
    observer.observe([handle(1)])
    assert not observer.silent
    assert not observer.hosts.host_keys
