"""The local place: slices simulated on this machine, one process group per host, with the environment of a GKE pod.

It does what JobSet does on GKE: when one host fails, its peers are stopped, and the attempt ends when the last of them
is gone; the uploader does not decide success. There is no background controller: observing an attempt also drives it,
from any process (a terminal, `tpu serve`).
"""

from __future__ import annotations

import errno
import math
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from tpukit.core import fence, paths
from tpukit.core.clock import Clock
from tpukit.core.errors import Invalid, NotFound, Problem, TpukitError, Transient
from tpukit.jobs import snapshots as stage
from tpukit.jobs.plan import UPLOADER_JOB, Plan, ThisMachine, host_name
from tpukit.jobs.reasons import Reason, State
from tpukit.jobs.records import Attempt
from tpukit.places import checkpoint_folder, lines, log_tail, peers, progress
from tpukit.places.base import Claim, FollowUp, Handle, HostView, Known, Line, Observation, unclaimed
from tpukit.places.capabilities import LOCAL
from tpukit.places.local import processes as pods
from tpukit.places.local.processes import Phase, Pod, PodState
from tpukit.places.log_progress import LogProgress
from tpukit.places.meeting import Meeting
from tpukit.places.progress import Progress
from tpukit.places.suspects import Suspects
from tpukit.places.verdict import TERMINATED, HostEnd, verdict
from tpukit.places.workdirs import Workdirs

