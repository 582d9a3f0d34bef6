"""Run the code of one queued job: `python -m tpukit.host.code_runner FOLDER`, with the job as JSON on standard input.

The job is one line. The parent process watches time, memory and processes. The confined child loads the requested
libraries in advance and then waits for the job. What the code prints goes to standard output; the outcome goes to
FOLDER/report.json, where the code cannot write. The code may write to FOLDER/scratch and to the compilation cache.
"""

from __future__ import annotations

import importlib
import io
import json
import linecache
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tpukit.host import confinement, world

NAME = "<job>"
RESULT = ".result.json"
WATCH_SECONDS = 0.02
_PAGE = os.sysconf("SC_PAGE_SIZE")


def main(folder: Path) -> None:
    settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
    confinement.die_with_parent(int(settings.get("parent", 0)))
    scratch = folder / "scratch"
    limits = confinement.Limits(**settings["limits"])
    layers = confinement.separate(limits.network)
    confinement.adopt_orphans()
    told, tell = os.pipe()
    child = os.fork()  # fork is safe: no heavy library is loaded yet, and there is one thread
    if child == 0:
        os.close(told)
        confinement.die_with_parent(0)
        code = os.fork()
        if code == 0:
            _below(settings, scratch, limits, tell)
        _first_process(code, tell)
    os.close(tell)
    with suppress(OSError):
        os.close(0)
    _above(folder, child, told, layers, limits)


def _above(folder: Path, child: int, told: int, layers: list[str], limits: confinement.Limits) -> None:
    """Watch the child until it ends, or kill it when it exceeds a limit."""
    report: dict[str, Any] = {"layers": layers, "killed": "", "status": None}
    due = float("inf")
    os.set_blocking(told, False)
    pause = 0.0
    while True:
        ended = os.waitpid(child, os.WNOHANG)[0] == child
        for line in _lines(told):
            if "timeout" in line:
                due = time.monotonic() + float(line["timeout"])
            report["layers"] += line.get("layers", [])
            report["status"] = line.get("status", report["status"])
        if ended:
            break
        if time.monotonic() > due:
            report["killed"] = "timeout"
        elif due != float("inf"):
            processes, memory = _usage(child)
            if processes > limits.processes:
                report["killed"] = f"more than {limits.processes} processes and threads"
            elif limits.memory and memory > limits.memory:
                report["killed"] = "memory"
        if report["killed"]:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            break
        pause = min(WATCH_SECONDS, pause + 0.002)
        time.sleep(pause)
    _end_orphans()
    new = folder / "report.new"
    new.write_text(json.dumps(report), encoding="utf-8")
    new.replace(folder / "report.json")


def _first_process(code: int, tell: int) -> None:
    """Act as the init process of the namespace: reap orphans, and end the namespace with the job's process."""
    while True:
        pid, status = os.wait()
        if pid == code:
            os.write(tell, json.dumps({"status": os.waitstatus_to_exitcode(status)}).encode() + b"\n")
            os._exit(0)


def _lines(told: int) -> list[dict[str, Any]]:
    """Return the lines that have arrived. Lines are shorter than an atomic pipe write, so they arrive whole."""
    try:
        return [json.loads(line) for line in os.read(told, 65536).splitlines()]
    except (BlockingIOError, ValueError):
        return []


def _usage(top: int) -> tuple[int, int]:
    """Return the number of threads of a process and its descendants, and the memory of all."""
    children: dict[int, list[int]] = {}
    sizes: dict[int, tuple[int, int]] = {}
    for pid, fields in _processes():
        children.setdefault(int(fields[1]), []).append(pid)
        sizes[pid] = int(fields[17]), int(fields[21]) * _PAGE
    threads = memory = 0
    todo = [top]
    while todo:
        pid = todo.pop()
        one = sizes.get(pid, (0, 0))
        threads, memory = threads + one[0], memory + one[1]
        todo += children.get(pid, [])
    return threads, memory


def _processes() -> Iterator[tuple[int, list[bytes]]]:
    """Yield process ids, with the fields of /proc/ID/stat after the name.

    https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
    """
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            yield int(entry.name), (entry / "stat").read_bytes().rpartition(b")")[2].split()


