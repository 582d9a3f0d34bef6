"""The next step for the containers of a pod, as a kubelet decides it. Plain data in and out."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from tpubox.kubelet.containers import Container, Role
from tpukit.places.local.processes import Phase

FIRST_BACKOFF, LONGEST_BACKOFF = 10.0, 300.0
FORGIVEN_SECONDS = 2 * LONGEST_BACKOFF
"""Run time after which a container's earlier failures no longer delay its restart."""


@dataclass(frozen=True, slots=True)
class Step:
    start: tuple[Container, ...] = ()
    stop: tuple[tuple[Container, float], ...] = ()  # with the grace period of each in seconds
    again: float | None = None  # seconds until the next step if nothing happens
    over: bool = False  # nothing runs and nothing will be restarted
    crashing: frozenset[str] = field(default_factory=frozenset)  # waiting for their restart


def next_step(
    containers: Sequence[Container],
    restart_policy: str,
    now: float,
    *,
    grace: float,
    deadline: float | None = None,
    starting: Set[str] = frozenset(),
) -> Step:
    """Return what to start and stop next.

    `deadline`: time at which the pod is killed, if it must end. `grace`: seconds for sidecars that are no longer
    needed. `starting`: names of running containers whose startup probe has not succeeded.
    """
    if deadline is not None:
        return _end(containers, max(0.0, deadline - now))
    start: list[Container] = []
    crashing: dict[str, float] = {}

    def again(container: Container) -> None:
        wait = _backoff(_failures(container)) - (now - max(container.last.ended, container.last.began))
        if container.runs and wait > 0:
            crashing[container.name] = wait
        else:
            start.append(container)

    for container in containers:
        if container.running:
            if container.role is Role.INIT or (container.role is Role.SIDECAR and container.name in starting):
                break
        elif not container.ended:
            again(container)
            if container.role is not Role.MAIN:
                break  # later containers start when this one has started or completed
        elif container.role is Role.INIT:
            if container.last.code:
                if not _restarts(container, restart_policy):
                    return _end(containers, grace)
                again(container)
                break
        elif _restarts(container, restart_policy) and not _done(containers, restart_policy):
            again(container)
    else:
        if _done(containers, restart_policy):
            return _end(containers, grace)
    return Step(tuple(start), again=min(crashing.values(), default=None), crashing=frozenset(crashing))


def failed(containers: Sequence[Container]) -> bool:
    """Return whether a container that counts failed, in a pod that is over."""
    return any(container.role is not Role.SIDECAR and (container.last.code or not container.runs)
               for container in containers)  # fmt: skip


def interrupted(containers: Sequence[Container], restart_policy: str) -> bool:
    """Return whether a pod that is over was interrupted; an ending may come too late to take effect."""
    counted = [container for container in containers if container.role is not Role.SIDECAR]
    return any(
        not one.runs or one.last.signalled or one.last.phase is Phase.LOST or _unfinished(one, restart_policy)
        for one in counted
    )


def _unfinished(container: Container, restart_policy: str) -> bool:
    """Return whether the container crashed and was waiting for its next run."""
    succeeded = container.role is Role.INIT and container.last.code == 0
    return not succeeded and _restarts(container, restart_policy)


def _done(containers: Sequence[Container], restart_policy: str) -> bool:
    mains = [container for container in containers if container.role is Role.MAIN]
    return all(container.ended and not _restarts(container, restart_policy) for container in mains)


def _restarts(container: Container, restart_policy: str) -> bool:
    """Return whether the container is restarted, by its own rules and policy or else by the pod's."""
    code = container.last.code
    for rule in container.spec.get("restartPolicyRules", []):
        codes = rule.get("exitCodes", {})
        if codes and (code in codes.get("values", [])) is (codes["operator"] == "In"):
            return True  # restart is the only action
    policy = container.spec.get("restartPolicy") or restart_policy
    return bool(policy == "Always" or (policy == "OnFailure" and (code != 0 or container.unwell)))


def _end(containers: Sequence[Container], grace: float) -> Step:
    """Stop the main containers together, then the sidecars one by one, last first."""
    running = [container for container in containers if container.running]
    sidecars = [container for container in running if container.role is Role.SIDECAR]
    told = [container for container in running if container.role is not Role.SIDECAR] or sidecars[-1:]
    return Step(
        stop=tuple((container, grace) for container in told), again=grace if running else None, over=not running
    )


def _failures(container: Container) -> int:
    """Return the number of runs that count for the back-off, which a long run resets."""
    for number, run in enumerate(reversed(container.runs), start=1):
        if run.ended - run.began > FORGIVEN_SECONDS:
            return number
    return len(container.runs)


def _backoff(runs: int) -> float:
    """Return the delay before the next start after so many runs; the first restart is immediate."""
    return 0.0 if runs < 2 else min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** (runs - 2))
