"""The life cycle of a sandbox: create it, start it until it is ready, and delete it.

Starting is idempotent; after any or all of its processes were killed, it restores what is missing with the previous
state.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tpubox.box import binaries, cloud_components, components, control_plane, folder, installing, releases, snapshots
from tpubox.box.folder import Folder
from tpubox.pools import simulated
from tpukit.core.errors import NotFound, Transient
from tpukit.kube import Cluster
from tpukit.places.local import processes as pods
from tpukit.places.local.processes import Phase

Report = Callable[[str], None]

_PATIENCE = 300.0
_AUTHORITY = "kube-root-ca.crt"  # in every namespace: the authority that pods trust for the API server


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    name: str
    running: bool
    pid: int
    ports: tuple[int, ...]
    memory: int  # bytes, including the supervising process; shared pages count in part
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
    """Start a sandbox until it is ready for use.

    `google` are options of the emulator; None keeps the current ones. `addons` installs JobSet and Kueue; without it,
    those installed before are kept.
    """
    programs = binaries.ensure(report)
    wanted = installing.addons(programs) if addons else {}
    if wanted and name != snapshots.NAME:
        snapshot = snapshots.ensure(programs, wanted, partial(_stopped, report), report)
    else:
        snapshot = None
    with folder.locked(name) as path:
        if snapshot and not (path / folder.RECORD).exists():
            snapshots.lay(snapshot, path)
        place = folder.prepare(name, google=google, running=_open_doors(name))
        # Create all components before the first start, because this writes files that decide whether others are
        # restarted.
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
        # Components that do not need the API server to start come up in parallel, and wait for it.
        components.start(place, [store, api_server, runner, agent, emulator])
        components.wait(place, [api_server])
        if died:
            # Released controllers exit when they cannot renew their lease. Without leases, Kueue was seen to keep
            # running without queueing anything; the add-on runner restarts them.
            components.stop(place, releases.NAMES, grace=2.0)
        report("starting the controllers, Google's APIs and the node agent")
        components.start(place, controllers)
        cluster = Cluster(place.kubeconfig)
        before = components.runs(place).get(kwok.name)
        revived = before is not None and before.state.phase is not Phase.RUNNING
        if revived:
            simulated.free(cluster)
        installing.install_own(cluster, programs)
        # It exits soon if it is not permitted to read its objects.
        components.start(place, [kwok])
        if wanted:
            report("installing JobSet and Kueue")
            installing.install_addons(cluster, wanted)
        components.wait(place, [agent, emulator, *controllers, kwok, runner])
        _until(partial(_takes_pods, cluster), otherwise="the cluster does not accept pods")
        if installed := installing.installed_addons(cluster):
            report("waiting for JobSet and Kueue")
            ready = partial(installing.addons_ready, cluster, place, installed)
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
        due = time.monotonic() + 60.0
        while pods.kill_strays(path):
            if time.monotonic() > due:
                raise Transient(f"processes of sandbox {name} do not stop: {pods.strays(path)}")
            time.sleep(0.05)
        shutil.rmtree(path)


@contextmanager
def _stopped(report: Report) -> Iterator[Path]:
    """Yield the folder of a stopped sandbox with JobSet and Kueue, without objects that belong to it alone."""
    with suppress(NotFound):
        down(snapshots.NAME)  # left by a killed process
    place = up(snapshots.NAME, lambda text: report(f"snapshot, once: {text}"), addons=True)
    try:
        store, api_server = "etcd", "kube-apiserver"
        components.stop(place, [one for one in components.runs(place) if one not in (store, api_server)], grace=5.0)
        cluster = Cluster(place.kubeconfig)
        for found in cluster.list("ConfigMap"):
            if found["metadata"]["name"] == _AUTHORITY:
                cluster.delete("ConfigMap", _AUTHORITY, found["metadata"]["namespace"])
        for one in (api_server, store):
            components.stop(place, [one], grace=30.0)
        yield place.path
    finally:
        down(snapshots.NAME)


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
    """Return the servers of running components: their ports are rightly taken."""
    try:
        runs = components.runs(folder.find(name))
    except NotFound:
        return frozenset()
    running = {run.component for run in runs.values() if run.state.phase is Phase.RUNNING}
    return frozenset(door for door in folder.DOORS if _owner(door) in running)


def _owner(door: str) -> str:
    return door.removesuffix("-webhook").removesuffix("-peer").removesuffix("-downloads")


def _takes_pods(cluster: Cluster) -> bool:
    """Return whether pods have an account to run as."""
    try:
        cluster.get("ServiceAccount", "default", "default")
    except NotFound:
        return False
    return True


def _until(condition: Callable[[], bool], *, otherwise: str) -> None:
    due = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > due:
            raise Transient(f"{otherwise} after {_PATIENCE:.0f} s", hint="`tpu sandbox status` names the logs")
        time.sleep(0.1)
