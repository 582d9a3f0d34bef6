"""The local place: slices simulated on this machine, one process group per host, with the environment of a GKE pod.

It does by itself what JobSet does on GKE: when one host fails its peers are ended, and the attempt ends as a whole
when the last of them is gone; the uploader does not decide success. There is no controller in the background: looking
at an attempt is also when this is done, so whoever looks (a terminal, `tpu serve`) drives it on.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tpukit import pods, stage
from tpukit.clock import Clock
from tpukit.errors import Transient
from tpukit.places import progress
from tpukit.places.base import Handle, HostView, Line, Observation
from tpukit.places.verdict import ABORTED, TERMINATED, HostEnd, verdict
from tpukit.plan import UPLOADER_JOB, Plan, host_name
from tpukit.pods import Phase, Pod, PodState
from tpukit.reasons import Reason, State
from tpukit.store import Attempt

HEARTBEAT_SECONDS = 10
SETTLE_SECONDS = 0.3
"""How long after the first failure its peers are told to leave: their own exit codes say more than ours."""
ABANDONED_SECONDS = 5.0
"""How long peers may take to notice that one of them hangs, once the first has given up."""
PEER_GRACE = 2.0
"""Grace for peers of a failed host. They cannot save without it, and JAX ignores a SIGTERM inside a collective."""
UPLOADER_GRACE = 10.0

_PASSED_ON = (
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "SSL_CERT_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
)


class LocalPlace:
    name = "local"
    on_this_machine = True

    def __init__(self, root: Path, clock: Clock) -> None:
        self._runs = root / "runs"
        self._shelf = root / "code"
        self._boards = root / "tensorboard"
        self._clock = clock

    @property
    def shelf(self) -> Path:
        """Where snapshots of code are kept."""
        return self._shelf

    def workdir(self, plan: Plan, origin: int = 0) -> str:
        own = replace(plan, spec=plan.spec.replace(workdir=str(self._runs / plan.id / "work")))
        return (plan if plan.workdir else own).workdir_of(origin)

    def submit(self, handle: Handle) -> None:
        try:
            self._submit(handle)
        except OSError as error:
            raise Transient(
                f"attempt {handle.attempt.number} could not be started: {error}",
                hint="it is tried again; `tpu job stop` gives it up",
            ) from error

    def _submit(self, handle: Handle) -> None:
        plan, attempt = handle.plan, handle.attempt
        folder = self._folder(handle)
        code = self._runs / plan.id / "code"
        if plan.snapshot:
            stage.unpack(self._shelf, plan.snapshot.digest, code)
        code.mkdir(parents=True, exist_ok=True)
        workdir = self.workdir(plan, attempt.origin)
        if "://" not in workdir:
            Path(workdir).mkdir(parents=True, exist_ok=True)
        port = _port(folder)
        trainers = [
            Pod(
                folder / host_name(plan.id, slice_index, host_index),
                plan.command,
                _host_env(plan, attempt, workdir, port, slice_index, host_index)
                | {"TPUKIT_PROGRESS": str(folder / host_name(plan.id, slice_index, host_index) / "progress")},
                code,
                disks=() if "://" in workdir else (Path(workdir),),
            )
            for slice_index in range(plan.spec.slices)
            for host_index in range(plan.slice.hosts)
        ]
        uploaders = [self._uploader(handle, workdir, code)] if plan.spec.tensorboard else []
        pods.start([*uploaders, *trainers])  # whoever finds all hosts there need not look for the uploader

    def observe(self, handles: Sequence[Handle]) -> Sequence[Observation]:
        return [self._observe(handle) for handle in handles]

    def logs(self, handle: Handle, host: str = "", *, follow: bool = False) -> Iterator[Line]:
        names = [host] if host else [*handle.plan.host_names, f"{handle.plan.id}-{UPLOADER_JOB}-0-0"]
        folder = self._folder(handle)
        positions = dict.fromkeys(names, 0)
        while True:
            ended = all(pods.look(folder / name).phase is not Phase.RUNNING for name in names)
            for name in names:
                path = folder / name / "log"
                if not path.exists():
                    continue
                with path.open("rb") as log:
                    log.seek(positions[name])
                    text = log.read()
                whole = len(text) if ended or not follow else text.rfind(b"\n") + 1
                positions[name] += whole
                yield from (Line(name, line) for line in text[:whole].decode(errors="replace").splitlines())
            if ended or not follow:
                return
            self._clock.sleep(0.2)

    def stop(self, handle: Handle, grace: float) -> None:
        self._tell(handle, handle.plan.host_names, grace)

    def sweep(self, known: Callable[[], Sequence[Handle]]) -> Sequence[str]:
        """Ends hosts of attempts that nobody knows, and processes that outlived their host.

        What it costs depends on what runs, not on how many runs there ever were."""
        living = pods.living(self._runs)
        folders = {self._folder(handle) for handle in known()}
        unknown = sorted(host for host in living if host.parent not in folders)
        removed = []
        for host in unknown:
            if pods.look(host).phase is Phase.RUNNING:
                pods.stop(host, 0)
                removed.append(host.name)
        strays = [pid for attempt in sorted({host.parent for host in unknown}) for pid in pods.kill_strays(attempt)]
        return [*removed, *(f"process {pid}" for pid in strays)]

    def host_folder(self, handle: Handle, host: str) -> Path:
        return self._folder(handle) / host

    def _folder(self, handle: Handle) -> Path:
        return self._runs / handle.plan.id / f"attempt-{handle.attempt.number}"

    def _uploader(self, handle: Handle, workdir: str, code: Path) -> Pod:
        name = f"{handle.plan.id}-{UPLOADER_JOB}-0-0"
        board = self._boards / handle.plan.id
        argv = (
            sys.executable,
            "-m",
            "tpukit.host.tensorboard",
            "--logdir",
            f"{workdir}/tensorboard",
            "--to",
            str(board),
        )
        return Pod(
            self._folder(handle) / name, argv, _base_env() | _job_env(handle.plan, handle.attempt, workdir), code
        )

    def _tell(self, handle: Handle, names: Sequence[str], grace: float) -> None:
        for name in names:
            pods.stop(self._folder(handle) / name, grace)

    def _observe(self, handle: Handle) -> Observation:
        folder = self._folder(handle)
        names = handle.plan.host_names
        states = {name: pods.look(folder / name) for name in names}
        now = self._clock.now()
        hosts = tuple(
            _view(folder / name, name, index, handle.plan.slice.hosts, states[name], now)
            for index, name in enumerate(names)
        )
        saved = max((host.saved for host in hosts), default=-1)
        started = max((state.began for state in states.values()), default=0.0)
        if any(state.phase is Phase.ABSENT for state in states.values()):
            return Observation(State.PENDING, hosts, saved=saved)

        failed = [name for name in names if states[name].phase is Phase.LOST or states[name].code]
        alive = [name for name in names if states[name].phase is Phase.RUNNING]
        if alive:
            if failed:
                self._end_peers(handle, states, failed, alive)
            return Observation(State.RUNNING, hosts, started, saved)
        if self._uploader_lives(handle):
            return Observation(State.RUNNING, hosts, started, saved)

        pods.kill_strays(folder)
        port = _chosen_port(folder)
        found = verdict([_end(folder / name, name, states[name], port) for name in names])
        state = State.COMPLETED if found.reason is Reason.DONE else State.FAILED
        return Observation(state, hosts, started, saved, found.reason, found.host, found.detail)

    def _end_peers(
        self, handle: Handle, states: Mapping[str, PodState], failed: Sequence[str], alive: Sequence[str]
    ) -> None:
        since = min((states[name].ended for name in failed if states[name].ended), default=0.0)
        passed = self._clock.now() - since
        leaving = any(states[name].code == TERMINATED for name in failed)
        followers_only = all(states[name].code in (ABORTED, TERMINATED) for name in failed)
        if leaving:  # hosts that were told to leave save together: they get the time for it
            wait, grace = SETTLE_SECONDS, float(handle.plan.spec.max.grace)
        elif followers_only:
            wait, grace = ABANDONED_SECONDS, 0.0
        else:
            wait, grace = SETTLE_SECONDS, PEER_GRACE
        if passed >= wait:
            self._tell(handle, [name for name in alive if not pods.told_to_stop(self._folder(handle) / name)], grace)

    def _uploader_lives(self, handle: Handle) -> bool:
        folder = self._folder(handle) / f"{handle.plan.id}-{UPLOADER_JOB}-0-0"
        if not handle.plan.spec.tensorboard:
            return False
        if not pods.told_to_stop(folder):
            pods.stop(folder, UPLOADER_GRACE)
        return pods.look(folder).phase in (Phase.ABSENT, Phase.RUNNING)


def _base_env() -> dict[str, str]:
    """Built from nothing: what a terminal happens to hold, proxies above all, makes JAX hang or runs differ."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {**passed, "PATH": path, "PYTHONUNBUFFERED": "1"}


