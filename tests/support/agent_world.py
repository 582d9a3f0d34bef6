"""The whole node agent on an API server in memory: real pods, real HTTPS servers, no cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from support.agent_api import FakeApi
from support.waiting import PATIENCE, until
from tpubox.box import certificates
from tpubox.kubelet import AgentClient, Pool, of_slice
from tpubox.kubelet.agent import Agent, Options
from tpubox.kubelet.mounted_buckets import DRIVER
from tpukit.catalogue import find
from tpukit.core.clock import SystemClock

Doc = dict[str, Any]
ZONE = "us-central2-b"
NODE = "gke-sandbox-cpu-0000"
SPOT = of_slice("spot", find("v4-16"), ZONE, capacity="spot")
CPU = Pool("cpu", "e2-standard-4", {NODE: ZONE}, labels={"tpukit.dev/pool": "cpu"})


class World:
    def __init__(self, home: Path, api: FakeApi | None = None, **options: Any) -> None:
        self.api = api or FakeApi()
        self.home = home
        self.shared = home / "shared"  # visible to all pods at its own path
        self.shared.mkdir(exist_ok=True)
        keys = certificates.pair(home / "keys")
        common = {"folder": home / "agent", "port": 0, "token": "secret", "keys": keys, "buckets": home / "buckets"}
        told = Options(**{**common, "server": "https://127.0.0.1:6443", "visible": (self.shared,), **options})
        self.agent = Agent(self.api, told, SystemClock())
        self._thread = threading.Thread(target=self.agent.run)
        self._thread.start()
        self.client = AgentClient(f"https://127.0.0.1:{self.agent.port}", told.token, keys / "ca.crt")
        self.until(self.client.ready)

    def close(self) -> None:
        """Stop the agent after all its pods have ended and been removed."""
        for _, _, name in self._pods():
            self.api.delete("Pod", name, "default", grace=0)
        folder = self.home / "agent" / "pods"
        self.until(lambda: not folder.exists() or not list(folder.iterdir()))
        self.stop()

    def stop(self) -> None:
        """Stop the agent and leave its pods running."""
        self.agent.stop()
        self._thread.join(PATIENCE)

    def pod(
        self,
        *command: str,
        name: str = "p",
        node: str = NODE,
        spec: Doc | None = None,
        annotations: Doc | None = None,
        **container: Any,
    ) -> Doc:
        main = {"name": "main", "image": "image", "command": list(command), **container}
        metadata = {"name": name, "namespace": "default", "annotations": annotations or {}}
        full = {"nodeName": node, "restartPolicy": "Never", "containers": [main], **(spec or {})}
        return self.api.put("Pod", {"metadata": metadata, "spec": full})

    def shell(self, script: str, **options: Any) -> Doc:
        return self.pod("/bin/sh", "-c", script, **options)

    def listening(self, trap: str, *, name: str = "p", **options: Any) -> None:
        """Start a pod that runs until it gets SIGTERM, and wait until its trap is installed."""
        self.shell(f"{trap}; echo ready; while :; do sleep 0.05; done", name=name, **options)
        self.phase("Running", name=name)
        self.until(lambda: self.log(name) == "ready\n")

    def with_bucket(self, *command: str, mount: Doc | None = None, options: str = "", **pod: Any) -> Doc:
        """Create the bucket b and a pod that mounts it at /data."""
        (self.home / "buckets" / "b").mkdir(parents=True, exist_ok=True)
        read_only = {"readOnly": True} if pod.pop("read_only", False) else {}
        attributes = {"bucketName": "b", "mountOptions": options}
        volume = {"name": "v", "csi": {"driver": DRIVER, "volumeAttributes": attributes, **read_only}}
        told = {"annotations": {"gke-gcsfuse/volumes": "true"}, **pod}
        spec = {**told.pop("spec", {}), "volumes": [volume]}
        return self.pod(
            *command, spec=spec, volumeMounts=[{"name": "v", "mountPath": "/data", **(mount or {})}], **told
        )

    def events(self, reason: str) -> list[Doc]:
        return [one for one in self.api.list("Event") if one["reason"] == reason]

    def status(self, name: str = "p") -> Doc:
        status: Doc = self.api.get("Pod", name, "default").get("status", {})
        return status

    def phase(self, *wanted: str, name: str = "p") -> Doc:
        self.until(lambda: self.status(name).get("phase") in wanted)
        return self.status(name)

    def container(self, name: str = "p", which: str = "containerStatuses") -> Doc:
        found: Doc = self.status(name)[which][0]
        return found

    def log(self, name: str = "p", container: str = "main", query: str = "") -> str:
        return self.client._text(f"containerLogs/default/{name}/{container}{query}")

    def until(self, true: Callable[[], Any]) -> Any:
        return until(true, "pods as a test wants them", every=0.02)

    def gone(self, name: str = "p") -> bool:
        return ("Pod", "default", name) not in self.api.objects

    def _pods(self) -> list[tuple[str, str, str]]:
        return [key for key in list(self.api.objects) if key[0] == "Pod"]


def with_cpu_node(home: Path) -> Iterator[World]:
    yield from _with_pools(home, CPU)


def with_slice(home: Path) -> Iterator[World]:
    """Yield a world with a slice and a CPU node."""
    yield from _with_pools(home, CPU, SPOT)


def _with_pools(home: Path, *pools: Pool) -> Iterator[World]:
    world = World(home)
    for pool in pools:
        world.client.add_pool(pool)
    yield world
    world.close()
