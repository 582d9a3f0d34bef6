"""Measure one host for `tpu cluster verify`: `python -m tpukit.host.probe`, on all hosts of a job.

It prints what it measured as JSON on one line, first without the chips and again with them, because chips that do not
open may hang. Then it holds its slice until SIGTERM, prints when that came, and leaves. A value is a number, or the
text of a refusal; `unseen` has the reasons for what was not measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import resource
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from types import FrameType
from typing import Any, Protocol

from tpukit.host import bucket
from tpukit.host.scalars import Scalars
from tpukit.host.world import World, read

LINE = "tpukit-verify "
"""Prefix of a log line that holds what a host measured."""
SIMULATED = "not measured on simulated chips"
CONTENT_BYTES = 1 << 20
PAYLOAD_BYTES = 256 << 20
"""Bytes that each chip reduces at once: enough for the links, and not the delays, to decide the time."""
REPEATS = 5
LINGER_SECONDS = 3.0
"""Time between the last line and the exit, so that the line can be read while the pod exists."""
_UNLIMITED = 1 << 62


class Files(Protocol):
    def list(self, prefix: str) -> Mapping[str, int]: ...
    def read(self, name: str) -> tuple[bytes, str] | None: ...
    def create(self, name: str, data: bytes) -> bool: ...
    def delete(self, name: str) -> None: ...


class Report:
    """The measurements of this host so far."""

    def __init__(self, host: str) -> None:
        self._host = host
        self.values: dict[str, float | str] = {}
        self.unseen: dict[str, str] = {}

    def measure(self, name: str, work: Callable[[], float]) -> None:
        """Note the result of `work`. An error is a refusal: the host could not do what jobs do."""
        try:
            self.values[name] = work()
        except Exception as error:  # each library has its own errors  # noqa: BLE001
            self.values[name] = _words(error)

    def print(self, **more: Any) -> None:
        line = {"host": self._host, "at": time.time(), "values": self.values, "unseen": self.unseen, **more}
        sys.stdout.write(f"{LINE}{json.dumps(line)}\n")  # one write, because other threads print too
        sys.stdout.flush()


def main(argv: Sequence[str]) -> int:
    options = _options(argv)
    world = read(os.environ)
    report = Report(f"{world.slice_index}-{world.index % (world.hosts // world.slices)}")
    told: list[float] = []
    _await_sigterm(told)
    _measure_host(report, world)
    report.print(done=False)
    _measure_chips(report, world, options.devices_per_chip)
    _await_sigterm(told)  # JAX has its own handler, set when it joined the other hosts
    report.print(done=True)
    until = time.monotonic() + options.hold
    while not told and time.monotonic() < until:
        time.sleep(0.1)
    if not told:
        return 0
    report.print(done=True, told=told[0])
    time.sleep(LINGER_SECONDS)
    os._exit(143)  # at a normal exit JAX waits for all hosts


def memlock_bytes() -> float:
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return float(_UNLIMITED if soft == resource.RLIM_INFINITY else soft)


def clock_difference(address: str, now: Callable[[], float] = time.time) -> float:
    """Return the seconds between this host's clock and that of Cloud Storage.

    A Date header has whole seconds, so half a second is the best guess of the rest.
    """
    began = now()
    date = _date(address)
    middle = (began + now()) / 2
    return max(0.0, abs(middle - (parsedate_to_datetime(date).timestamp() + 0.5)) - 0.5)


def write_and_read(files: Files, name: str, report: Report) -> None:
    content = os.urandom(CONTENT_BYTES)

    def write() -> float:
        began = time.monotonic()
        files.create(name, content)
        return time.monotonic() - began

    def read_back() -> float:
        began = time.monotonic()
        found = files.read(name)
        if found is None or found[0] != content:
            raise OSError(f"{name} was written, and {'is not there' if found is None else 'has other content'}")
        return time.monotonic() - began

    report.measure("bucket-write", write)
    if isinstance(report.values["bucket-write"], str):
        report.unseen["bucket-read"] = "nothing could be written to read back"
        return
    report.measure("bucket-read", read_back)
    with contextlib.suppress(OSError):
        files.delete(name)


def event_file_seconds(files: Files, workdir: str, folder: str) -> float:
    """Return the seconds until an event file that was written can be listed."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("tpukit.host.scalars")
    log.addHandler(handler)
    try:
        began = time.monotonic()
        scalars = Scalars(f"{workdir}/{folder}")
        scalars.write(0, verify=1.0)
        scalars.close()
        there = files.list(f"{folder}/")
    finally:
        log.removeHandler(handler)
    seconds = time.monotonic() - began
    if not any(there.values()):
        raise OSError(said[0] if said else f"no event file appeared in {workdir}/{folder}")
    for name in there:
        with contextlib.suppress(OSError):
            files.delete(name)
    return seconds


