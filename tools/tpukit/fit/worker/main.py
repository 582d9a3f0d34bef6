"""Run the user's program as its first host would, and write the compiled functions to a file.

    python -c "..." REQUEST.json ANSWER.json

The program's own output goes where the parent sent it, and is not in the answer.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import resource
import runpy
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
"""Number of the request in Linux's <sys/prctl.h>."""


def main() -> None:
    _end_with_parent()
    request_file, answer_file = map(Path, sys.argv[1:3])
    request = json.loads(request_file.read_text(encoding="utf-8"))
    answer = _run(request, answer_file)
    answer["peak_memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    draft = answer_file.with_suffix(".new")
    draft.write_text(json.dumps(answer), encoding="utf-8")
    draft.rename(answer_file)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads of the program wait for steps that never run


def _end_with_parent() -> None:
    """Let the kernel kill this process if its parent dies, which then cannot do so itself."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _run(request: dict[str, Any], answer_file: Path) -> dict[str, Any]:
    began = time.perf_counter()
    import jax

    from tpukit.fit.worker import ahead, changes, devices, making, operations, stopping
    from tpukit.fit.worker.compiling import Compiler

    roots = (request["folder"],)
    progress = answer_file.with_name("progress")

    def note(text: str) -> None:
        progress.write_text(f"{text}\n", encoding="utf-8")

    note("starting the compiler")
    try:
        chips = devices.make(request["topology"], request["slices"], request["bounds"])
    except Exception as error:  # libtpu's error type for an unknown shape varies  # noqa: BLE001
        return {"ended": "topology", "error": {"kind": type(error).__name__, "text": str(error)[:4000], "line": ""}}
    jax.config.update("jax_default_device", jax.devices("cpu")[0])
    devices.install(chips)
    changes.install(request["change"])
    compiler = Compiler(chips, roots, note, request["change"])
    operations.install(frozenset(chips), compiler)
    ahead.install(compiler)
    making.install()
    note("running the program")
    ended, where = "exit", ""
    failure: dict[str, str] | None = None
    try:
        _call(request)
    except stopping.Stop as stop:
        ended, where = str(stop), stopping.place(roots, traceback.extract_tb(stop.__traceback__))
    except SystemExit as end:
        ended = "exit" if not end.code else "failed"
        if end.code:
            text = _masked(str(end.code), request)
            failure = {"kind": "SystemExit", "text": text[:4000], "line": _line(end, roots)}
    except BaseException as raised:  # the program may raise anything  # noqa: BLE001
        ended = "failed"
        failure = {
            "kind": type(raised).__name__,
            "text": _masked(str(raised), request)[:4000],
            "line": _line(raised, roots),
        }
    return {
        "ended": ended,
        "where": where,
        "error": failure,
        "programs": compiler.found,
        "kind": chips[0].device_kind,
        "devices": len(chips),
        "seconds": time.perf_counter() - began,
        "versions": {"jax": jax.__version__, "libtpu": _version("libtpu")},
    }


def _call(request: dict[str, Any]) -> None:
    """Run the program as `python` does with these arguments."""
    words = request["argv"]
    sys.path[:0] = [""] if request["mode"] == "module" else []
    if request["mode"] == "function":
        _call_function(request)
        return
    sys.argv = list(words)
    if request["mode"] == "module":
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        return
    script = str(Path(request["folder"], words[0]).resolve())
    sys.path.insert(0, str(Path(script).parent))
    sys.argv[0] = words[0]
    runpy.run_path(script, run_name="__main__")


def _call_function(request: dict[str, Any]) -> None:
    """Compile the step that a function of the user returns, with its abstract arguments."""
    import jax

    file, _, name = request["argv"][0].partition(":")
    path = Path(request["folder"], file).resolve()
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    step, *arguments = getattr(module, name)()
    if not hasattr(step, "lower"):
        step = jax.jit(step)
    from jax._src import core

    from tpukit.fit.worker.arrays import Carried

    def carried(one: Any) -> Any:
        if isinstance(one, jax.ShapeDtypeStruct):
            return Carried(core.ShapedArray(one.shape, one.dtype), one.sharding)
        return one

    step(*jax.tree.map(carried, arguments))


def _line(error: BaseException, roots: tuple[str, ...]) -> str:
    from tpukit.fit.worker import stopping

    return stopping.place(roots, traceback.extract_tb(error.__traceback__))


def _masked(text: str, request: dict[str, Any]) -> str:
    """Return `text` without values of the job's environment: a program may print them in its errors."""
    for value in request["masked"]:
        text = text.replace(value, "***")
    return text


def _version(name: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
