"""Run one worker of a fleet: `python -m tpukit.host.worker`, on a bare TPU VM or anywhere.

    python -m tpukit.host.worker --gcs-bucket BUCKET --program extract.py:make --option model=Qwen/Qwen2.5-0.5B

It prepares the machine (the same requirements are installed only once), then takes streams of the dataset one by one
until none is left, and makes shards of each (see shards.py). It can be killed at any moment; restarted, here or
elsewhere, it continues after the last existing shard. Unreadable samples and damaged streams are skipped and named.
Exit codes: 0 nothing is left, 1 it cannot continue now and reports why, 75 the program made no progress, 78 no launch
can help (no such function, a missing package, no permission, a damaged stream), 143 stopped by SIGTERM.

`--program FILE.py:NAME` or `MODULE:NAME` is a function `make(options, report)` that loads what it needs and returns a
function from the samples of a shard to its bytes; it calls `report(n)` after n samples of the shard. Its attribute
`suffix` is the suffix of shard names.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.util
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tpukit.host import bucket, shards, stream_claims
from tpukit.host.bucket import Files
from tpukit.host.progress import Progress
from tpukit.host.shards import Disagreement, Extraction, Program, Run, Stream, Superseded

STUCK = 75
PERMANENT = 78
TERMINATED = 143
WAIT_SECONDS = 5.0
LOOKS = 20
"""Number of claims that are read in a row."""
log = logging.getLogger("tpukit.worker")
_HOPELESS = re.compile(
    r"ERROR: (?:No matching distribution|Invalid requirement|Could not find a version|Cannot install)"
)
_OFFLINE = re.compile(r"Retrying|connection|timed out|Temporary failure", re.IGNORECASE)


def main(argv: Sequence[str]) -> int:
    options = _options(argv)
    _log_to(options.log)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        if options.requirements:
            set_up(options.requirements, options.home, force=options.force)
        return _work(options)
    except (Disagreement, PermissionError, ImportError) as error:
        return _give_up(str(error))
    except OSError as error:
        return _give_up(str(error), 1)
    except Exception as error:
        log.exception("the program failed")
        return _give_up(f"{type(error).__name__}: {error}", 1)


def _give_up(why: str, code: int = PERMANENT) -> int:
    """Report why the worker ends. With the default code no launch can help, and the driver does not retry."""
    log.error("%s", why)
    report = Progress(os.environ.get("TPUKIT_PROGRESS", ""))
    report.update({"error": why})
    report.flush()
    return code


def set_up(requirements: Path, home: Path, *, force: bool) -> bool:
    """Install the requirements, unless the same file was installed before; return whether it was necessary."""
    wanted = requirements.read_bytes()
    key = hashlib.sha256(sys.prefix.encode() + b"\0" + wanted).hexdigest()[:16]
    done = home / "setup" / f"requirements-{key}"
    if done.exists() and not force:
        return False
    log.info("installing %s", requirements)
    command = [sys.executable, "-m", "pip", "install", "--requirement", str(requirements)]
    _install([*command, *(["--force-reinstall"] if force else [])])
    done.parent.mkdir(parents=True, exist_ok=True)
    done.write_bytes(wanted)
    return True


def _install(command: Sequence[str]) -> None:
    """Run pip with its output in the log. Raise Disagreement if no launch can help: there is no such package."""
    said: deque[str] = deque(maxlen=200)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        for line in pip.stdout or ():
            sys.stdout.write(line)
            said.append(line.strip())
    if not pip.returncode:
        return
    errors = [line for line in said if line.startswith("ERROR: ")] or [*said][-1:]
    words = f"requirements: {errors[-1] if errors else f'pip ended with exit code {pip.returncode}'}"
    # Without a network pip finds no version of any package, and reports that after its retries.
    if any(map(_HOPELESS.match, said)) and not any(map(_OFFLINE.search, said)):
        raise Disagreement(words)
    raise ChildProcessError(words)


def load(name: str) -> Callable[[Mapping[str, str], Callable[[int], None]], Program]:
    """Return the function of a module, or of a file."""
    where, _, function = name.rpartition(":")
    if not where.endswith(".py"):
        module = importlib.import_module(where)
    else:
        path = Path(where).resolve()
        sys.path.insert(0, str(path.parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        try:
            spec.loader.exec_module(module)
        except (SyntaxError, NameError, TypeError, AttributeError) as error:
            raise Disagreement(f"{path.name}: {type(error).__name__}: {error}") from error
    if not callable(made := getattr(module, function, None)):
        raise Disagreement(f"{Path(where).name} has no function {function}")
    return made  # type: ignore[no-any-return]


def _work(options: argparse.Namespace) -> int:
    data, output = bucket.opened(options.data), bucket.opened(options.output)
    manifest = data.read("streams.json")
    if manifest is None:
        raise Disagreement(f"{options.data} has no streams.json: run `tpu fleet deploy` to upload the dataset")
    every = [Stream(one["name"], one["samples"], one["sha256"]) for one in json.loads(manifest[0])["streams"]]
    wanted = {Path(name).name for name in options.dataset_stream}
    chosen = [stream for stream in every if not wanted or stream.name in wanted]
    if unknown := wanted - {stream.name for stream in every}:
        raise Disagreement(f"there is no {', '.join(sorted(unknown))} in {options.data}")
    make = load(options.program)
    given = dict(pair.split("=", 1) for pair in options.option)
    suffix, name = getattr(make, "suffix", ".bin"), Path(options.program).name
    run = Run(options.shard_samples, suffix, name, given, digest_of(every))
    run.agree(output)
    return Worker(options, data, output, run).work(chosen, make, given)


def digest_of(streams: Sequence[Stream]) -> str:
    """Return the digest of a dataset, regardless of where it was split."""
    lines = [f"{stream.name} {stream.samples} {stream.sha256}" for stream in streams]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


class Worker:
    """A worker that takes streams until all are done."""

    def __init__(self, options: argparse.Namespace, data: Files, output: Files, run: Run) -> None:
        self._options, self._data, self._output, self._run = options, data, output, run
        self._claims = stream_claims.Claims(output, options.worker, seconds=options.claim_seconds)
        self._progress = Progress(os.environ.get("TPUKIT_PROGRESS", ""), lines=30.0)
        self._samples = self._shards = 0  # of streams that this process has finished
        self._broken: dict[str, str] = {}  # streams that cannot be done, and why
        self._program: Program | None = None
        self._moved: Callable[[], None] = lambda: None

    def work(self, streams: Sequence[Stream], make: Callable[..., Program], given: Mapping[str, str]) -> int:
        first = self._options.first
        while left := self._left(streams):
            # Workers begin at different streams, to avoid wanting the same, and look at some at a time: each look is a
            # request, and at the end all of them look.
            at = first % len(left)
            if not any(self._extract(stream, make, given) for stream in [*left[at:], *left[:at]][:LOOKS]):
                first += LOOKS  # other workers have these; one of them may be lost
                time.sleep(min(WAIT_SECONDS, self._options.claim_seconds / 4))
                self._report(0, 0)
        if self._broken:
            return _give_up("; ".join(dict.fromkeys(self._broken.values())))
        log.info("all %d streams are done", len(streams))
        self._progress.flush()
        return 0

    def _left(self, streams: Sequence[Stream]) -> list[Stream]:
        done = shards.completed(self._output)
        return [stream for stream in streams if stream.checkpoint not in done and stream.name not in self._broken]

    def _extract(self, stream: Stream, make: Callable[..., Program], given: Mapping[str, str]) -> bool:
        """Extract a stream, and return whether it is done; False if another worker has it."""
        if not self._claims.take(stream.name):
            return False
        options, done = self._options, (0, 0)
        renewing = stream_claims.Renewing(self._claims, options.claim_seconds / 3, options.patience, _leave)
        self._moved = renewing.moved

        def check() -> None:
            if renewing.lost.is_set():
                raise Superseded(f"{stream.name} was taken by another worker")

        def made(count: int, samples: int) -> None:
            nonlocal done
            done = count, samples
            renewing.moved()
            self._report(*done)

        try:
            with renewing:
                if self._program is None:
                    self._program = make(given, lambda _: self._moves())
                    renewing.moved()
                log.info("working on %s", stream.name)
                dataset = f"{options.data.rstrip('/')}/{stream.name}"
                work = Extraction(self._data, self._output, stream, self._run, options.worker, dataset, options.home)
                work.work(self._program, check, made)
                self._warn(stream, work.left_out)
        except (Disagreement, FileNotFoundError) as error:  # the other streams continue
            log.error("%s is left out: %s", stream.name, error)
            self._broken[stream.name] = str(error)
            return True
        except Superseded as error:
            log.info("%s", error)
            return False
        finally:
            self._claims.release()
        self._shards, self._samples = self._shards + done[0], self._samples + done[1]
        log.info("%s is done: %d samples, %d shards", stream.name, done[1], done[0])
        return True

    def _warn(self, stream: Stream, left_out: int) -> None:
        if left_out:
            words = f"unreadable samples of {stream.name}, which are left out: {left_out}"
            self._progress.update({"warning": words})

    def _moves(self) -> None:
        """Record that the program makes progress between two shards."""
        self._moved()
        self._progress.update({})

    def _report(self, count: int, samples: int) -> None:
        values: dict[str, Any] = {"step": self._samples + samples, "shards": self._shards + count}
        self._progress.update(values)


def _leave() -> None:
    log.error("the program made no progress for too long: exiting, so that it is restarted")
    logging.shutdown()
    os._exit(STUCK)


def _log_to(file: Path | None) -> None:
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stdout)]
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(logging.FileHandler(file))
    logging.basicConfig(level=logging.INFO, handlers=handlers, format="%(asctime)s %(message)s", force=True)


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tpukit.host.worker", description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--gcs-bucket", default="", help="bucket with datasets/ and activations/")
    add("--data", default="", help="folder of streams, gs:// or local (default: gs://BUCKET/datasets)")
    add("--output", default="", help="folder for shards (default: gs://BUCKET/activations)")
    add("--dataset-stream", action="append", default=[], help="work on this stream alone; may be given again")
    add("--program", required=True, help="FILE.py:NAME or MODULE:NAME")
    add("--option", action="append", default=[], metavar="NAME=VALUE", help="for the program; may be given again")
    add("--model", default="", help="short for --option model=...")
    add("--shard-samples", type=int, default=1000, help="samples in each shard")
    add("--worker", default=os.environ.get("TPUKIT_JOB") or socket.gethostname(), help="name of this worker")
    add("--first", type=int, default=int(os.environ.get("TPUKIT_FLEET_WORKER") or 0), help="stream to begin with")
    add("--patience", type=float, default=1800.0, help="seconds that the program may not move")
    add(
        "--claim-seconds",
        type=float,
        default=stream_claims.SECONDS,
        help="after which the stream of a lost worker is free",
    )
    add("--requirements", type=Path, help="installed first, unless that was done before")
    add("--force", action="store_true", help="install again")
    add("--home", type=Path, default=Path("~/.tpukit/worker").expanduser(), help="folder for drafts and marks")
    add("--log", type=Path, help="file for a copy of the output (default: HOME/worker.log)")
    options = parser.parse_args([_dashed(word) for word in argv])
    if not options.gcs_bucket and not (options.data and options.output):
        parser.error("name --gcs-bucket, or --data and --output")
    root = options.gcs_bucket if options.gcs_bucket.startswith("gs://") else f"gs://{options.gcs_bucket}"
    options.data = options.data or f"{root}/datasets"
    options.output = options.output or f"{root}/activations"
    options.option += [f"model={options.model}"] if options.model else []
    options.log = options.log or options.home / "worker.log"
    options.home.mkdir(parents=True, exist_ok=True)
    if bad := [pair for pair in options.option if "=" not in pair]:
        parser.error(f"--option {bad[0]}: write NAME=VALUE")
    if options.shard_samples < 1:
        parser.error("--shard-samples: at least 1")
    return options


def _dashed(word: str) -> str:
    """Return a flag with dashes: shell scripts write --gcs_bucket."""
    name, equals, value = word.partition("=")
    return f"{name.replace('_', '-')}{equals}{value}" if word.startswith("--") else word


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
