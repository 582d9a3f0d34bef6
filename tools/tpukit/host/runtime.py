"""Start JAX with one call in any place: a GKE pod, a TPU VM, simulated slices on one machine, a GPU box, a laptop.

Call `start()` before anything that touches a JAX backend (`jax.devices()` does). SIGTERM then means "save and leave":
it is remembered until the training loop calls `leaving(step)`, and all hosts get the same answer at the same step.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import signal
import sys
from collections.abc import Mapping
from types import FrameType, TracebackType
from typing import Any, NoReturn

from tpukit.host.progress import Progress
from tpukit.host.pulse import Pulse
from tpukit.host.scalars import Scalars
from tpukit.host.trace import Trace
from tpukit.host.world import World, read

EXIT_LOST_PEER = 134  # exit code that a container reports for a process that JAX aborts because a peer is lost
EXIT_TERMINATED = 143  # "ended by SIGTERM" in a shell and in Kubernetes; tpukit never charges it to the user

_log = logging.getLogger(__name__)
_LOST_PEER = re.compile(r"\bGloo [\w-]+ failed|gloo/transport/|CoordinationService|\bTask \d+ heartbeat timeout")
"""Phrases of JAX and gloo that programs do not print about their own connections."""


class Host:
    """One host among its peers. Created by `start()`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.scalars = Scalars(f"{world.workdir}/tensorboard/train")
        self._trace = Trace(world.trace, world.attempt, world.index)
        self._progress = Progress(world.progress, lines=world.progress_lines, trace=self._trace)
        self.pulse = Pulse(self._progress)
        self._terminating = False
        if world.hosts == 1:
            signal.signal(signal.SIGTERM, self._remember)
        self.sync = _must_wait_for_each_step(world)

    @property
    def first(self) -> bool:
        """True on the one host that writes what is written once."""
        return self.world.index == 0

    def mesh(self, *, fsdp: int = 0, tensor: int = 1) -> Any:
        """Return a mesh with axes data, fsdp, tensor. Slices are joined by `data` only: it crosses the slow network.

        `fsdp` and `tensor` divide the chips of one slice; fsdp=0 takes all that tensor leaves. Chips that they leave
        over go to `data`.
        """
        import jax
        import numpy as np
        from jax.experimental import mesh_utils

        # Device ids have gaps and CPU devices claim slice 0, so only the order of processes distinguishes the slices.
        devices = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
        chips, rest = divmod(len(devices), self.world.slices)
        if rest:
            raise ValueError(f"{len(devices)} chips do not make {self.world.slices} equal slices")
        fsdp = fsdp or max(1, chips // tensor)
        if chips % (fsdp * tensor):
            raise ValueError(f"fsdp {fsdp} × tensor {tensor} does not divide the {chips} chips of a slice")
        shape = (chips // (fsdp * tensor), fsdp, tensor)
        slices = [
            # On a TPU this follows the topology of the torus; elsewhere it keeps the order.
            mesh_utils.create_device_mesh(shape, devices[first : first + chips], allow_split_physical_axes=True)
            for first in range(0, len(devices), chips)
        ]
        axis_types = (jax.sharding.AxisType.Auto,) * 3
        return jax.sharding.Mesh(np.concatenate(slices), ("data", "fsdp", "tensor"), axis_types=axis_types)

    def leaving(self, step: int) -> bool:
        """Return True at the same step on every host after any of them got SIGTERM. Call this after every step."""
        if self.world.hosts == 1:
            return self._terminating
        from jax.experimental import multihost_utils

        return bool(multihost_utils.reached_preemption_sync_point(step))

    def leave(self) -> NoReturn:
        """Exit with the code of a process ended by SIGTERM. Save first."""
        self.close()
        sys.exit(EXIT_TERMINATED)

    @property
    def drilled(self) -> bool:
        """True if runs are compared step by step, so that digests of batches and parameters are worth computing."""
        return self._trace.on

    def announce(self) -> None:
        """Report that this program will report its steps. `start()` calls this."""
        self._progress.announce()

    def report(self, *, log: str = "", **values: float | str | Mapping[str, str] | None) -> None:
        """Report the progress of this host, with step=, loss=, saved= and such: cheap enough for every step.

        batch= and params= are digests with which `tpu drill` compares the input and the outcome of a step. params=
        takes `digests(tree)` too. `log` is printed as one line.
        """
        self._progress.update(values)
        if log:
            # One write: lines of gloo and of other hosts share this stream and would split a longer one.
            sys.stdout.write(f"{log}\n")
            sys.stdout.flush()

    def flush(self) -> None:
        self._progress.flush()
        self.scalars.flush()

    def close(self) -> None:
        self.pulse.stop()
        self._progress.flush()
        self.scalars.close()

    def _remember(self, _signal: int, _frame: FrameType | None) -> None:
        self._terminating = True


def start() -> Host:
    """Start JAX as the environment specifies and return this host."""
    world = read(os.environ)
    if world.hosts > 1:
        import jax

        jax.distributed.initialize(heartbeat_timeout_seconds=world.heartbeat)
        if (jax.process_index(), jax.process_count()) != (world.index, world.hosts):
            raise RuntimeError(
                f"JAX is process {jax.process_index()} of {jax.process_count()} where the environment says "
                f"{world.index} of {world.hosts}: another cluster was detected; look for OMPI_* and SLURM_* variables"
            )
        _exit_without_peers_after_an_error()
    host = Host(world)
    host.announce()
    host.pulse.start()
    atexit.register(host.pulse.stop)
    return host


def _exit_without_peers_after_an_error() -> None:
    """End a program that raised immediately: with exit code 1, or with that of a lost peer if that is the cause.

    At exit JAX waits five minutes for all hosts. Peers that wait in a collective for the one that raised never arrive;
    then JAX aborts all of them alike, and only their logs show which one began. JobSet decides from exit codes whom a
    restart is charged to, and a lost peer is not the program's fault. Handlers that the program registered after
    `start()`, such as those of its trackers, run first.
    """
    code = 0
    report = sys.excepthook

    def note(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        nonlocal code
        report(kind, error, trace)
        if not issubclass(kind, KeyboardInterrupt):
            code = EXIT_LOST_PEER if _lost_peer(error) else 1

    def leave() -> None:
        if code:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    sys.excepthook = note
    atexit.register(leave)  # after JAX was imported, so it runs before JAX's own handler


def _lost_peer(error: BaseException | None) -> bool:
    """Return whether JAX or gloo reports, in this error or in one of its causes, that another host is lost."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if _LOST_PEER.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _must_wait_for_each_step(world: World) -> bool:
    """Return whether to wait after each step.

    JAX before 0.12 hangs when several steps are in flight on several CPU devices of several processes.
    """
    if world.hosts == 1:
        return False
    import jax

    if jax.default_backend() != "cpu" or jax.local_device_count() == 1 or jax.__version_info__ >= (0, 12):
        return False
    if world.index == 0:
        _log.warning(
            "jax %s can hang on simulated slices: waiting after each step; 0.12 does not hang", jax.__version__
        )
    return True
