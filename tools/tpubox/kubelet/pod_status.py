"""The status of a pod, derived from its containers: phase, conditions and a status for each container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpubox.kubelet import decide
from tpubox.kubelet.containers import Container, Ending, Role
from tpubox.kubelet.probes import Health
from tpubox.kubelet.times import stamp
from tpukit.places.local import processes as pods
from tpukit.places.local.processes import Phase, PodState

Object = Mapping[str, Any]
_MESSAGE_BYTES = 4096
_LOG_BYTES, _LOG_LINES = 2048, 80  # limits of a message from the log


@dataclass(frozen=True, slots=True)
class Waiting:
    reason: str
    message: str = ""


def pod_status(
    pod: Object,
    containers: Sequence[Container],
    waiting: Mapping[str, Waiting],
    now: float,
    *,
    over: bool,
    ending: Ending | None,
    addresses: Mapping[str, object],
    health: Mapping[str, Health],
) -> dict[str, Any]:
    """Return the pod's status; `health` has the running containers."""
    before = pod.get("status", {})
    policy = pod["spec"].get("restartPolicy", "Always")
    ending = ending if over and decide.interrupted(containers, policy) else None
    uid = pod["metadata"]["uid"]
    phase = _phase(containers, over=over, ending=ending)
    initialised = all(_initialised(one, health.get(one.name)) for one in containers if one.role is not Role.MAIN)
    mains = [container for container in containers if container.role is Role.MAIN]
    ready = all(_ready(one, health.get(one.name)) for one in containers if one.role is not Role.INIT)

    def shown(one: Container) -> dict[str, Any]:
        return _container(
            one, waiting.get(one.name), uid, initialised=initialised, ending=ending, health=health.get(one.name)
        )

    unready = {"reason": "PodCompleted"} if phase == "Succeeded" else {"reason": "ContainersNotReady"}
    gates = _closed_gates(pod)
    closed = {"reason": "ReadinessGatesNotReady", "message": gates} if gates else {}
    facts: dict[str, tuple[bool, Mapping[str, str]]] = {
        "PodReadyToStartContainers": (phase not in ("Succeeded", "Failed"), {}),
        "Initialized": (
            initialised or phase == "Succeeded",
            {} if initialised else {"reason": "ContainersNotInitialized"},
        ),
        "ContainersReady": (ready, {} if ready else unready),
        "Ready": (ready and not gates, closed if ready else unready),
    }
    if ending and ending.disruption:
        facts["DisruptionTarget"] = (True, {"reason": ending.disruption, "message": ending.message})
    inits = [shown(container) for container in containers if container.role is not Role.MAIN]
    statuses = {
        "containerStatuses": [shown(container) for container in mains],
        **({"initContainerStatuses": inits} if inits else {}),
    }
    reasons = {"reason": ending.reason, "message": ending.message} if ending else {}
    return {
        "phase": phase,
        **reasons,
        "startTime": before.get("startTime") or stamp(now),
        **addresses,
        "conditions": _conditions(before.get("conditions", []), facts, now),
        **({} if ending and ending.rejected else statuses),
    }


def same(new: Any, old: Any) -> bool:
    """Return whether the old status already contains everything in the new one."""
    if isinstance(new, Mapping):
        return isinstance(old, Mapping) and all(same(value, old.get(key)) or (not value and key not in old)
                                                for key, value in new.items())  # fmt: skip
    if isinstance(new, list) and new and isinstance(new[0], Mapping) and "type" in new[0]:
        known = {one["type"]: one for one in old or []}
        return all(same(one, known.get(one["type"], {})) for one in new)
    if isinstance(new, list):
        return isinstance(old, list) and len(new) == len(old) and all(map(same, new, old))
    return bool(new == old)


def _phase(containers: Sequence[Container], *, over: bool, ending: Ending | None) -> str:
    if over:
        return "Failed" if ending or decide.failed(containers) else "Succeeded"
    started = any(container.runs for container in containers if container.role is Role.MAIN)
    return "Running" if started else "Pending"


