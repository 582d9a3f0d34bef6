"""Jobs on a fake cluster, with the real driver, the real gke place, and a manual clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from support.fake_cluster import DirectLister, FakeCluster, Killed
from tpukit.core.clock import ManualClock
from tpukit.jobs import plan
from tpukit.jobs.controller.driver import Driver
from tpukit.jobs.plan import ClusterName
from tpukit.jobs.reasons import MEANINGS, Budget, State
from tpukit.jobs.records import JOBS, Job
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.kernel.store import Holder, change
from tpukit.kernel.store.process import this_process
from tpukit.kernel.store.sqlite import SqliteStore
from tpukit.kube import Context
from tpukit.places.gke.clusters import Clusters, Kubeconfig
from tpukit.places.gke.place import GkePlace

SENDER = "this-store"
SETTINGS = Settings.from_json({"artifacts": "gs://my-artifacts", "team": "research"})


def spec(**fields: Any) -> JobSpec:
    given = {"name": "train", "tpu": "v4-16", "slices": 2, "command": ["x"], "image": "i:1", "capacity": "spot"}
    return JobSpec.from_json({**given, **fields})


def place_on(
    cluster: FakeCluster, root: Path, sender: str = SENDER, serving: Callable[[str], None] | None = None
) -> GkePlace:
    kubeconfig = Kubeconfig(lambda: [Context("fake", cluster.server)], lambda: "fake", lambda context: cluster)
    return GkePlace(
        root,
        cluster.clock,
        lambda: sender,
        clusters=Clusters(cluster.clock, kubeconfig),
        log_workers=0,
        connect=DirectLister,
        serving=serving,
    )


class Driving:
    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.cluster = FakeCluster(self.clock, seed)
        self._drivers = 0
        self.store = SqliteStore(folder / "store.db", now=self.clock.now)
        self.new_driver()

    def new_driver(self) -> None:
        """Start a driver in a new process, which has only the record: its data folder is new too."""
        for lease in self.store.leases() if hasattr(self, "driver") else ():
            self.store.release(lease)
        self._drivers += 1
        self.place = place_on(self.cluster, self.folder / f"data-{self._drivers}")
        me = this_process()
        holder = Holder(f"driver-{id(self)}-{self._drivers}", me.machine, me.pid, me.started)
        self.driver = Driver(self.store, {"gke": self.place}, self.clock, holder)

    def send(self, **fields: Any) -> str:
        made = plan.make(
            spec(**fields),
            SETTINGS,
            "gke",
            target=ClusterName("fake", self.cluster.server, "uid-of-fake"),
            taken=self.store.keys(JOBS),
        )
        job = Job(made.id, "gke", "research", "me", self.clock.now(), plan=made.to_json())
        self.store.create(JOBS, made.id, job)
        return made.id

    def stop(self, job_id: str) -> None:
        change(self.store, JOBS, job_id, lambda job: job if job.state.ended else replace(job, wanted="stop"))

    def again(self, job_id: str, wanted: str) -> None:
        def asked(job: Job) -> Job:
            return replace(job, state=State.PENDING, wanted=wanted, reason=None, message="", ended=0.0)

        change(self.store, JOBS, job_id, asked)

    def tick(self, rounds: int = 1) -> int:
        active = 0
        for _ in range(rounds):
            try:
                active = self.driver.round()
            except Killed:
                self.new_driver()
                active = 1
            self.check()
            self.clock.sleep(1.0)
        return active

    def until(self, job_id: str, *states: State, most: int = 60) -> Job:
        for _ in range(most):
            if self.job(job_id).state in states:
                return self.job(job_id)
            self.tick()
        raise AssertionError(self.job(job_id))

    def job(self, job_id: str) -> Job:
        return self.store.get(JOBS, job_id).value

    def reasons(self, job_id: str) -> list[str]:
        return [str(attempt.reason) for attempt in self.job(job_id).attempts if attempt.reason]

    def check(self) -> None:
        """Assert that nothing of an ended job runs."""
        for entry in self.store.list(JOBS).entries:
            if entry.value.state.ended:
                assert not self.cluster.live(entry.key), f"{entry.key} has ended and runs: {entry.value}"

    def run(self, job_id: str) -> None:
        """Admit and start a job, and wait until it runs."""
        self.tick()
        self.cluster.admit(job_id)
        self.cluster.start(job_id)
        self.until(job_id, State.RUNNING)

    def close(self) -> None:
        self.place.close()
        self.store.close()


def charged(job: Job) -> int:
    return sum(1 for one in job.attempts if one.reason and MEANINGS[one.reason].budget is Budget.USER)
