"""The agent as a whole: one process for all nodes of a sandbox.

Pods are separate processes and outlive the agent. If it is killed and restarted, it resumes where it stopped.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tpubox.kubelet import container_logs, execute, launch, probes, resolved_names, service_links
from tpubox.kubelet.api_server import Api
from tpubox.kubelet.archive import LIVE
from tpubox.kubelet.door import Request, Server
from tpubox.kubelet.draining import PATIENCE_SECONDS
from tpubox.kubelet.driver import HOST
from tpubox.kubelet.emulator_door import EmulatorDoor
from tpubox.kubelet.env import Object
from tpubox.kubelet.host_faults import Fault, Faults
from tpubox.kubelet.host_names import Names
from tpubox.kubelet.kubelet import Kubelet
from tpubox.kubelet.launch import Google, Machine
from tpubox.kubelet.mounted_buckets import MountedBuckets
from tpubox.kubelet.nodes import FILE, Nodes
from tpubox.kubelet.pod_metadata import Identities
from tpubox.kubelet.pulled_images import PulledImages
from tpubox.kubelet.registered_pools import Pool
from tpubox.kubelet.simulated_hosts import SimulatedHosts
from tpukit.core.clock import Clock
from tpukit.core.errors import TpukitError, Transient
from tpukit.places.local import processes as pods

BEAT_SECONDS = 4.0
LOG_SECONDS = 10.0
TICK_SECONDS = 0.2
WORKERS = 8
_PATIENCE = 300.0  # the API server may start at the same time, on a busy machine
_NOBODY = (65534, 65534)
_SCHEDULED = "spec.nodeName!="
_HEARTBEAT = {"TPUKIT_HEARTBEAT": "10"}  # hosts on one machine need a shorter timeout than hosts on a network
_log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Options:
    folder: Path  # all state of the agent
    port: int
    token: str
    keys: Path  # tls.crt, tls.key, ca.crt
    server: str  # the API server's URL, for programs in pods
    buckets: Path  # a folder for each bucket that pods mount
    google: str = ""  # URL of the emulator, for programs in pods
    google_token: str = ""  # token that these programs send
    env: Mapping[str, str] = field(default_factory=dict)  # for all pods; the pod's own variables win
    visible: tuple[Path, ...] = ()  # folders that volumes of pods must not hide
    hidden: tuple[Path, ...] = ()  # files and folders that pods must not read


class Agent:
    def __init__(self, api: Api, options: Options, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._stopped = threading.Event()
        folder = options.folder
        (folder / "empty").mkdir(parents=True, exist_ok=True)
        (folder / "hidden").mkdir(exist_ok=True)
        (folder / "hidden" / launch.NOTHING).touch()
        machine = Machine(
            launch.make_bin(folder / "bin"),
            {**_HEARTBEAT, **options.env},
            _google(options) if options.google else Google(),
            pods.can_mount(folder / "empty"),
            pods.can_mount(folder / "empty", user=_NOBODY),
            (*options.visible, folder / "bin", options.buckets),
            options.hidden,
            folder / "hidden",
            pods.can_guard(),
            service_links.of_server(options.server),
        )
        if not machine.mounts:
            _log.warning("no mount namespaces here: names and paths are replaced in the environment of pods instead")
            _log.warning("no mount namespaces here: readOnlyRootFilesystem is not enforced")
            _log.warning("no mount namespaces here: pods see Python packages that no image has")
        if not machine.guard or not machine.mounts:
            _log.warning("system calls cannot be intercepted here: mounted buckets allow what GCS FUSE refuses")
        if not machine.users:
            _log.warning("no user namespaces here: runAsUser and runAsGroup are not enforced")
        self._server = Server((HOST, options.port), self._routes(), options.token, options.keys)
        self.nodes = Nodes(api, folder / FILE, clock, HOST, self.port, self._patiently(api.version))
        self._names = Names(folder / "names")
        google = EmulatorDoor(options.google, options.token)
        self._identities = Identities(api, google)
        self.kubelet = Kubelet(
            api,
            folder / LIVE,
            self._names,
            machine,
            clock,
            self.nodes.node,
            MountedBuckets(options.buckets, api, google),
            self._identities,
            PulledImages(google, folder / "images"),
        )
        self._simulated = SimulatedHosts(api, clock)
        self.faults = Faults(api, self.nodes, self.kubelet, clock, folder / "faults.json")

    def run(self) -> None:
        """Run until stop() is called."""
        for pod in self._patiently(lambda: self._api.list("Pod", fields=_SCHEDULED)):
            self._saw(pod)
        self.kubelet.orphans()  # orphans are known only after the list of pods was read
        threads: list[Callable[[], None]] = [
            self._watch,
            self._watch_endpoints,
            self.kubelet.exits.serve,
            self._server.serve_forever,
            lambda: self._every(BEAT_SECONDS, self.nodes.beat, self.nodes.restore_missing),
            self._simulated.serve,
            lambda: self._every(LOG_SECONDS, self.kubelet.collect_logs),
            *[self.kubelet.serve] * WORKERS,
            *[self.kubelet.probes.serve] * probes.WORKERS,
        ]
        for target in threads:
            threading.Thread(target=target, daemon=True).start()
        _log.info("ready with %d pools", len(self.nodes.pools()))
        self._every(TICK_SECONDS, self.faults.tick)
        self.kubelet.line.close()
        self.kubelet.probes.line.close()
        self._simulated.line.close()
        self._server.shutdown()
        self._server.server_close()
        self._identities.close()
        self._names.close()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def stop(self) -> None:
        self._stopped.set()

    def _every(self, seconds: float, *jobs: Callable[[], None]) -> None:
        while not self._stopped.is_set():
            for job in jobs:
                try:
                    job()
                except TpukitError as error:
                    _log.warning("%s: %s", job.__name__, error)
                except Exception:  # one job must not end the loop of all  # noqa: BLE001
                    _log.exception("%s", job.__name__)
            self._stopped.wait(seconds)

    def _watch(self) -> None:
        for change in self._api.watch("Pod", fields=_SCHEDULED):
            self._saw(change.object, gone=change.gone)

    def _watch_endpoints(self) -> None:
        for change in self._api.watch(resolved_names.KIND, labels=resolved_names.HEADLESS):
            self.kubelet.resolved.saw(change.object, gone=change.gone)

    def _saw(self, pod: Object, *, gone: bool = False) -> None:
        self.kubelet.saw(pod, gone=gone)
        if self.nodes.node(pod["spec"]["nodeName"]) is None:
            self._simulated.saw(pod, gone=gone)

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Call `ask` until the API server responds, for at most `_PATIENCE` seconds."""
        due = self._clock.now() + _PATIENCE
        while True:
            try:
                return ask()
            except Transient:
                if self._clock.now() > due:
                    raise
                self._clock.sleep(0.5)

    def _routes(self) -> dict[tuple[str, str], Callable[[Request], None]]:
        return {
            ("GET", "healthz"): lambda request: request.answer({"ready": True}),
            ("GET", "containerLogs"): self._logs,
            ("GET", "exec"): lambda request: execute.serve(request, self.kubelet.root),
            ("GET", "pools"): self._show,
            ("POST", "pools"): self._add_pool,
            ("DELETE", "pools"): self._remove_pool,
            ("POST", "faults"): self._cause,
        }

    def _logs(self, request: Request) -> None:
        namespace, pod, container = request.words[1:4]
        wanted = container_logs.Wanted.from_query(request.query, self._clock.now())
        run = container_logs.find_run(self.kubelet.root, namespace, pod, container, previous=wanted.previous)
        request.stream(container_logs.read(run, wanted))

    def _show(self, request: Request) -> None:
        records = [record.to_json() for record in self.nodes.pools()]
        planned = [
            {"action": fault.action, "target": fault.target, "step": fault.step} for fault in self.faults.planned
        ]
        request.answer({"pools": records, "planned": planned})

    def _add_pool(self, request: Request) -> None:
        self.nodes.add(Pool.from_json(request.body()))
        request.answer({})

    def _remove_pool(self, request: Request) -> None:
        patience = float(request.query.get("patience", PATIENCE_SECONDS))
        self.faults.remove_pool(request.words[1], patience, budgets=request.query.get("budgets") == "true")
        request.answer({})

    def _cause(self, request: Request) -> None:
        self.faults.cause(Fault.from_json(request.body()))
        request.answer({})


def _google(options: Options) -> Google:
    """Return the variables that point Google's clients to the emulator.

    With STORAGE_EMULATOR_HOST, Cloud Storage clients send no token at all. Pods with an identity therefore get the
    other variables that their clients support.
    """
    common = {
        "TENSORSTORE_GCS_HTTP_URL": options.google,  # Orbax writes checkpoints in buckets with TensorStore
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # avoids a gRPC request for the bucket type before every call
        "GOOGLE_VERTEX_AI_CUSTOM_ENDPOINT": f"{options.google}/vertex_ai/v1/",
    }
    owner = {"STORAGE_EMULATOR_HOST": options.google, "GOOGLE_OAUTH_ACCESS_TOKEN": options.google_token}
    ways = ("API_ENDPOINT_OVERRIDE", "FSSPEC_GCS_ENDPOINT_URL", "FSSPEC_GS_ENDPOINT_URL")
    return Google({**common, **owner}, {**common, **dict.fromkeys(ways, options.google)})