def _end_orphans() -> None:
    """Kill orphans: without a process namespace, children that outlived the code were adopted by this process."""
    for _ in range(1000):
        left = [pid for pid, fields in _processes() if int(fields[1]) == os.getpid()]
        if not left:
            return
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _below(settings: dict[str, Any], scratch: Path, limits: confinement.Limits, tell: int) -> None:
    confinement.die_with_parent(0)
    os.setsid()
    os.chdir(scratch)
    writable = [scratch, *map(Path, settings.get("writable", ()))]
    layers = confinement.confine(limits, writable)
    os.write(tell, json.dumps({"layers": layers}).encode() + b"\n")
    for name in settings.get("preload", ()):
        with suppress(Exception):  # a job that needs it gets the error itself
            importlib.import_module(name)
    line = sys.stdin.buffer.readline()
    if not line:
        os._exit(0)  # no job was assigned to this process
    job = json.loads(line)
    os.write(tell, json.dumps({"timeout": job["timeout"]}).encode() + b"\n")
    os.close(tell)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    code = 0
    report = _meet_hosts() or _execute(job["code"], int(settings["result_limit"]))
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    try:
        (scratch / RESULT).write_bytes(json.dumps(report).encode())
    except BaseException:  # the code may have broken everything that is needed here  # noqa: BLE001
        code = 1
    os._exit(code)


def _meet_hosts() -> dict[str, Any]:
    """Join the hosts of a slice into one JAX program; return the error if that fails."""
    if world.read(os.environ).hosts == 1:
        return {}
    try:
        import jax

        jax.distributed.initialize(heartbeat_timeout_seconds=30)
    except Exception as error:  # JAX raises many kinds of errors  # noqa: BLE001
        return {"error": f"the hosts of the slice did not find each other: {error}", "kind": "hosts"}
    return {}


def _execute(code: str, limit: int) -> dict[str, Any]:
    """Run the code and return its `result`, or an error with the line that raised it."""
    names: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__, "logger": _logger()}
    linecache.cache[NAME] = (len(code), None, code.splitlines(keepends=True), NAME)
    try:
        exec(compile(code, NAME, "exec"), names)  # noqa: S102
    except SystemExit as end:
        if end.code not in (None, 0):
            return {"error": f"SystemExit: {end.code}", "kind": "error"}
    except MemoryError as error:
        return {"error": _told(error), "kind": "memory"}
    except BaseException as error:  # the program may raise anything  # noqa: BLE001
        return {"error": _told(error), "kind": "error"}
    try:
        result = names.get("result")
        if (numbers := getattr(result, "size", 0)) and isinstance(numbers, int) and 2 * numbers > limit:
            return {
                "error": f"the result has {numbers:,} numbers, and the limit is {limit:,} bytes",
                "kind": "error",
            }
        text = _text(result)
    except MemoryError as error:
        return {"error": _told(error), "kind": "memory"}
    except BaseException as error:  # the program may raise anything  # noqa: BLE001
        return {"error": f"the result cannot be written as text: {_told(error)}", "kind": "error"}
    if text is not None and len(text.encode("utf-8", "replace")) > limit:
        size = len(text.encode("utf-8", "replace"))
        return {"error": f"the result has {size:,} bytes, and the limit is {limit:,}", "kind": "error"}
    return {"result": text}


def _text(result: Any) -> str | None:
    """Return text as it is, plain data as JSON, and anything else as Python prints it."""
    if result is None or isinstance(result, str):
        return result
    if isinstance(result, (bool, int, float, list, tuple, dict)):
        with suppress(TypeError, ValueError):
            return json.dumps(result)
    if numpy := sys.modules.get("numpy"):  # numpy by default abbreviates large arrays and rounds
        numpy.set_printoptions(threshold=sys.maxsize, floatmode="unique")
    return str(result)


def _told(error: BaseException) -> str:
    """Return the traceback, beginning with the user's first line."""
    try:
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename != NAME:
            frames = frames.tb_next
        text = "".join(traceback.format_exception(type(error), error, frames)).strip()
        return text.removeprefix("Traceback (most recent call last):\n")[-20_000:]
    except BaseException:  # the error may be of any kind  # noqa: BLE001
        return type(error).__name__


def _logger() -> logging.Logger:
    logger = logging.getLogger("tpu_job")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    handler = logging.StreamHandler(io.TextIOWrapper(os.fdopen(os.dup(1), "wb"), errors="replace", line_buffering=True))
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    return logger


if __name__ == "__main__":
    main(Path(sys.argv[1]))