def _job_env(plan: Plan, attempt: Attempt, workdir: str) -> dict[str, str]:
    return {
        "TPUKIT_JOB": plan.id,
        "TPUKIT_ATTEMPT": str(attempt.number),
        "TPUKIT_STAGE": str(attempt.stage),
        "TPUKIT_WORKDIR": workdir,
    }


def _host_env(
    plan: Plan, attempt: Attempt, workdir: str, port: int, slice_index: int, host_index: int
) -> dict[str, str]:
    """What a GKE TPU pod finds, with loopback for the network and CPU devices for chips."""
    loopback = "127.0.0.1"
    return {
        **_base_env(),
        **plan.spec.env,
        **_job_env(plan, attempt, workdir),
        "TPUKIT_HEARTBEAT": str(HEARTBEAT_SECONDS),
        "TPU_WORKER_ID": str(host_index),
        "TPU_WORKER_HOSTNAMES": ",".join([loopback] * plan.slice.hosts),
        "TPU_TOPOLOGY": plan.slice.topology,
        "TPU_ACCELERATOR_TYPE": plan.slice.name,
        "TPU_SKIP_MDS_QUERY": "true",
        "MEGASCALE_NUM_SLICES": str(plan.spec.slices),
        "MEGASCALE_SLICE_ID": str(slice_index),
        "MEGASCALE_COORDINATOR_ADDRESS": loopback,
        "JOB_COMPLETION_INDEX": str(host_index),
        "JAX_PLATFORMS": "cpu",
        "JAX_FORCE_TPU_INIT": "1",
        "JAX_NUM_CPU_DEVICES": str(plan.slice.chips_per_host * plan.slice.devices_per_chip),
        "JAX_COORDINATOR_PORT": str(port),
        # Without it JAX listens on all interfaces, and two jobs on one port silently join each other.
        "JAX_COORDINATOR_BIND_ADDRESS": f"{loopback}:{port}",
    }


