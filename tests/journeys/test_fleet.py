"""A fleet with real supervisors and workers over a simulated cloud: shards are the same after any loss."""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from conftest import processes_of
from support.simulated_tpu_cloud import Hosts, TpuCloud
from support.tpu_vm_driving import HurriedClock
from support.waiting import until
from tpukit.core.clock import SystemClock
from tpukit.fleet import dataset, driver, progress, records, streams
from tpukit.fleet.act import Acting
from tpukit.fleet.driver import Driver
from tpukit.fleet.listing import located
from tpukit.fleet.ownership import Identity
from tpukit.fleet.reach import Reach
from tpukit.fleet.records import Work, Worker
from tpukit.fleet.verify import verify
from tpukit.kernel.store.process import this_process
from tpukit.kernel.store.sqlite import SqliteStore
from tpukit.places.local import processes as pods

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
ZONES = ["us-central1-a", "us-central1-b"]
SAMPLES = 160
ME = Identity("ada", "store")


class Fleet:
    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, HurriedClock()
        self.cloud = TpuCloud(folder / "hosts")
        self.store = SqliteStore(folder / "store.db", now=self.clock.now)
        self.notes: list[str] = []
        data = folder / "data.jsonl"
        samples = [{"text": f"sample {number}", "gated": number >= SAMPLES // 2} for number in range(SAMPLES)]
        data.write_text("".join(f"{json.dumps(sample)}\n" for sample in samples))
        made, _ = streams.split([data], folder / "streams", 10)
        dataset.upload(folder / "streams", made, str(folder / "datasets"))
        program = folder / "program"
        program.mkdir()
        shutil.copy(FIXTURES / "fleet_program.py", program)
        digest, content = dataset.pack(program)
        archive = str(folder / "code.tar.gz")
        dataset.save(archive, content, "application/gzip")
        self.output = folder / "activations"
        self.gate = folder / "gate"  # workers wait in the middle of a stream until it exists
        options = {"gate": str(self.gate)}
        self.work = Work(
            *(str(folder / "datasets"), str(self.output), "fleet_program.py:make", options, 4, 60.0, 2.0),
            code=digest,
            archive=archive,
        )
        self.driver = self._driver()

    def _driver(self) -> Driver:
        reach = Reach(self.cloud, Hosts(self.cloud), "ada", False, "store")
        acting = Acting(self.cloud, reach, lambda _: "runtime", lambda work: dataset.read(work.archive))
        note: Callable[[str, str], None] = lambda key, text: self.notes.append(text)  # noqa: E731
        clock: SystemClock = self.clock
        return Driver(self.store, acting, progress.read, clock, this_process(), report=note, complain=note)

    def want(self, per_zone: int) -> None:
        now = self.clock.now()
        there = located(self.cloud, "tpu", ZONES)
        if not per_zone:
            driver.discard(self.store, "tpu", there, now, lambda slot: True, me=ME)
            return
        workers = records.plan("tpu", ZONES, per_zone, "v3-8", now, work=self.work, owner=ME.owner, store=ME.store)
        driver.want(self.store, "tpu", workers, there, now)

    def workers(self) -> list[Worker]:
        return driver.of(self.store, "tpu")

    def round(self) -> int:
        return self.driver.round("tpu")

    def shards(self) -> dict[str, bytes]:
        files = sorted(self.output.glob("*/shard_*"))
        return {file.relative_to(self.output).as_posix(): file.read_bytes() for file in files}

    def until(self, true: Callable[[], object], what: str) -> None:
        until(lambda: (self.round(), true())[1], lambda: f"{what}: {self.notes[-20:]}", every=0.1)

    def close(self) -> None:
        self.driver.close()
        self.store.close()
        for name in list(self.cloud.made):
            self.cloud.lose(name)
        for attempt in (self.folder / "hosts").glob("*/jobs/*/attempt-*"):
            pods.lose(attempt)


@pytest.fixture
def fleet(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(home))
    made = Fleet(home)
    yield made
    made.close()


def test_eight_workers_over_two_zones_lost_at_random_and_changed_in_number_give_the_same_bytes(fleet):
    chance = random.Random(13)
    fleet.want(4)
    # Ten streams of four shards: eight have a worker, which waits in the middle of it.
    fleet.until(lambda: len(fleet.shards()) >= 16, "every worker to come to the gate")
    assert len(fleet.cloud.made) == 8
    struck = chance.sample(sorted(fleet.cloud.made), 6)
    for number, name in enumerate(struck):
        if number % 3 == 0:
            fleet.cloud.preempt(name)
        elif number % 3 == 1:
            freeze(fleet, name)
        else:
            fleet.cloud.lose(name)  # its processes only: the machine stays
    fleet.until(lambda: recovered(fleet, struck), "those that were struck to be launched again")
    assert not [name for name in fleet.shards() if name.endswith(("2.txt", "3.txt"))]
    fleet.gate.touch()
    fleet.want(2)
    fleet.until(lambda: all(one.state == "done" for one in fleet.workers()), "the end")
    assert len(fleet.cloud.made) == 4
    verdict = verify(fleet.work.data, fleet.work.output)
    assert (verdict.problems, verdict.samples, verdict.shards) == ((), SAMPLES, 40)
    assert fleet.shards() == expected(fleet)
    fleet.want(0)
    fleet.until(lambda: not fleet.workers(), "all to be deleted")
    assert (fleet.cloud.made, fleet.cloud.requests) == ({}, {})


def recovered(fleet: Fleet, struck: list[str]) -> bool:
    """Check that each was launched once more: with a new machine, or its program alone."""

    def count(words: str) -> int:
        return sum(1 for note in fleet.notes if note.startswith(words))

    anew = struck[::3]
    return all(count(f"{name} is launched") >= 2 if name in anew else count(f"{name}: its program") for name in struck)


def freeze(fleet: Fleet, name: str) -> None:
    address = fleet.cloud.made[name].hosts[0].internal
    for pid, command in processes_of(fleet.cloud.folder / address).items():
        if "tpukit.host.worker" in command:
            # Hold the lock meanwhile: in a folder, unlike a bucket, a frozen lock holder stops all workers.
            with suppress(ProcessLookupError), (fleet.output / ".lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                os.kill(pid, signal.SIGSTOP)


def expected(fleet: Fleet) -> dict[str, bytes]:
    """Return the shards that one process makes of each range of samples, without takeovers, losses or resumes."""
    spec = importlib.util.spec_from_file_location("fleet_program", FIXTURES / "fleet_program.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    run = module.make({"gate": str(fleet.gate)}, lambda _: None)
    shards = {}
    for file in sorted((fleet.folder / "datasets").glob("stream_*")):
        samples = [json.loads(line) for line in file.read_text().splitlines()]
        for index in range(-(-len(samples) // 4)):
            shards[f"{file.stem}/shard_{index:05d}.txt"] = run(samples[index * 4 : index * 4 + 4])
    return shards
