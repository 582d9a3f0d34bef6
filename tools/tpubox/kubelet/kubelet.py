"""The pods of this agent's nodes: tracks them, drives them in turn, and cleans up after them."""

from __future__ import annotations

import logging
import shutil
import threading
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

from tpubox.kubelet import container_logs
from tpubox.kubelet.admission import Admission, Node
from tpubox.kubelet.api_server import Api
from tpubox.kubelet.archive import ARCHIVED, Archive
from tpubox.kubelet.containers import Ending, pod_folder, write_ending, write_json
from tpubox.kubelet.driver import RETRY_SECONDS, Driver
from tpubox.kubelet.env import Object
from tpubox.kubelet.host_names import Names
from tpubox.kubelet.launch import Machine
from tpubox.kubelet.mounted_buckets import MountedBuckets
from tpubox.kubelet.pod_metadata import Identities
from tpubox.kubelet.pulled_images import PulledImages
from tpubox.kubelet.resolved_names import ResolvedNames
from tpubox.kubelet.work import ExitWatcher, Line
from tpukit.core.clock import Clock
from tpukit.core.errors import TpukitError
from tpukit.places.local import processes as pods

_log = logging.getLogger(__name__)


class Kubelet:
    def __init__(
        self,
        api: Api,
        folder: Path,
        names: Names,
        machine: Machine,
        clock: Clock,
        node: Callable[[str], Node | None],
        buckets: MountedBuckets,
        identities: Identities,
        images: PulledImages,
    ) -> None:
        """Take `node`, which returns a node by name, or None if it belongs to another agent."""
        self.root = folder
        self._clock = clock
        self._node = node
        self._pods: dict[str, Object] = {}
        self._lock = threading.Lock()
        self.line = Line()
        self.exits = ExitWatcher(self.line.add)
        self.resolved = ResolvedNames()
        admission = Admission(api, self._here)
        self._driver = Driver(
            *(api, names, machine, clock, buckets, self.exits.watch, identities, images, admission, self.resolved),
            self.line.add,
        )
        self.probes = self._driver.probes
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._archive = Archive(folder.parent / ARCHIVED)

    def saw(self, pod: Object, *, gone: bool = False) -> None:
        """Record the current state of a pod; ignore pods on other agents' nodes."""
        uid = pod["metadata"]["uid"]
        with self._lock:
            if uid not in self._pods and self._node(pod["spec"]["nodeName"]) is None:
                return
            if gone:
                self._pods.pop(uid, None)
            else:
                self._pods[uid] = pod
        self.line.add(uid)

    def on(self, nodes: Iterable[str]) -> list[Object]:
        """Return the pods on these nodes."""
        wanted = set(nodes)
        with self._lock:
            return [pod for pod in self._pods.values() if pod["spec"].get("nodeName") in wanted]

    def _here(self, node: str) -> list[tuple[Object, Path]]:
        return [(pod, self.folder(pod)) for pod in self.on([node]) if not _over(pod)]

    def folder(self, pod: Object) -> Path:
        return pod_folder(self.root, pod)

    def end(self, pod: Object, ending: Ending) -> None:
        folder = self.folder(pod)
        if not _over(pod):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_ending(folder, ending)
        self.line.add(pod["metadata"]["uid"])

    def orphans(self) -> None:
        """Queue the pods that exist only on disk: they were deleted while no agent ran."""
        for folder in self.root.iterdir():
            self.line.add(folder.name.rpartition("_")[2])

    def collect_logs(self) -> None:
        """Archive log files beyond the number that a kubelet keeps for a container."""
        for folder in self.root.iterdir():
            self._archive.take(folder, but=container_logs.MAX_FILES)

    def serve(self) -> None:
        """Drive pods until the queue is closed. Run one thread for each pod to handle in parallel."""
        while (uid := self.line.take()) is not None:
            again: float | None = RETRY_SECONDS
            try:
                again = self.sync(uid)
            except TpukitError as error:
                _log.warning("pod %s: %s", uid, error)
            except Exception as error:  # one pod must not end the loop of all  # noqa: BLE001
                _log.exception("pod %s", uid)
                self._give_up(uid, error)
            self.line.done(uid)
            if again is not None:
                self.line.add(uid, again)

    def sync(self, uid: str) -> float | None:
        """Do what is due with a pod and return the seconds until the next step, if nothing happens."""
        with self._lock:
            pod = self._pods.get(uid)
        if pod is None:
            return self._remove(uid)
        node = self._node(pod["spec"].get("nodeName", ""))
        if node is None or node.dead:
            return None
        folder = self.folder(pod)
        if not folder.exists():
            if _over(pod):
                self._driver.let_go(pod)
                return None
            folder.mkdir(mode=0o700)
            write_json(folder / "pod.json", pod)
            write_json(folder / "node.json", dict(node.labels))
        return self._driver.drive(pod, folder, node, lambda: self._is_lost(pod))

    def _is_lost(self, pod: Object) -> bool:
        node = self._node(pod["spec"]["nodeName"])
        return node is not None and node.dead

    def _remove(self, uid: str) -> float | None:
        """Remove everything of a deleted pod except its output."""
        self._driver.forget(uid)
        for folder in self.root.glob(f"*_{uid}"):
            for run in folder.glob("*/*/pod.json"):
                pods.stop(run.parent, 0)
            if any(pods.status(run.parent).phase is pods.Phase.RUNNING for run in folder.glob("*/*/pod.json")):
                return 0.1
            pods.kill_strays(folder)
            self._archive.take(folder)
            shutil.rmtree(folder, ignore_errors=True)
        return None

    def _give_up(self, uid: str, error: Exception) -> None:
        """Fail a pod on which the agent itself failed, with the reason, so that it does not hang forever."""
        with self._lock:
            pod = self._pods.get(uid)
        if pod is not None:
            last = traceback.format_exception_only(error)[-1].strip()
            self.end(pod, Ending("AgentError", f"the node agent failed on this pod: {last}", self._clock.now()))


def _over(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
