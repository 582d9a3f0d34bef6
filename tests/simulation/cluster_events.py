"""What happens to a cluster and its JobSets by itself, and what people do there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simulation import events, job_events
from simulation.kube import TEAM, Key
from simulation.plans import Event
from tpukit.records import JOBS

if TYPE_CHECKING:
    from simulation.cluster_scene import ClusterScene
    from simulation.world import World


def happen(world: World, scene: ClusterScene, event: Event) -> bool:
    if event.kind not in HAPPEN:
        return False
    HAPPEN[event.kind](world, scene, event)
    return True


def _running(scene: ClusterScene, event: Event) -> Key | None:
    kube = scene.kube
    keys = sorted(
        key
        for key, doc in kube.of("JobSet").items()
        if kube.phase[doc["metadata"]["uid"]] in ("starting", "running") and doc["metadata"]["uid"] not in kube.foreign
    )
    return keys[event.which % len(keys)] if keys else None


def _preempt(world: World, scene: ClusterScene, event: Event) -> None:
    if key := _running(scene, event):
        scene.kube.fail(key, "preempted")


def _lose_peer(world: World, scene: ClusterScene, event: Event) -> None:
    if key := _running(scene, event):
        scene.kube.fail(key, "peerLost")


def _evict(world: World, scene: ClusterScene, event: Event) -> None:
    if key := _running(scene, event):
        scene.kube.evict(key, event.seconds)


def _close_queue(world: World, scene: ClusterScene, event: Event) -> None:
    scene.kube.closed = world.scheduler.now + event.seconds


def _delete_jobset(world: World, scene: ClusterScene, event: Event) -> None:
    """A person does, with kubectl: in the background, as kubectl does by default, or in the foreground."""
    if key := _running(scene, event):
        world.asked.add(key[1])
        scene.kube.remove(key, foreground=bool(event.which % 2))


def _foreign(world: World, scene: ClusterScene, event: Event) -> None:
    """Another store sends a JobSet under the name of a job of ours that has none at the moment."""
    names = list(world.jobs)
    if not names:
        return
    name = names[event.which % len(names)]
    if scene.kube.key(name) or scene.kube._pods_of_name(name):
        return
    replicated = [{"name": "slice", "replicas": 1, "template": {"spec": {"parallelism": 1, "template": {"spec": {}}}}}]
    policy = {"maxRestarts": 0, "rules": [{"name": one, "action": "FailJobSet"} for one in ("preempted", "peerLost")]}
    metadata = {"name": name, "namespace": TEAM, "annotations": {"tpukit.dev/sender": "eve"}, "labels": {}}
    document = {"kind": "JobSet", "metadata": metadata, "spec": {"replicatedJobs": replicated, "failurePolicy": policy}}
    made = scene.kube.create(document)
    scene.kube.foreign.add(made["metadata"]["uid"])
    world.scheduler.sleep(400.0)
    if scene.kube.key(name) and scene.kube._uid((TEAM, name)) == made["metadata"]["uid"]:
        scene.kube.remove((TEAM, name), foreground=True)


def _no_rights(world: World, scene: ClusterScene, event: Event) -> None:
    machine = world.machines[event.which % len(world.machines)]
    machine.denied["kube"] = max(world.scheduler.now + event.seconds, machine.denied.get("kube", 0.0))


def _resume(world: World, scene: ClusterScene, event: Event) -> None:
    job_events._resume(world, scene, event)
    job = job_events._chosen(world, event)
    if not world.hosts.of_job(job):
        world.asked.discard(job)


def _forget(world: World, scene: ClusterScene, event: Event) -> None:
    job = job_events._chosen(world, event)
    if job and not world.store.get(JOBS, job).value.state.ended:
        scene.forgotten.add(job)
        job_events._forget(world, scene, event)


def _clear_state(world: World, scene: ClusterScene, event: Event) -> None:
    if scene.has_code():
        events._HAPPEN["clear state"](world, event)


HAPPEN: dict[str, Any] = {
    "stop": job_events._stop,
    "newer": job_events._newer,
    "clear state": _clear_state,
    "preempt": _preempt,
    "lose peer": _lose_peer,
    "evict": _evict,
    "close queue": _close_queue,
    "delete jobset": _delete_jobset,
    "foreign": _foreign,
    "no rights": _no_rights,
    "resume": _resume,
    "forget": _forget,
}
