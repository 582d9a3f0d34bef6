"""Hooks of containers, as a kubelet runs them: after a container was started, and before it is stopped.

See https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/kubelet/lifecycle/handlers.go for the handlers, and
killContainer of the kubelet's runtime for the order. There are two differences: a container is reported as running, but
not as started, during its postStart hook, and a container whose preStop hook took the whole grace period is killed
without 2 more seconds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tpubox.kubelet import handlers
from tpubox.kubelet.containers import Container
from tpubox.kubelet.env import Object
from tpubox.kubelet.pod_events import PodEvents
from tpubox.kubelet.probes import WELL, Health
from tpukit.core.clock import Clock
from tpukit.places.local import processes as pods

_MARK = "post-start"
"""File that marks a run whose postStart hook was begun, so that it runs once; it contains `_FAILED` after a failure."""
_FAILED = "failed"
_NO_LIMIT_SECONDS = 86_400.0
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Hook:
    kind: str  # PostStart or PreStop
    asked: Object
    pod: Object
    spec: Object  # of its container
    run: Path
    address: str
    deadline: float
    failed: bool = False
    done: bool = False


class Hooks:
    """The hooks of all pods. Thread-safe. A stop that an earlier agent began starts over, including its hook."""

    def __init__(self, events: PodEvents, clock: Clock, changed: Callable[[str], None]) -> None:
        """Take `changed`, which is called with the uid of a pod when one of its hooks is done."""
        self._events, self._clock, self._changed = events, clock, changed
        self._begun: dict[str, _Hook] = {}  # by UID/CONTAINER/NUMBER/KIND
        self._lock = threading.Lock()

    def after_start(self, pod: Object, container: Container, address: str) -> Health:
        """Return the health of a running container: not started until its hook is done, ended if the hook failed."""
        mark = container.run_folder() / _MARK
        if not _asked(container, "PostStart"):
            return WELL
        with self._lock:
            begun = self._begun.get(_key(pod, container, "PostStart"))
            if begun is None and not mark.exists():
                mark.touch()
                begun = self._begin(pod, container, address, "PostStart", _NO_LIMIT_SECONDS)
        if begun is not None and not begun.done:
            return Health(started=False, ready=False)
        if begun.failed if begun else mark.read_text(encoding="utf-8") == _FAILED:
            return Health(started=False, ready=False, grace=float(pod["spec"].get("terminationGracePeriodSeconds", 30)))
        return WELL

    def before_stop(self, pod: Object, container: Container, address: str, grace: float) -> float | None:
        """Return the seconds left of `grace` to stop a container, or None while its hook is running."""
        if grace <= 0 or not _asked(container, "PreStop") or pods.stop_requested(container.run_folder()):
            return grace
        with self._lock:
            begun = self._begun.get(_key(pod, container, "PreStop"))
            if begun is None:
                begun = self._begin(pod, container, address, "PreStop", grace)
        return min(grace, max(0.0, begun.deadline - self._clock.now())) if begun.done else None

    def forget(self, uid: str) -> None:
        with self._lock:
            for key in [key for key in self._begun if key.startswith(f"{uid}/")]:
                del self._begun[key]

    def _begin(self, pod: Object, container: Container, address: str, kind: str, seconds: float) -> _Hook:
        run, deadline = container.run_folder(), self._clock.now() + seconds
        hook = _Hook(kind, _asked(container, kind), pod, container.spec, run, address, deadline)
        self._begun[_key(pod, container, kind)] = hook
        threading.Thread(target=self._run, args=(hook, seconds), name=f"hook {container.name}", daemon=True).start()
        return hook

    def _run(self, hook: _Hook, seconds: float) -> None:
        try:
            why = _trouble(hook, seconds)
        except Exception as error:  # reported as the hook's failure  # noqa: BLE001
            _log.exception("hook %s of %s", hook.kind, hook.run)
            why = str(error)
        hook.failed = bool(why)
        try:
            if why:  # the message may be confidential, so it goes to the log only
                _log.info("hook %s of %s failed: %s", hook.kind, hook.run, why)
                self._events.warn(hook.pod, f"Failed{hook.kind}Hook", f"{hook.kind}Hook failed")
                if hook.kind == "PostStart":
                    (hook.run / _MARK).write_text(_FAILED, encoding="utf-8")
        except OSError:  # a full disk: only a later agent would miss the mark
            _log.exception("hook %s of %s", hook.kind, hook.run)
        hook.done = True
        self._changed(hook.pod["metadata"]["uid"])


def _key(pod: Object, container: Container, kind: str) -> str:
    return f"{pod['metadata']['uid']}/{container.name}/{len(container.runs) - 1}/{kind}"


def _asked(container: Container, kind: str) -> Object:
    found: Object = container.spec.get("lifecycle", {}).get(kind[0].lower() + kind[1:]) or {}
    return found


def _trouble(hook: _Hook, seconds: float) -> str:
    """Return why the hook failed, or "" if it succeeded. Any response to a request counts as success."""
    asked = hook.asked
    if "exec" in asked:
        return handlers.command(asked["exec"], hook.run, pods.status(hook.run).pid, seconds)
    if "httpGet" in asked:
        return handlers.request(asked["httpGet"], hook.spec, hook.address, seconds)[1]
    if "sleep" in asked:
        time.sleep(min(seconds, float(asked["sleep"].get("seconds") or 0)))
        return ""
    return "invalid handler"
