"""The processes of one sandbox: each component is a pod, so it leaves a record and no stray processes.

A dead component is not restarted automatically. The next status shows it; `tpu sandbox up` starts what does not run,
and restarts what runs with outdated arguments.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tpubox.box import memory_limits
from tpubox.box.control_plane import Component
from tpubox.box.folder import Folder
from tpukit.core.errors import Transient
from tpukit.places.local import processes as pods
from tpukit.places.local.processes import Phase, Pod, PodState

_PATIENCE = 300.0  # a machine with other load may need many times the usual seconds
_RETAINED_RUNS = 3


@dataclass(frozen=True, slots=True)
class Run:
    """The newest run of a component."""

    component: str
    folder: Path
    state: PodState

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def restarts(self) -> int:
        return int(self.folder.name)


def runs(folder: Folder) -> dict[str, Run]:
    found = {}
    for component in sorted((folder.path / "components").glob("*")):
        newest = max(component.iterdir(), key=lambda run: int(run.name), default=None)
        if newest:
            found[component.name] = Run(component.name, newest, pods.status(newest))
    return found


def start(folder: Folder, components: Iterable[Component]) -> None:
    """Start components concurrently. Running ones with the same arguments are left alone."""
    now = runs(folder)
    common = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(folder.path / "home"),
        "TPUKIT_SETUP": _setup(folder),
    }
    wanted = []
    for component in components:
        env = {**common, **memory_limits.environment(component.name), **component.env}
        run = now.get(component.name)
        if run and run.state.phase is Phase.RUNNING:
            if _asked(run) == (list(component.argv), env):
                continue
            _end(run, grace=5.0)
        number = run.restarts + 1 if run else 0
        home = folder.path / "components" / component.name
        wanted.append(Pod(home / str(number), component.argv, env, cwd=folder.path, starts_pods=component.starts_pods))
        for old in home.glob("*"):
            if int(old.name) <= number - _RETAINED_RUNS:
                shutil.rmtree(old)
    pods.start(wanted)


def ready(folder: Folder, component: Component) -> bool:
    """Return whether the component answers its probe."""
    if not component.probe:
        return runs(folder)[component.name].state.phase is Phase.RUNNING
    return answers(folder, component.probe)


def wait(folder: Folder, components: Iterable[Component]) -> None:
    """Wait until each component answers its probe; raise Transient with the last lines of one that exits instead."""
    due = time.monotonic() + _PATIENCE
    for component in components:
        while not ready(folder, component):
            run = runs(folder)[component.name]
            if run.state.phase is not Phase.RUNNING:
                what = f"{component.name} ended with {run.state.code}"
                raise Transient(f"{what}: {_last_words(run)}", hint=f"see its log {run.log}")
            if time.monotonic() > due:
                what = f"{component.name} is not ready after {_PATIENCE:.0f} s"
                raise Transient(f"{what}: {_last_words(run)}", hint=f"see its log {run.log}")
            time.sleep(0.1)


def stop(folder: Folder, names: Iterable[str], grace: float) -> None:
    """Stop components, and wait until they have exited."""
    now = runs(folder)
    running = [now[name] for name in names if name in now and now[name].state.phase is Phase.RUNNING]
    for run in running:
        pods.stop(run.folder, grace)
    for run in running:
        _end(run, grace)


def memory(run: Run) -> int:
    """Return the bytes that the processes of a component hold, including the supervising one.

    A page that several share (etcd, the API server and its controllers are one program) counts in part for each, so
    that components can be added up.
    """
    return sum(_proportional(pid) for pid in {run.state.shim, run.state.pid, *pods.strays(run.folder)})


def _proportional(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)


def _end(run: Run, grace: float) -> None:
    pods.stop(run.folder, grace)
    due = time.monotonic() + grace + _PATIENCE
    while pods.status(run.folder).phase is Phase.RUNNING:
        if time.monotonic() > due:
            raise Transient(f"{run.component} does not stop", hint=f"see its folder {run.folder}")
        time.sleep(0.05)


def _setup(folder: Folder) -> str:
    """Return a digest of everything that components read at start: a component with another digest is restarted."""
    digest = hashlib.sha256(json.dumps(folder.ports, sort_keys=True).encode())
    for file in sorted((folder.path / "config").iterdir()):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _asked(run: Run) -> tuple[list[str], dict[str, str]]:
    spec = json.loads((run.folder / "pod.json").read_bytes())
    return spec["argv"], {name: value for name, value in spec["env"].items() if name != pods.MARK}


def answers(folder: Folder, probe: str) -> bool:
    request = urllib.request.Request(probe, headers={"Authorization": f"Bearer {folder.token}"})  # noqa: S310 (ours)
    trust = ssl.create_default_context(cafile=str(folder.certificates("cluster") / "ca.crt"))
    # The user's proxy must not be used between two processes of this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust))
    try:
        with opener.open(request, timeout=5.0):
            return True
    except (OSError, urllib.error.URLError):
        return False


def _last_words(run: Run) -> str:
    return run.state.error or " / ".join(line.strip() for line in pods.tail(run.folder, lines=3)) or "no message"
