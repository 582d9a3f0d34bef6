"""A cluster in memory whose hosts answer `tpu cluster verify`, for the real place, use cases and store."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from support.fake_cluster import FakeCluster
from support.gke_driving import SENDER, SETTINGS, place_on
from tpukit import catalogue
from tpukit.cluster.verify.checks import MEMLOCK_BYTES, Network, Result
from tpukit.cluster.verify.evidence import LINE
from tpukit.cluster.verify.running import Request, run
from tpukit.core.clock import ManualClock
from tpukit.jobs import render
from tpukit.jobs.use_cases.session import Session
from tpukit.kernel.store.process import this_process
from tpukit.kernel.store.sqlite import SqliteStore

V4_16 = catalogue.find("v4-16")
TEAM = "research"
SHARED = Network(100e9, 10e9)
GOOD = {
    "chips": 4,
    "memlock": MEMLOCK_BYTES,
    "ici": 90e9,
    "dcn": 9e9,
    "bucket-write": 0.2,
    "bucket-read": 0.1,
    "tensorboard": 3,
    "clock": 0.01,
}
LINGER_STEPS = 100
"""Steps for which a pod that is being deleted waits for a reader of its log."""
Doc = dict[str, Any]


class Read(FakeCluster):
    """A cluster that counts how often the log of each pod was read."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.reads: Counter[str] = Counter()

    def logs(self, pod: str, namespace: str, **options: Any) -> Iterator[str]:
        lines = list(super().logs(pod, namespace, **options))
        self.reads[pod] += 1
        return iter(lines)


class World(ManualClock):
    """Nodes, pods and programs, which act when the main thread sleeps. Other threads only wait."""

    def __init__(self, folder: Path, pools: int = 2) -> None:
        super().__init__()
        self.cluster = Read(self)
        self.values: Callable[[str, str], Doc | None] = lambda job, host: {"values": GOOD, "unseen": {}}
        """Function from job and SLICE-HOST to the measurements of a host; None: it prints nothing."""
        self.admits = True
        self.breaks = ""  # how jobs fail in place of measuring
        self.image = ""  # why images cannot be pulled
        self.said: list[str] = []
        self.jobs: list[str] = []
        self._pools = [f"pool-{number}" for number in range(pools)]
        self._free = list(self._pools)
        self._on: dict[str, list[str]] = {}
        for pool in self._pools:
            self.add_nodes(pool)
        for kind, name in (("Namespace", TEAM), ("LocalQueue", TEAM)):
            namespace = "" if kind == "Namespace" else TEAM
            self.cluster._add(kind, {"metadata": {"name": name, "namespace": namespace, "labels": {}}, "spec": {}})
        self.place = place_on(self.cluster, folder / "data")
        self.store = SqliteStore(folder / "store.db", now=self.now)
        self.session = Session(
            lambda: self.store,
            lambda: {"gke": self.place},
            self,
            this_process(),
            "ada",
            lambda job, text: self.said.append(f"{job}: {text}"),
            self.said.append,
        )

    def add_nodes(self, pool: str, hosts: int = V4_16.hosts, ready: bool = True) -> None:
        labels = {
            "cloud.google.com/gke-nodepool": pool,
            **render.PoolKind(V4_16, "spot").labels,
            "cloud.google.com/gke-accelerator-count": "4",
        }
        status = {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
        for host in range(hosts):
            meta = {"name": f"{pool}-{host}", "namespace": "", "labels": labels}
            self.cluster._add("Node", {"metadata": meta, "spec": {}, "status": status})

    def verify(self, *, pool: str = "", seconds: float = 60.0, image: str = "i:1") -> list[Result]:
        request = Request(SETTINGS, TEAM, image, seconds, "restricted")
        return run(self.session, self.cluster, request, lambda shape: SHARED, self.said.append, pool=pool)

    def sleep(self, seconds: float) -> None:
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.005)
            return
        super().sleep(seconds)
        time.sleep(0.005)  # lets the readers of logs keep up with the manual clock
        for _, name in list(self.cluster._kind("JobSet")):
            self._act(name)

    def close(self) -> None:
        self.place.close()
        self.store.close()

    def _act(self, name: str) -> None:
        if name not in self.jobs:
            self.jobs.append(name)
        jobset, pods = self.cluster.jobset(name), self.cluster.pods(name)
        if "deletionTimestamp" in jobset["metadata"]:
            self._leave(name, pods)
        elif not pods:
            self._begin(name, jobset["spec"]["replicatedJobs"][0]["replicas"])
        elif any(pod["status"]["phase"] == "Pending" for pod in pods):
            if not self.image:
                self._start(name)
        elif self.breaks and not self.cluster._kind("JobSet")[TEAM, name]["status"].get("conditions"):
            self.cluster.fail(name, self.breaks, 0)

    def _begin(self, name: str, slices: int) -> None:
        if not self.admits or len(self._free) < slices:
            return
        self.cluster.admit(name)
        self._on[name] = [self._free.pop() for _ in range(slices)]  # not in the order of their names
        for pod in self.cluster.pods(name):
            slice_, host = _host(pod).split("-")
            pod["spec"]["nodeName"] = f"{self._on[name][int(slice_)]}-{host}"
            placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self.cluster.time()}
            pod["status"]["conditions"] = [placed]
            if self.image:
                waiting = {"waiting": {"reason": "ErrImagePull", "message": self.image}}
                pod["status"]["containerStatuses"] = [{"name": "host", "image": "i:1", "state": waiting}]

    def _start(self, name: str) -> None:
        self.cluster.start(name)
        for pod in self.cluster.pods(name):
            pod["status"]["containerStatuses"][0]["state"] = {"running": {"startedAt": self.cluster.time()}}
            self._print(name, pod, done=True)

    def _leave(self, name: str, pods: list[Doc]) -> None:
        for pod in pods:
            pod["steps"] = pod.get("steps", 0) + 1
            if pod["steps"] == 1:
                pod["metadata"]["deletionGracePeriodSeconds"] = 0
                self._print(name, pod, done=True, told=self.now())
                pod["reads"] = self.cluster.reads[pod["metadata"]["name"]]
        running = [pod for pod in pods if pod["status"]["phase"] == "Running" and pod["steps"] < LINGER_STEPS]
        if all(self.cluster.reads[pod["metadata"]["name"]] > pod["reads"] + 1 for pod in running):
            self._free += self._on.pop(name, [])
            self.cluster.leave(name)

    def _print(self, name: str, pod: Doc, **more: Any) -> None:
        if pod["status"]["phase"] == "Pending" or (found := self.values(name, _host(pod))) is None:
            return
        self.cluster.say(pod, f"{LINE}{json.dumps({'host': _host(pod), 'at': self.now(), **found, **more})}")


def _host(pod: Doc) -> str:
    return "-".join(pod["metadata"]["name"].split("-")[-3:-1])


__all__ = ["GOOD", "SENDER", "SHARED", "TEAM", "V4_16", "World"]
