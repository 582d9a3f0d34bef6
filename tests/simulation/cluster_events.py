"""Events of a cluster and its JobSets, with and without people."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from simulation import events, job_events, moving
from simulation.kube import TEAM, Doc, Key
from simulation.kube_jobsets import CODES
from simulation.plans import Event
from tpukit.core.errors import Conflict
from tpukit.jobs import plan as plans
from tpukit.jobs.plan import ClusterName
from tpukit.jobs.reasons import State
from tpukit.jobs.records import JOBS, Job
from tpukit.jobs.spec import JobSpec, Settings

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
    """Delete a JobSet as a person with kubectl: in the background, which is the default, or in the foreground."""
    if key := _running(scene, event):
        world.asked.add(key[1])
        scene.kube.remove(key, foreground=bool(event.which % 2))


def _foreign(world: World, scene: ClusterScene, event: Event) -> None:
    """Create a JobSet of another store under the name of one of our jobs that has none at the moment."""
    names = list(world.jobs)
    if not names:
        return
    name = names[event.which % len(names)]
    if scene.kube.key(name) or scene.kube._pods_of_name(name):
        return
    made = _send(scene, name, {"tpukit.dev/sender": "eve"}, {})
    scene.kube.foreign.add(made["metadata"]["uid"])
    world.scheduler.sleep(400.0)
    if scene.kube.key(name) and scene.kube._uid((TEAM, name)) == made["metadata"]["uid"]:
        scene.kube.remove((TEAM, name), foreground=True)


def _send(scene: ClusterScene, name: str, annotations: dict[str, str], labels: dict[str, str]) -> Doc:
    replicated = [{"name": "slice", "replicas": 1, "template": {"spec": {"parallelism": 1, "template": {"spec": {}}}}}]
    policy = {"maxRestarts": 0, "rules": [{"name": one, "action": "FailJobSet"} for one in CODES]}
    metadata = {"name": name, "namespace": TEAM, "annotations": annotations, "labels": labels}
    spec = {"replicatedJobs": replicated, "failurePolicy": policy}
    return scene.kube.create({"kind": "JobSet", "metadata": metadata, "spec": spec})


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


def _orphan(world: World, scene: ClusterScene, event: Event) -> None:
    """Leave a JobSet without a job, and the record of an earlier job in a cluster that no longer exists."""
    sender = {"tpukit.dev/sender": world.home.sender}
    _send(scene, f"left-{int(event.at)}", sender, {"app.kubernetes.io/managed-by": "tpukit"})
    cluster = ClusterName("dead", "https://dead.example", "uid-of-dead")
    spec = JobSpec.from_json({"name": "old", "tpu": "v4-8", "command": ["train"], "image": "i:1"})
    plan = plans.make(spec, Settings.from_json({"artifacts": "gs://my-artifacts", "team": TEAM}), "gke", target=cluster)
    ended = Job(plan.id, "gke", TEAM, "ada", world.clock.now() - 1e6, plan.to_json(), state=State.COMPLETED)
    with suppress(Conflict):
        world.home.store.create(JOBS, plan.id, ended)
    scene.kube.orphans = True
    have_sent(world)


def have_sent(world: World) -> None:
    """Mark each machine as one that has sent a job before."""
    for machine in world.machines:
        machine.root.mkdir(parents=True, exist_ok=True)
        (machine.root / "sent").touch()


def _clear_state(world: World, scene: ClusterScene, event: Event) -> None:
    if scene.has_code():
        events._HAPPEN["clear state"](world, event)


HAPPEN: dict[str, Any] = {
    "stop": job_events._stop,
    "newer": job_events._newer,
    "move store": moving.happen,
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
    "orphan": _orphan,
}