def _closed_gates(pod: Object) -> str:
    """Return which readiness gates keep the pod from being ready, in a kubelet's words. Other controllers open them."""
    known = {one["type"]: one["status"] for one in pod.get("status", {}).get("conditions", [])}
    said = []
    for kind in (gate["conditionType"] for gate in pod["spec"].get("readinessGates", [])):
        if kind not in known:
            said.append(f'corresponding condition of pod readiness gate "{kind}" does not exist.')
        elif known[kind] != "True":
            said.append(f'the status of pod readiness gate "{kind}" is not "True", but {known[kind]}')
    return ", ".join(said)


def _initialised(container: Container, health: Health | None) -> bool:
    if container.role is Role.SIDECAR:
        return bool(container.runs) and (health is None or health.started)
    return container.ended and container.last.code == 0


def _ready(container: Container, health: Health | None) -> bool:
    return container.running and (health is None or health.ready)


def _conditions(
    before: Sequence[Object], facts: Mapping[str, tuple[bool, Mapping[str, str]]], now: float
) -> list[dict[str, Any]]:
    """Return the conditions; unchanged ones keep their transition time."""
    known = {condition["type"]: condition for condition in before}
    found = []
    for kind, (true, why) in facts.items():
        value, old = str(true), known.get(kind, {})
        since = old["lastTransitionTime"] if old.get("status") == value else stamp(now)
        found.append({"type": kind, "status": value, "lastTransitionTime": since, **why})
    return found


def _container(
    container: Container,
    waiting: Waiting | None,
    uid: str,
    *,
    initialised: bool,
    ending: Ending | None,
    health: Health | None,
) -> dict[str, Any]:
    runs = container.runs
    back = waiting is not None and container.ended  # waiting for its restart
    if container.running:
        state: dict[str, Any] = {"running": {"startedAt": stamp(container.last.began)}}
    elif container.ended and not back:
        state = {"terminated": _terminated(container, len(runs) - 1, uid)}
    elif ending:
        state = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": ending.message}}
    else:
        main = container.role is Role.MAIN
        default = "ContainerCreating" if initialised or not main else "PodInitializing"
        why = waiting or Waiting(default)
        state = {"waiting": {"reason": why.reason, **({"message": why.message} if why.message else {})}}
    previous = len(runs) - (1 if back else 2)
    ready = _initialised(container, health) if container.role is Role.INIT else _ready(container, health)
    return {
        "name": container.name,
        "image": container.spec["image"],
        "imageID": container.spec["image"] if runs else "",
        **({"containerID": _id(container, len(runs) - 1, uid)} if runs else {}),
        "ready": ready,
        "started": container.running and (health is None or health.started),
        "restartCount": max(0, len(runs) - 1),
        "state": state,
        "lastState": {"terminated": _terminated(container, previous, uid)} if previous >= 0 else {},
    }


def _terminated(container: Container, number: int, uid: str) -> dict[str, Any]:
    run = container.runs[number]
    message = _message(container, number, run)
    return {
        "exitCode": run.code,
        "reason": _reason(run),
        **({"message": message} if message else {}),
        "startedAt": stamp(run.began),
        "finishedAt": stamp(max(run.ended, run.began)),
        "containerID": _id(container, number, uid),
    }


def _reason(run: PodState) -> str:
    if run.phase is Phase.LOST:
        return "ContainerStatusUnknown"
    if run.error:
        return "StartError"
    if run.out_of_memory:
        return "OOMKilled"
    return "Error" if run.code else "Completed"


def _message(container: Container, number: int, run: PodState) -> str:
    if run.error:
        return run.error
    if run.phase is Phase.LOST:
        return "The container could not be located when the pod was terminated"
    folder = container.run_folder(number)
    note = folder / "termination-log"
    said = note.read_bytes()[-_MESSAGE_BYTES:].decode(errors="replace") if note.exists() else ""
    if not said and run.code and container.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
        lines = pods.tail(folder, _LOG_LINES, 2 * _LOG_BYTES)
        said = "\n".join(line.split(" ", 3)[-1] for line in lines)[-_LOG_BYTES:]
    return said


def _id(container: Container, number: int, uid: str) -> str:
    return f"tpukit://{uid}/{container.name}/{number}"