T = TypeVar("T")
HEARTBEAT_SECONDS = 10
UPLOADER_GRACE = 10.0
FOLDER_SECONDS = 2.0
"""Time between two scans of a workdir for checkpoints."""
CLOCK_SECONDS = 1.0
"""Maximum difference by which file times may be behind the clock."""
REMEMBERED = 500
"""Number of attempts whose observations a process caches."""
_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EIO, errno.EINTR)
"""Errors of the machine rather than of the job, which may be over in a minute."""

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
    capabilities = LOCAL

    def __init__(self, root: Path, clock: Clock, store: str = "") -> None:
        """Initialize for `store`, because several may share this folder; hosts of others are not swept."""
        self._store = store
        self._runs = root / "runs"
        self._shelf = root / "code"
        self._boards = root / "tensorboard"
        self._clock = clock
        self._suspects = Suspects()
        self._workdirs = Workdirs()
        self._logs = LogProgress()
        self._meetings: dict[Path, Meeting] = {}
        self._saves: dict[Path, tuple[float, int]] = {}  # by attempt: when its workdir was scanned, and the result

    def prepare(self, plan: Plan) -> Plan:
        return replace(plan, target=ThisMachine(self._identity()))

    def taken(self, plan: Plan) -> frozenset[str]:
        """Return the ids of run folders, which may outlive the store that has their jobs."""
        return frozenset(path.name for path in self._runs.glob(f"{plan.spec.name}-*"))

    def check(self, plan: Plan) -> Sequence[Problem]:
        workdir = Path(self.workdir(plan, 0))
        if "://" in str(plan.workdir) or not plan.workdir:
            return []
        in_the_way = next((path for path in (workdir, *workdir.parents) if path.exists() and not path.is_dir()), None)
        if in_the_way:
            return [Problem("", f"workdir: {in_the_way} is a file", "name a folder that exists or can be created")]
        return []

    def check_code(self, plan: Plan) -> None:
        if plan.snapshot and not (self._runs / plan.id / "code").exists():
            stage.require(self._shelf, plan.snapshot.digest)

    def share_code(self, plan: Plan) -> str:
        return ""  # it runs on this machine

    def group(self, plan: Plan) -> str | None:
        return "" if plan.machine in ("", self._identity()) else None

    def notes(self, plan: Plan) -> Sequence[str]:
        chips = plan.slice.chips_per_host
        return [
            *(["the image is not used: the command runs here with this Python"] if plan.spec.image else []),
            *(["buckets are not mounted on this machine"] if plan.spec.mounts else []),
            f"chips are simulated: {chips} CPU devices replace the {chips} chips of a host",
            *_old_jax(),
        ]

    def limit(self, plan: Plan) -> str:
        return ""  # it costs nothing

    def workdir(self, plan: Plan, origin: int = 0) -> str:
        own = replace(plan, spec=plan.spec.replace(workdir=str(self._runs / plan.id / "work")))
        return (plan if plan.workdir else own).workdir_of(origin)

    def forget(self, handle: Handle) -> str:
        return f"processes on {handle.plan.machine or 'this machine'}, files in {self._runs / handle.plan.id}"

    def submit(self, handle: Handle) -> None:
        number = handle.attempt.number
        try:
            self._submit(handle)
        except OSError as error:
            said = f"attempt {number} could not be started: {error}"
            if error.errno in _PASSING:
                raise Transient(said, hint="retrying; `tpu job stop` stops the job") from error
            raise Invalid(said, hint="fix the cause, then run `tpu job resume`") from error

    def _submit(self, handle: Handle) -> None:
        plan, attempt = handle.plan, handle.attempt
        folder = self._folder(handle)
        code = self._runs / plan.id / "code"
        if plan.snapshot:
            stage.unpack(self._shelf, plan.snapshot.digest, code)
        code.mkdir(parents=True, exist_ok=True)
        (self._runs / plan.id / "store").write_text(self._store, encoding="utf-8")
        workdir = self.workdir(plan, attempt.origin)
        if "://" not in workdir:
            Path(workdir).mkdir(parents=True, exist_ok=True)
        if not attempt.number:
            self._workdirs.claim(plan, workdir, this_machine=True)
        port = _port(folder)
        trainers = [
            Pod(
                folder / host_name(plan.id, slice_index, host_index),
                plan.command_of(attempt.stage),
                _host_env(plan, attempt, workdir, port, slice_index, host_index)
                | {"TPUKIT_PROGRESS": str(folder / host_name(plan.id, slice_index, host_index) / "progress")},
                code,
                disks=() if "://" in workdir else (Path(workdir),),
            )
            for slice_index in range(plan.spec.slices)
            for host_index in range(plan.slice.hosts)
        ]
        uploaders = [self._uploader(handle, workdir, code)] if plan.spec.tensorboard else []
        fence.check()  # unpacking code may take minutes
        pods.start([*uploaders, *trainers])  # uploaders first: if all hosts exist, so does the uploader

    def observe(self, handles: Sequence[Handle]) -> Sequence[Observation | TpukitError]:
        return [self._observed(handle) for handle in handles]

    def _observed(self, handle: Handle) -> Observation | TpukitError:
        try:
            return self._observe(handle)
        except (OSError, ValueError, KeyError) as error:  # a corrupt folder only affects its own job
            return Transient(f"the folder {self._folder(handle)} cannot be read: {error}")

    def follow_up(self, handle: Handle, what: FollowUp) -> None:
        """Do nothing: observations of this place request no actions."""

    def logs(self, handle: Handle, host: str = "", *, follow: bool = False) -> Iterator[Line]:
        names = [host] if host else [*handle.plan.host_names, f"{handle.plan.id}-{UPLOADER_JOB}-0-0"]
        folder = self._folder(handle)
        positions = dict.fromkeys(names, 0)
        while True:
            over = not follow or all(pods.status(folder / name).phase is not Phase.RUNNING for name in names)
            for name in names:
                for line, position in lines.read(folder / name / "log", positions[name], unfinished=over):
                    positions[name] = position
                    yield Line(name, line)
            if over:
                return
            self._clock.sleep(0.2)

    def tail(self, handle: Handle, host: str, size: int) -> Sequence[str]:
        return lines.tail(self._folder(handle) / host / "log", size)

    def execute(self, handle: Handle, host: str, command: Sequence[str], *, terminal: bool) -> int:
        """Run a command with the environment and the folder of the host's program."""
        state = pods.status(self.host_folder(handle, host))
        if state.phase is not Phase.RUNNING:
            raise NotFound(f"host {host} does not run", hint=f"`tpu job show {handle.plan.id}` shows which hosts do")
        try:
            words = Path(f"/proc/{state.pid}/environ").read_bytes().split(b"\0")
            env = dict(word.split(b"=", 1) for word in words if b"=" in word)
            return subprocess.run(command, env=env, cwd=f"/proc/{state.pid}/cwd", check=False).returncode
        except OSError as error:
            raise Invalid(
                f"{command[0]}: {error.strerror}", hint="use a command that is installed on this machine"
            ) from error

    def stop(self, handle: Handle, grace: float) -> None:
        self._tell(handle, handle.plan.host_names, grace)

    def lose(self, handle: Handle, host: str) -> None:
        state = pods.status(self.host_folder(handle, host))
        if state.phase is Phase.RUNNING:
            with suppress(ProcessLookupError):
                os.kill(state.pid, signal.SIGKILL)

    def sweep(
        self, known: Callable[[], Known], complain: Callable[[str], None] = lambda text: None, claim: Claim = unclaimed
    ) -> Sequence[str]:
        """Stop hosts of unknown attempts, and processes that outlived their host.

        The cost depends on what runs, not on the number of past runs.
        """
        living = pods.living(self._runs)
        jobs = known()
        folders = {self._folder(handle) for handle in jobs.handles}
        unowned = [
            host
            for host in living
            if host.parent not in folders
            and host.parents[1].name not in jobs.unreadable
            and self._is_ours(host.parents[1])
        ]
        confirmed = self._suspects.confirmed(map(str, unowned), self._clock.monotonic())
        unknown = sorted(host for host in unowned if str(host) in confirmed)
        removed = []
        for run in sorted({host.parents[1] for host in unknown}):
            hosts = [host for host in unknown if host.parents[1] == run]
            earlier = any(handle.plan.id == run.name for handle in jobs.handles)  # attempts of an active job
            with unclaimed(run.name) if earlier else claim(run.name) as free:
                removed += _remove(hosts) if free else []
        return removed

    def _is_ours(self, run: Path) -> bool:
        try:
            return (run / "store").read_text(encoding="utf-8") == self._store
        except OSError:
            return True

    def _identity(self) -> str:
        """Return the identity of the runs folder, which distinguishes jobs of this machine in a shared store."""
        return f"{socket.gethostname()}-{paths.mark(self._runs.parent / 'machine')}"

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
            fence.check()
            pods.stop(self._folder(handle) / name, grace)

    def _observe(self, handle: Handle) -> Observation:
        folder = self._folder(handle)
        names = handle.plan.host_names
        states = {name: pods.status(folder / name) for name in names}
        now, heard = self._clock.now(), self._clock.monotonic()
        reports = {name: self._progress(handle, folder / name, now) for name in names}
        hosts = tuple(
            _view(name, index, handle.plan.slice.hosts, states[name], reports[name], heard)
            for index, name in enumerate(names)
        )
        started = max((state.began for state in states.values()), default=0.0)
        saved = max(one.saved for one in reports.values())
        if saved < 0 and started:
            runs = any(state.phase is Phase.RUNNING for state in states.values())
            saved = self._saved(handle, min(state.began for state in states.values()), heard if runs else math.inf)
            hosts = (replace(hosts[0], saved=saved), *hosts[1:])
        alive = [name for name in names if states[name].phase is Phase.RUNNING]
        if any(state.phase is Phase.ABSENT for state in states.values()):
            return Observation(State.PENDING, hosts, saved=saved, active=bool(alive))

        awake = max((state.awake for state in states.values()), default=0.0)
        ran = max(0.0, heard - awake) if awake else 0.0
        left = {name for name in names if _left(states[name]) and not self._finished(folder / name, states, reports)}
        failed = [name for name in names if states[name].phase is Phase.LOST or states[name].code or name in left]
        if alive and failed:
            self._end_peers(handle, states, failed, alive)
        warning = self._meeting(folder, hosts, heard)
        if alive or self._uploader_lives(handle):
            return Observation(State.RUNNING, hosts, started, saved, ran=ran, warning=warning)

        pods.kill_strays(folder)
        port = _chosen_port(folder)
        found = verdict(
            [
                _end(folder / name, name, states[name], port, self._finished(folder / name, states, reports))
                for name in names
            ]
        )
        state = State.COMPLETED if found.reason is Reason.DONE else State.FAILED
        ended = max((state.ended for state in states.values()), default=0.0)
        return Observation(
            state,
            hosts,
            started,
            saved,
            found.reason,
            found.host,
            found.detail,
            active=False,
            ended=ended,
            ran=ran,
            warning=warning,
        )

    def _progress(self, handle: Handle, folder: Path, now: float) -> Progress:
        """Return the progress that the program reports, or else what its log lines show."""
        reported = progress.read(folder / "progress", now)
        pattern = handle.plan.spec.progress or ""
        return progress.first_of(reported, lambda: self._logs.read(folder / "log", pattern, now))

    def _saved(self, handle: Handle, since: float, now: float) -> int:
        """Return the last saved step by the files in the workdir, for a program that does not report it.

        `now` is on the monotonic clock; infinite: the workdir no longer changes.
        """
        workdir = self.workdir(handle.plan, handle.attempt.origin)
        at, known = self._saves.get(self._folder(handle), (-FOLDER_SECONDS, -1))
        if "://" in workdir or now - at < FOLDER_SECONDS:
            return known
        found = max(known, checkpoint_folder.newest(Path(workdir), since - CLOCK_SECONDS))
        _remember(self._saves, self._folder(handle), (now, found))
        return found

    def _meeting(self, folder: Path, hosts: Sequence[HostView], now: float) -> str:
        """Return the warning about hosts that all train and have not connected."""
        meeting = self._meetings.get(folder) or _remember(self._meetings, folder, Meeting())
        if not meeting.met and all(host.state == "running" and host.step is not None for host in hosts):
            meeting.check({host.name: pods.members(folder / host.name) for host in hosts}, now)
        return meeting.warning

    def _finished(self, folder: Path, states: Mapping[str, PodState], reports: Mapping[str, Progress]) -> bool:
        """Return whether a host had finished before its stop was requested, by its progress or log."""
        state = states[folder.name]
        if reports[folder.name].finished:
            return True
        return state.signalled and log_tail.finished(pods.tail(folder, until=state.told_at))

    def _end_peers(
        self, handle: Handle, states: Mapping[str, PodState], failed: Sequence[str], alive: Sequence[str]
    ) -> None:
        since = min((states[name].ended for name in failed if states[name].ended), default=0.0)
        passed = self._clock.now() - since
        codes = [TERMINATED if _left(states[name]) else states[name].code for name in failed]
        wait, grace = peers.leave(codes, float(handle.plan.spec.max.grace))
        if passed >= wait:
            self._tell(handle, [name for name in alive if not pods.stop_requested(self._folder(handle) / name)], grace)

    def _uploader_lives(self, handle: Handle) -> bool:
        folder = self._folder(handle) / f"{handle.plan.id}-{UPLOADER_JOB}-0-0"
        if not handle.plan.spec.tensorboard:
            return False
        if not pods.stop_requested(folder):
            fence.check()
            pods.stop(folder, UPLOADER_GRACE)
        return pods.status(folder).phase in (Phase.ABSENT, Phase.RUNNING)


