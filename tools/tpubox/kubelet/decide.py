"""What to do next with the containers of a pod, as a kubelet decides it. Plain data in and out."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from tpubox.kubelet.containers import Container, Role
from tpukit.places.local.processes import Phase

FIRST_BACKOFF, LONGEST_BACKOFF = 10.0, 300.0
FORGIVEN_SECONDS = 2 * LONGEST_BACKOFF
"""A container that ran for longer starts at once again, as if it had never ended before."""


@dataclass(frozen=True, slots=True)
class Step:
    start: tuple[Container, ...] = ()
    stop: tuple[tuple[Container, float], ...] = ()  # with the seconds that each may take
    again: float | None = None  # seconds until there is more to do if nothing happens
    over: bool = False  # nothing runs and nothing will be started again
    crashing: frozenset[str] = field(default_factory=frozenset)  # wait a while before they are started again


def next_step(
    containers: Sequence[Container],
    restart_policy: str,
    now: float,
    *,
    grace: float,
    deadline: float | None = None,
    starting: Set[str] = frozenset(),
) -> Step:
    """`deadline`: the pod is to end, and is killed then. `grace`: what sidecars get that nobody needs any more.
    `starting`: names of containers that run and whose probe says that they have not started."""
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
                break  # those after it start when this one does, or is done
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
    """Of a pod that is over: whether a container that counts did not succeed."""
    return any(container.role is not Role.SIDECAR and (container.last.code or not container.runs)
               for container in containers)  # fmt: skip


def interrupted(containers: Sequence[Container], restart_policy: str) -> bool:
    """Whether a pod that is over did not end by itself: what was to end it may have come too late."""
    counted = [container for container in containers if container.role is not Role.SIDECAR]
    return any(
        not one.runs or one.last.signalled or one.last.phase is Phase.LOST or _unfinished(one, restart_policy)
        for one in counted
    )


def _unfinished(container: Container, restart_policy: str) -> bool:
    """Whether it would have been started again: it crashed, and waited for its next run."""
    succeeded = container.role is Role.INIT and container.last.code == 0
    return not succeeded and _restarts(container, restart_policy)


def _done(containers: Sequence[Container], restart_policy: str) -> bool:
    mains = [container for container in containers if container.role is Role.MAIN]
    return all(container.ended and not _restarts(container, restart_policy) for container in mains)


def _restarts(container: Container, restart_policy: str) -> bool:
    """By its own rules and policy, where it has them; else by the pod's."""
    code = container.last.code
    for rule in container.spec.get("restartPolicyRules", []):
        codes = rule.get("exitCodes", {})
        if codes and (code in codes.get("values", [])) is (codes["operator"] == "In"):
            return True  # every action is to restart
    policy = container.spec.get("restartPolicy") or restart_policy
    return bool(policy == "Always" or (policy == "OnFailure" and (code != 0 or container.unwell)))


def _end(containers: Sequence[Container], grace: float) -> Step:
    """The main containers together, then the sidecars one by one, last first."""
    running = [container for container in containers if container.running]
    sidecars = [container for container in running if container.role is Role.SIDECAR]
    told = [container for container in running if container.role is not Role.SIDECAR] or sidecars[-1:]
    return Step(
        stop=tuple((container, grace) for container in told), again=grace if running else None, over=not running
    )


def _failures(container: Container) -> int:
    """Runs that its back-off knows of: it is forgotten when a run was long."""
    for number, run in enumerate(reversed(container.runs), start=1):
        if run.ended - run.began > FORGIVEN_SECONDS:
            return number
    return len(container.runs)


def _backoff(runs: int) -> float:
    """Before a container starts after so many runs: the first restart is at once."""
    return 0.0 if runs < 2 else min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** (runs - 2))