def _port(folder: Path) -> int:
    """The coordinator's port of this attempt: free when first asked, then always the same."""
    note = folder / "port"
    if not note.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            new = folder / f"port.{os.getpid()}"
            new.write_text(str(probe.getsockname()[1]), encoding="utf-8")
        new.replace(note)
    return int(note.read_text(encoding="utf-8"))


def _chosen_port(folder: Path) -> int:
    """The port that an attempt was given; 0 where nothing says so any more."""
    try:
        return int((folder / "port").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0


_SHOWN = {Phase.ABSENT: "waiting", Phase.RUNNING: "running", Phase.ENDED: "ended", Phase.LOST: "lost"}


def _view(folder: Path, name: str, index: int, hosts: int, state: PodState, now: float) -> HostView:
    said = progress.read(folder / "progress", now)
    return HostView(
        name,
        slice=index // hosts,
        index=index % hosts,
        state="stopped" if state.phase is Phase.RUNNING and pods.stopped(state.pid) else _SHOWN[state.phase],
        pid=state.pid,
        code=state.code if state.phase in (Phase.ENDED, Phase.LOST) else None,
        step=said.step,
        loss=said.loss,
        steps_per_s=said.steps_per_s,
        saved=said.saved,
        moved=said.moved,
    )


def _end(folder: Path, name: str, state: PodState, port: int) -> HostEnd:
    return HostEnd(
        name,
        code=state.code,
        order=state.order,
        lost=state.phase is Phase.LOST,
        signalled_by_us=state.told,
        error=state.error,
        out_of_memory=state.out_of_memory,
        disk_full=state.disk_full,
        own_port=port,
        tail=pods.tail(folder) if state.code else (),
    )
