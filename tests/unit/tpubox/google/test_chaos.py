"""Random operations on the emulator with a manual clock: a seed gives the same run, byte for byte.

Users create and delete pools, TPU VMs and queued resources, repeat requests and send them too early. Requests are
refused, cut, lost and too many, operations are slow and fail, chips run out and are taken back, and the emulator is
killed in between.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from support.google_world import APIS, PROJECT, World, pool
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.faults import Fault

VMS = f"tpu/v2/projects/{PROJECT}/locations/us-central2-b/nodes"
QUEUED = VMS.replace("nodes", "queuedResources")
VM = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}
NAMES = ("a", "b", "c")
STEPS = 120
FAULTS: tuple[dict[str, Any], ...] = (
    {"kind": "refuse", "match": "POST", "status": 503, "chance": 0.5, "times": 3},
    {"kind": "refuse", "match": "DELETE", "status": 429, "seconds": 5.0, "times": 2},
    {"kind": "rate", "match": "GET", "limit": 2, "seconds": 30.0},
    {"kind": "lost", "match": "POST|DELETE", "times": 1},
    {"kind": "cut", "match": "POST|DELETE", "chance": 0.3, "times": 2},
    {"kind": "hang", "match": "GET", "times": 1},
    {"kind": "slow", "seconds": 90.0, "times": 2},
    {"kind": "fail", "chance": 0.5, "times": 2, "message": "Out of luck."},
    {"kind": "stockout", "chance": 0.5, "times": 3},
    {"kind": "quota", "times": 1},
    {"kind": "preempt", "chance": 0.3, "seconds": 20.0},
    {"kind": "maintenance", "chance": 0.3, "seconds": 10.0},
)


class Chaos(World):
    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed=seed, seconds={"": 7.0, "DELETE_NODE_POOL": 20.0})
        self._folder, self._random = folder, random.Random(seed)
        self.pools = self.cluster()
        self.pass_time(60)
        self.trace: list[str] = []

    def run(self) -> None:
        acts = (self._make, self._make, self._make, self._remove, self._look, self._order, self._wait, self._restart)
        for _ in range(STEPS):
            self._random.choice(acts)()

    def note(self, method: str, path: str, body: Any = None, **query: str) -> int:
        status, answer = self.send(method, path, body, **query)
        self.trace.append(f"{self.clock.now():.0f} {method} {path} {status} {json.dumps(answer, sort_keys=True)}")
        return status

    def things(self) -> list[str]:
        """Return the paths of all existing resources."""
        found = []
        for path, key in ((self.pools, "nodePools"), (QUEUED, "queuedResources"), (VMS, "nodes")):
            listed = self.ask("GET", path).get(key, [])
            found += [f"{path}/{one['name'].rpartition('/')[2]}" for one in listed]
        return found

    def _make(self) -> None:
        name = self._random.choice(NAMES)
        spot = {"schedulingConfig": {"spot": True}} if self._random.random() < 0.5 else {}
        spec = {"parent": VMS.partition("v2/")[2].removesuffix("/nodes"), "nodeId": f"queued-{name}", "node": VM}
        self._random.choice(
            (
                lambda: self.note("POST", self.pools, pool(name)),
                lambda: self.note("POST", VMS, {**VM, **spot}, nodeId=name),
                lambda: self.note("POST", QUEUED, {"tpu": {"nodeSpec": [spec]}}, queuedResourceId=name),
            )
        )()

    def _remove(self) -> None:
        name = self._random.choice(NAMES)
        path = self._random.choice((self.pools, VMS, QUEUED))
        self.note("DELETE", f"{path}/{name}")

    def _look(self) -> None:
        path = self._random.choice((self.pools, VMS, QUEUED))
        self.note("GET", path)

    def _order(self) -> None:
        if self._random.random() < 0.3:
            self.cloud.faults.clear()
        else:
            self.cloud.faults.set(Fault(**self._random.choice(FAULTS)))

    def _wait(self) -> None:
        self.pass_time(self._random.choice((0.5, 5.0, 30.0, 200.0)))

    def _restart(self) -> None:
        """Restart the emulator as after a kill: running operations continue."""
        settings = self.cloud.settings
        self.cloud.close()
        self.cloud = Cloud(self._folder, APIS, settings, clock=self.clock)

    def tidy(self) -> None:
        """Delete everything once the faults are over."""
        self.cloud.faults.clear()
        for _ in range(20):
            self.pass_time(400)
            for path in self.things():
                forced = {"force": "true"} if path.startswith(QUEUED) else {}
                self.send("DELETE", path, **forced)


def chaos(folder: Path, seed: int) -> list[str]:
    folder.mkdir()
    with Chaos(folder, seed) as world:
        world.run()
        return world.trace


@pytest.mark.parametrize("seed", range(12))
def test_chaos_of_one_seed_is_the_same_run_to_the_last_byte(tmp_path, seed):
    first, second = (chaos(tmp_path / name, seed) for name in ("first", "second"))
    assert first == second


def test_chaos_of_another_seed_is_another_run_and_each_meets_troubles_of_many_kinds(tmp_path):
    runs = [chaos(tmp_path / str(seed), seed) for seed in range(4)]
    assert len({tuple(run) for run in runs}) == 4
    statuses = {line.split()[3] for run in runs for line in run}
    assert {"200", "404", "409", "429", "503"} <= statuses


@pytest.mark.parametrize("seed", range(12))
def test_chaos_leaves_nothing_that_cannot_be_removed_and_nothing_under_way(tmp_path, seed):
    with Chaos(tmp_path, seed) as world:
        before = world.cloud.inventory()
        world.run()
        world.tidy()
        assert world.cloud.inventory() == before
        assert not world.cloud.state.all("pending")