def _remember(known: dict[Path, T], folder: Path, value: T) -> T:
    """Store a value for an attempt, and drop the oldest ones above the limit."""
    while folder not in known and len(known) >= REMEMBERED:
        known.pop(next(iter(known)))
    known[folder] = value
    return value


def _base_env() -> dict[str, str]:
    """Build an environment from scratch: inherited variables, above all proxies, make JAX hang or runs differ."""
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
    """Return the environment of a GKE TPU pod, with loopback for the network and CPU devices for chips."""
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
    """Return the coordinator's port of this attempt: a free port on the first call, then always the same."""
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
    """Return the port of an attempt; 0 if it is no longer recorded."""
    try:
        return int((folder / "port").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0


_SHOWN = {Phase.ABSENT: "waiting", Phase.RUNNING: "running", Phase.ENDED: "ended", Phase.LOST: "lost"}


def _view(name: str, index: int, hosts: int, state: PodState, said: Progress, heard: float) -> HostView:
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
        total=said.planned or said.total,
        moved=said.moved,
        heard=heard,
        pace=said.pace,
        early=said.early,
        beat=said.beat,
        cpu=said.cpu,
        saves=said.saves,
    )


def _left(state: PodState) -> bool:
    """Return whether it stopped on request with exit code 0, which would otherwise mean success."""
    return state.phase is Phase.ENDED and state.signalled and state.code == 0