def bandwidth(groups: Sequence[Sequence[Any]], payload: int = PAYLOAD_BYTES, repeats: int = REPEATS) -> float:
    """Return the bytes a second that leave a device while the devices of each group add up their arrays.

    The best of several runs: others may use the network too. `groups` have the same length. The reduction sends
    2 (n - 1) / n times the array from each of n devices, whatever the algorithm.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    count = len(groups[0])
    mesh = Mesh(np.array(groups), ("group", "member"))
    spec = PartitionSpec("group", "member")
    sharding = NamedSharding(mesh, spec)
    length = max(1, payload // 4)

    def add(own: Any) -> Any:
        return jax.lax.psum(own, "member")

    reduce = jax.jit(jax.shard_map(add, mesh=mesh, in_specs=spec, out_specs=PartitionSpec("group", None)))
    array = jax.jit(lambda: jnp.ones((len(groups), count * length), jnp.float32), out_shardings=sharding)()
    best = 0.0
    for number in range(repeats + 1):
        began = time.monotonic()
        result = jax.block_until_ready(reduce(array))
        seconds = time.monotonic() - began
        if number:  # the first run compiles
            best = max(best, 2 * (count - 1) / count * length * 4 / seconds)
        elif float(jnp.max(result.addressable_shards[0].data)) != count:
            raise ArithmeticError(f"{count} devices added up ones, and the sum is not {count}")
    return best


def by_slice(devices: Sequence[Any], slices: int) -> list[list[Any]]:
    """Return the devices of each slice. Processes are numbered slice by slice."""
    ordered = sorted(devices, key=lambda device: (device.process_index, device.id))
    each = len(ordered) // slices
    return [ordered[first : first + each] for first in range(0, each * slices, each)]


def _measure_host(report: Report, world: World) -> None:
    _measure_memlock(report, os.environ)
    report.measure("clock", lambda: clock_difference(_storage()))
    own = f"verify/{world.slice_index}-{world.index}"
    try:
        files: Files = bucket.opened(world.workdir)
    except (OSError, ValueError) as error:
        report.values.update(dict.fromkeys(("bucket-write", "bucket-read", "tensorboard"), _words(error)))
        return
    write_and_read(files, f"{own}/content", report)
    if isinstance(report.values["bucket-write"], str):
        report.unseen["tensorboard"] = "nothing can be written to the bucket"
    else:
        report.measure("tensorboard", lambda: event_file_seconds(files, world.workdir, f"{own}/tensorboard"))


def _measure_memlock(report: Report, environment: Mapping[str, str]) -> None:
    """Note the limit. The launcher of a simulated host that may raise it cannot exceed the limit of the machine."""
    if _simulated(environment) and environment.get("TPUKIT_MEMLOCK"):
        report.unseen["memlock"] = f"{SIMULATED}: the limit is that of the machine that simulates"
    else:
        report.measure("memlock", memlock_bytes)


def _measure_chips(report: Report, world: World, devices_per_chip: int) -> None:
    try:
        from tpukit.host import runtime

        runtime.start()
        import jax

        local, every, backend = jax.local_devices(), jax.devices(), jax.default_backend()
    except Exception as error:  # each library has its own errors  # noqa: BLE001
        report.values["chips"] = _words(error)
        report.unseen.update(dict.fromkeys(("ici", "dcn"), "the chips did not open"))
        return
    simulated = _simulated(os.environ)
    if backend != "tpu" and not simulated:
        report.values["chips"] = f"JAX found no TPU, only {backend}"
        report.unseen.update(dict.fromkeys(("ici", "dcn"), "the chips did not open"))
        return
    report.values["chips"] = len(local) // devices_per_chip
    if simulated:
        report.unseen.update(dict.fromkeys(("ici", "dcn"), SIMULATED))
        return
    if len(every) != world.hosts * len(local):
        report.unseen.update(dict.fromkeys(("ici", "dcn"), "hosts have different numbers of chips"))
        return
    groups = by_slice(every, world.slices)
    report.measure("ici", lambda: bandwidth(groups) * devices_per_chip)
    if world.slices > 1:
        report.measure("dcn", lambda: bandwidth([*zip(*groups, strict=True)]) * devices_per_chip)


def _simulated(environment: Mapping[str, str]) -> bool:
    """Return whether CPU devices stand for the chips, because the place that started the program said so."""
    return environment.get("JAX_PLATFORMS") == "cpu" and "JAX_FORCE_TPU_INIT" in environment


def _storage() -> str:
    """Return the address of Cloud Storage, as its clients read it from the environment."""
    names = ("STORAGE_EMULATOR_HOST", "API_ENDPOINT_OVERRIDE")
    return next((found for name in names if (found := os.environ.get(name))), "https://storage.googleapis.com")


def _date(address: str) -> str:
    request = urllib.request.Request(address, method="HEAD")  # noqa: S310  # our own address
    plain = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    send = urllib.request.urlopen if address.startswith("https:") else plain.open
    try:
        with send(request, timeout=bucket.SECONDS) as answer:
            headers = answer.headers
    except urllib.error.HTTPError as error:  # a refusal has a date too
        with error:
            headers = error.headers
    if not headers["Date"]:
        raise OSError(f"{address} answers without a Date")
    return str(headers["Date"])


def _await_sigterm(told: list[float]) -> None:
    def note(_signal: int, _frame: FrameType | None) -> None:
        told.append(time.time())

    signal.signal(signal.SIGTERM, note)


def _words(error: BaseException) -> str:
    text = " ".join(str(error).split())[:500]
    return text if isinstance(error, OSError) and text else f"{type(error).__name__}: {text}"


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tpukit.host.probe", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--devices-per-chip", type=int, default=1, help="devices that JAX shows for one chip")
    parser.add_argument("--hold", type=float, default=600.0, help="seconds to wait for SIGTERM after the last line")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
