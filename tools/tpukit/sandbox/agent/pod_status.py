"""The status of a pod from what its containers do: phase, conditions and a status for each container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpukit import pods
from tpukit.pods import Phase, PodState
from tpukit.sandbox.agent import decide
from tpukit.sandbox.agent.containers import Container, Ending, Role
from tpukit.sandbox.agent.times import stamp

Object = Mapping[str, Any]
_MESSAGE_BYTES, _MESSAGE_LINES = 2048, 80


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
) -> dict[str, Any]:
    before = pod.get("status", {})
    ending = ending if over and _interrupted(containers) else None
    uid = pod["metadata"]["uid"]
    phase = _phase(containers, over=over, ending=ending)
    initialised = all(_initialised(container) for container in containers if container.role is not Role.MAIN)
    mains = [container for container in containers if container.role is Role.MAIN]
    ready = all(container.running for container in containers if container.role is not Role.INIT)

    def shown(container: Container) -> dict[str, Any]:
        return _container(container, waiting.get(container.name), uid, initialised=initialised, ending=ending)

    unready = {"reason": "PodCompleted"} if phase == "Succeeded" else {"reason": "ContainersNotReady"}
    facts: dict[str, tuple[bool, Mapping[str, str]]] = {
        "PodReadyToStartContainers": (phase not in ("Succeeded", "Failed"), {}),
        "Initialized": (
            initialised or phase == "Succeeded",
            {} if initialised else {"reason": "ContainersNotInitialized"},
        ),
        "ContainersReady": (ready, {} if ready else unready),
        "Ready": (ready, {} if ready else unready),
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


def _phase(containers: Sequence[Container], *, over: bool, ending: Ending | None) -> str:
    if over:
        return "Failed" if ending or decide.failed(containers) else "Succeeded"
    started = any(container.runs for container in containers if container.role is Role.MAIN)
    return "Running" if started else "Pending"


def _interrupted(containers: Sequence[Container]) -> bool:
    """Whether a pod did not end by itself: what was to end it may have come too late."""
    counted = [container for container in containers if container.role is not Role.SIDECAR]
    return any(not one.runs or one.last.signalled or one.last.phase is Phase.LOST for one in counted)


def _initialised(container: Container) -> bool:
    if container.role is Role.SIDECAR:
        return bool(container.runs)
    return container.ended and container.last.code == 0


def _conditions(
    before: Sequence[Object], facts: Mapping[str, tuple[bool, Mapping[str, str]]], now: float
) -> list[dict[str, Any]]:
    """Times stay where nothing changed."""
    known = {condition["type"]: condition for condition in before}
    found = []
    for kind, (true, why) in facts.items():
        value, old = str(true), known.get(kind, {})
        since = old["lastTransitionTime"] if old.get("status") == value else stamp(now)
        found.append({"type": kind, "status": value, "lastTransitionTime": since, **why})
    return found


def _container(
    container: Container, waiting: Waiting | None, uid: str, *, initialised: bool, ending: Ending | None
) -> dict[str, Any]:
    runs = container.runs
    back = waiting is not None and container.ended  # it waits to be started again
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
    ready = container.running or (container.role is Role.INIT and _initialised(container))
    return {
        "name": container.name,
        "image": container.spec["image"],
        "imageID": container.spec["image"] if runs else "",
        **({"containerID": _id(container, len(runs) - 1, uid)} if runs else {}),
        "ready": ready,
        "started": container.running,
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
    said = note.read_text(encoding="utf-8", errors="replace") if note.exists() else ""
    if not said and run.code and container.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
        lines = pods.tail(folder, _MESSAGE_LINES, 2 * _MESSAGE_BYTES)
        said = "\n".join(line.split(" ", 3)[-1] for line in lines)
    return said[-_MESSAGE_BYTES:]


def _id(container: Container, number: int, uid: str) -> str:
    return f"tpukit://{uid}/{container.name}/{number}"