def _old_jax() -> list[str]:
    """Return a note for JAX before 0.12, where unawaited steps on simulated slices deadlock silently."""
    version = _jax_version()
    numbers = version.split(".")[:2]
    if not version or not all(part.isdigit() for part in numbers) or tuple(map(int, numbers)) >= (0, 12):
        return []
    advice = "use Python 3.12 or newer, or tpukit.host, which waits for each step"
    return [f"jax {version} can hang on simulated slices; {advice}"]


def _jax_version() -> str:
    """Read JAX's version from its folder name: importlib.metadata would read a long text while hosts need the cores."""
    for folder in sys.path:
        for info in Path(folder).glob("jax-*.dist-info"):
            return info.name.removeprefix("jax-").removesuffix(".dist-info")
    return ""


def _end(folder: Path, name: str, state: PodState, port: int, finished: bool) -> HostEnd:
    return HostEnd(
        name,
        code=state.code,
        order=state.order,
        lost=state.phase is Phase.LOST,
        signalled_by_us=state.signalled,
        error=state.error,
        out_of_memory=state.out_of_memory,
        disk_full=state.disk_full,
        own_port=port,
        finished=finished,
        tail=pods.tail(folder),
    )


def _remove(hosts: Sequence[Path]) -> list[str]:
    """Stop hosts of an inactive job and the processes that outlived them; return what was stopped."""
    running = [host for host in hosts if pods.status(host).phase is Phase.RUNNING]
    for host in running:
        fence.check()
        pods.stop(host, 0)
    strays = [pid for attempt in sorted({host.parent for host in hosts}) for pid in pods.kill_strays(attempt)]
    return [*(host.name for host in running), *(f"process {pid}" for pid in strays)]
