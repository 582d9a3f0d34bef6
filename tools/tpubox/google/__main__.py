"""Run the emulator by itself: `python -m tpubox.google --folder FOLDER --port 0`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from pathlib import Path

from tpubox.google.wire.server import Emulator
from tpubox.google.wire.settings import Settings
from tpukit.core.errors import TpukitError


def main(argv: list[str] | None = None) -> int:
    words = argparse.ArgumentParser(prog="python -m tpubox.google", description=__doc__)
    words.add_argument("--folder", type=Path, required=True, help="where it keeps everything; made if it is not there")
    words.add_argument("--port", type=int, default=0, help="0: the one of last time, else any that is free")
    words.add_argument("--project", action="append", help="a project that exists; may be repeated (tpu-project)")
    words.add_argument(
        "--seconds",
        action="append",
        default=[],
        metavar="[TYPE=]SECONDS",
        help="how long operations take, those of one type or all others",
    )
    words.add_argument(
        "--api",
        action="append",
        help="an API that is on from the beginning; '*': all; those of a new project if left out",
    )
    words.add_argument("--seed", type=int, default=0, help="seed of the random faults")
    said = words.parse_args(argv)
    try:
        settings = Settings(
            projects=tuple(said.project or ("tpu-project",)),
            seconds={kind: float(value) for kind, _, value in (each.rpartition("=") for each in said.seconds)},
            seed=said.seed,
            enabled=tuple(said.api or Settings().enabled),
        )
        emulator = Emulator(said.folder, settings, port=said.port).start()
    except ValueError as error:
        words.error(f"--seconds: {error}")
    except TpukitError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    told = {
        "address": emulator.address,
        "token": emulator.token,
        "storage_emulator_host": emulator.storage_host,
        "environment": emulator.environment(),
    }
    print(json.dumps(told), flush=True)
    over.wait()
    emulator.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
