"""A sandbox from nothing to ready, and back to nothing.

Bringing one up twice is the same as once; after a kill of any of its processes, or of all, it brings back what is
missing with the state that was there.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tpukit import pods
from tpukit.errors import NotFound, Transient
from tpukit.kube import Cluster, Doc
from tpukit.pods import Phase
from tpukit.sandbox import (
    binaries,
    cloud_components,
    components,
    control_plane,
    folder,
    provisioning_requests,
    releases,
    simulated,
)
from tpukit.sandbox.folder import Folder

Report = Callable[[str], None]

_PATIENCE = 300.0
_TRIES = 4
_RECORD = "tpukit-sandbox"


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    name: str
    running: bool
    pid: int
    ports: tuple[int, ...]
    memory: int  # bytes, resident, with the process above it
    began: float
    restarts: int
    log: Path


@dataclass(frozen=True, slots=True)
class Status:
    name: str
    folder: Folder
    components: tuple[ComponentStatus, ...]
    versions: dict[str, str]

    @property
    def running(self) -> bool:
        return bool(self.components) and all(component.running for component in self.components)

    @property
    def memory(self) -> int:
        return sum(component.memory for component in self.components)


def up(
    name: str,
    report: Report = lambda text: None,
    *,
    google: tuple[str, ...] | None = None,
    addons: bool = False,
) -> Folder:
    """A sandbox that is ready for use. `google`: options of the emulator; None keeps those it had. `addons`: with
    JobSet and Kueue; without, there is what somebody installed before."""
    programs = binaries.ensure(report)
    with folder.locked(name):
        place = folder.prepare(name, google=google, running=_open_doors(name))
        # All of them are made before the first is started, because making one writes what others are judged by.
        store, api_server = control_plane.store(place, programs), control_plane.api_server(place, programs)
        controllers = [control_plane.controller_manager(place, programs), control_plane.scheduler(place, programs)]
        kwok = control_plane.kwok(place, programs)
        agent, emulator = cloud_components.agent(place), cloud_components.google(place)
        runner = cloud_components.addons(place)
        report("starting etcd and the API server")
        earlier = components.runs(place)
        died = any(
            one.name in earlier and earlier[one.name].state.phase is not Phase.RUNNING for one in (store, api_server)
        )
        components.start(place, [store, api_server, runner])
        components.wait(place, [api_server])
        if died:
            # Released ones exit when they cannot renew their lease. Without leases, Kueue was seen to live on and to
            # queue nothing any more; who runs add-ons starts them again.
            components.stop(place, releases.NAMES, grace=2.0)
        report("starting the controllers, Google's APIs and the node agent")
        components.start(place, controllers)
        cluster = Cluster(place.kubeconfig)
        before = components.runs(place).get(kwok.name)
        revived = before is not None and before.state.phase is not Phase.RUNNING
        if revived:
            simulated.free(cluster)
        components.start(place, [agent])
        _install(cluster, _RECORD, [*programs.manifests("kwok-rbac"), provisioning_requests.definition()])
        # It gives up before long where what it looks for is not allowed to it.
        components.start(place, [kwok])
        if addons:
            report("installing JobSet and Kueue")
            for one in releases.NAMES:
                released = releases.documents(one, programs.manifests(one))
                _install(cluster, f"{_RECORD}-{one}", releases.marked(one, released), again=not _runs(cluster, one))
        components.wait(place, [agent])
        # It tells the agent of its pools as soon as it runs.
        components.start(place, [emulator])
        components.wait(place, [emulator, *controllers, kwok, runner])
        _until(partial(_takes_pods, cluster), otherwise="the cluster takes no pods")
        installed = [one for one in releases.NAMES if _runs(cluster, one)]
        if installed:
            report("waiting for JobSet and Kueue")
            ready = partial(_addons_ready, cluster, place, installed)
            _until(ready, otherwise="JobSet and Kueue are not ready")
        if revived:
            simulated.wake(cluster)
    return place


def down(name: str) -> None:
    """Stop everything of a sandbox and remove its folder."""
    folder.find(name)
    with folder.locked(name) as path:
        place = folder.find(name)
        every = list(components.runs(place))
        components.stop(place, [one for one in every if one in ("google", "agent", "addons")], grace=5.0)
        components.stop(place, every, grace=0.0)
        due = time.monotonic() + 10.0
        while pods.kill_strays(path):
            if time.monotonic() > due:
                raise Transient(f"processes of sandbox {name} do not end: {pods.strays(path)}")
            time.sleep(0.05)
        shutil.rmtree(path)


def status(name: str) -> Status:
    place = folder.find(name)
    found = []
    for run in components.runs(place).values():
        running = run.state.phase is Phase.RUNNING
        found.append(
            ComponentStatus(
                run.component,
                running,
                pid=run.state.pid,
                ports=tuple(port for door, port in place.ports.items() if _owner(door) == run.component),
                memory=components.memory(run) if running else 0,
                began=run.state.began,
                restarts=run.restarts,
                log=run.log,
            )
        )
    return Status(name, place, tuple(found), binaries.versions())


def _open_doors(name: str) -> frozenset[str]:
    """Doors of components that run: their ports are taken, and rightly so."""
    try:
        runs = components.runs(folder.find(name))
    except NotFound:
        return frozenset()
    running = {run.component for run in runs.values() if run.state.phase is Phase.RUNNING}
    return frozenset(door for door in folder.DOORS if _owner(door) in running)


def _owner(door: str) -> str:
    return door.removesuffix("-webhook").removesuffix("-peer").removesuffix("-downloads")


def _install(cluster: Cluster, record: str, documents: list[Doc], *, again: bool = False) -> None:
    """As `kubectl apply` does, unless these were applied before; `again`: even then."""
    mark = hashlib.sha256(json.dumps(documents).encode()).hexdigest()
    if _installed(cluster, record) == mark and not again:
        return
    first = ("Namespace", "CustomResourceDefinition")
    for document in documents:
        if document["kind"] == "CustomResourceDefinition":
            # A definition that was half taken in when the API server was killed is looked at again when it changes.
            document["metadata"].setdefault("annotations", {})["tpukit.dev/applied"] = str(time.time_ns())
    with ThreadPoolExecutor(2) as pool:
        for batch in (
            [document for document in documents if document["kind"] in first],
            [document for document in documents if document["kind"] not in first],
        ):
            list(pool.map(partial(_apply, cluster), batch))
    about = {"metadata": {"name": record, "namespace": "kube-system"}, "data": {"installed": mark}}
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", **about})


def _apply(cluster: Cluster, document: Doc) -> None:
    """The API server gives up on a change after half a minute, which is not long for a large one on a busy machine."""
    for _ in range(_TRIES):
        try:
            cluster.apply(document)
            return
        except Transient:
            continue
    cluster.apply(document)


def _installed(cluster: Cluster, record: str) -> str:
    try:
        return str(cluster.get("ConfigMap", record, "kube-system")["data"]["installed"])
    except NotFound:
        return ""


def _runs(cluster: Cluster, name: str) -> bool:
    """Whether a release is installed that the sandbox can run."""
    try:
        found = cluster.get("Deployment", releases.deployment(name), releases.namespace(name))
    except NotFound:
        return False
    return bool(found["spec"]["template"]["spec"]["containers"][0]["image"] == releases.image(name))


def _addons_ready(cluster: Cluster, place: Folder, installed: list[str]) -> bool:
    """Whether they answer, their Deployments say so, and a job passes the webhooks."""
    for name in installed:
        if not components.answers(place, control_plane.addon_probe(place, name)):
            return False
        found = cluster.get("Deployment", releases.deployment(name), releases.namespace(name))
        conditions = found.get("status", {}).get("conditions", [])
        if found["spec"].get("replicas") or not any(
            one["type"] == "Available" and one["status"] == "True" for one in conditions
        ):
            return False
    return "jobset" not in installed or _takes_jobs(cluster)


def _takes_pods(cluster: Cluster) -> bool:
    """Whether pods have an account to run as."""
    try:
        cluster.get("ServiceAccount", "default", "default")
    except NotFound:
        return False
    return True


def _takes_jobs(cluster: Cluster) -> bool:
    pod = {"restartPolicy": "Never", "containers": [{"name": "probe", "image": "probe"}]}
    job = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "probe", "namespace": "default"},
        "spec": {"replicatedJobs": [{"name": "probe", "template": {"spec": {"template": {"spec": pod}}}}]},
    }
    try:
        cluster.apply(job, dry_run=True)
    except (NotFound, Transient):
        return False
    return True


def _until(condition: Callable[[], bool], *, otherwise: str) -> None:
    due = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > due:
            raise Transient(f"{otherwise} after {_PATIENCE:.0f} s", hint="`tpu sandbox status` names the logs")
        time.sleep(0.1)
