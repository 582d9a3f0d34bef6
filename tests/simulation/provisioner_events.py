"""Events of a cluster and its node pools, with and without people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simulation import cluster_events
from simulation.events import ZONE
from simulation.plans import Event
from support.simulated_gke import _read
from tpukit.provisioner import pool_names

if TYPE_CHECKING:
    from simulation.provisioner_scene import ProvisionerScene
    from simulation.world import World


def happen(world: World, scene: ProvisionerScene, event: Event) -> bool:
    if event.kind not in _HAPPEN:
        return False
    _HAPPEN[event.kind](world, scene, event)
    return True


def delete(scene: ProvisionerScene, name: str) -> None:
    """Delete a JobSet, as a person."""
    if key := scene.kube.key(name):
        uid = scene.kube._uid(key)
        scene.asked.add(uid)
        scene.kube.remove(key, foreground=False)
        scene.gone[uid] = scene.world.scheduler.now


def _delete_jobset(world: World, scene: ProvisionerScene, event: Event) -> None:
    if key := cluster_events._running(scene, event):  # type: ignore[arg-type]
        delete(scene, key[1])


def _recreate_jobset(world: World, scene: ProvisionerScene, event: Event) -> None:
    """Delete a JobSet and send it again under the same name, as a person."""
    if key := cluster_events._running(scene, event):  # type: ignore[arg-type]
        delete(scene, key[1])
        world.scheduler.sleep(event.seconds)
        scene.send(key[1], scene.kube.programs[key[1]])


def _preempt(world: World, scene: ProvisionerScene, event: Event) -> None:
    """Remove the hosts of a pool, and add them again after a while."""
    pools = sorted(name for name in scene.gke.own() if scene.kube.hosts(name))
    if not pools:
        return
    name = pools[event.which % len(pools)]
    created = scene.gke.pool_docs[name]["body"]["config"]["labels"][pool_names.CREATED]
    scene.kube.remove_hosts(name)
    world.scheduler.sleep(event.seconds)
    doc = scene.gke.pool_docs.get(name)
    same = doc is not None and doc["body"]["config"]["labels"].get(pool_names.CREATED) == created
    if doc is not None and same and doc["status"] == "RUNNING" and not scene.kube.hosts(name):
        scene.kube.add_hosts(_read(doc))


def _evict(world: World, scene: ProvisionerScene, event: Event) -> None:
    if key := cluster_events._running(scene, event):  # type: ignore[arg-type]
        scene.kube.evict(key, event.seconds)


def _short(world: World, scene: ProvisionerScene, event: Event) -> None:
    until = world.scheduler.now + event.seconds
    if event.which % 2:
        scene.gke.short = until
    else:
        scene.gke.short_in[ZONE] = until


def _quota(world: World, scene: ProvisionerScene, event: Event) -> None:
    scene.gke.no_quota = world.scheduler.now + event.seconds


def _refuse(world: World, scene: ProvisionerScene, event: Event) -> None:
    scene.gke.refusing = world.scheduler.now + event.seconds


def _break(world: World, scene: ProvisionerScene, event: Event) -> None:
    """Let the next create, or a delete, fail."""
    scene.gke.breaks["delete" if event.which == 0 else ""] += 1


def _foreign_pod(world: World, scene: ProvisionerScene, event: Event) -> None:
    """Add a person's pod to an idle host of ours that accepts pods."""
    kube = scene.kube
    pools = sorted(name for name in scene.gke.own() if kube.hosts(name) and not kube.on(name))
    free = [name for name in pools if not any((one.get("spec") or {}).get("unschedulable") for one in kube.hosts(name))]
    if not free:
        return
    host = kube.hosts(free[event.which % len(free)])[0]["metadata"]["name"]
    key = ("people", f"notebook-{int(event.at)}")
    document = {"metadata": {"name": key[1]}, "spec": {"nodeName": host}, "status": {"phase": "Running"}}
    kube.add("Pod", key, document)
    world.scheduler.sleep(event.seconds)
    kube.of("Pod").pop(key, None)
    scene.schedule_soon()


def _foreign_pool(world: World, scene: ProvisionerScene, event: Event) -> None:
    """Delete an idle pool of ours, and create a person's pool of the same name."""
    pools = sorted(name for name in scene.gke.own() if not scene.kube.on(name))
    if not pools:
        return
    name = pools[event.which % len(pools)]
    doc = scene.gke.pool_docs[name]
    scene.kube.remove_hosts(name)
    config = {**doc["body"]["config"], "labels": {"owner": "eve"}}
    scene.gke.pool_docs[name] = {"body": {**doc["body"], "config": config}, "status": "RUNNING", "message": ""}
    world.scheduler.sleep(event.seconds)
    if scene.gke.pool_docs.get(name, {}).get("body", {}).get("config", {}).get("labels") == {"owner": "eve"}:
        del scene.gke.pool_docs[name]


def _foreign_name(world: World, scene: ProvisionerScene, event: Event) -> None:
    """Create a person's pool of the same shape beside ours."""
    pools = sorted(scene.gke.own())
    if not pools:
        return
    body = scene.gke.pool_docs[pools[event.which % len(pools)]]["body"]
    name, config = f"theirs-{int(event.at)}", {**body["config"], "labels": {"owner": "eve"}}
    theirs = {"body": {**body, "name": name, "config": config}, "status": "RUNNING", "message": ""}
    scene.gke.pool_docs.setdefault(name, theirs)


def _no_rights(world: World, scene: ProvisionerScene, event: Event) -> None:
    machine = world.machines[event.which % len(world.machines)]
    channel = "kube" if event.which % 2 else "cloud"
    machine.denied[channel] = max(world.scheduler.now + event.seconds, machine.denied.get(channel, 0.0))


_HAPPEN: dict[str, Any] = {
    "preempt": _preempt,
    "evict": _evict,
    "delete jobset": _delete_jobset,
    "recreate jobset": _recreate_jobset,
    "short": _short,
    "quota": _quota,
    "refuse": _refuse,
    "break": _break,
    "foreign pod": _foreign_pod,
    "foreign pool": _foreign_pool,
    "foreign name": _foreign_name,
    "no rights": _no_rights,
    "close queue": cluster_events._close_queue,
}
