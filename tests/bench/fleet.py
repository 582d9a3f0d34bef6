"""A fleet of a thousand TPU VMs, and a dataset larger than memory.

$SPLIT_GB sets the size of the dataset in GB (default: 10).
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from measure import Pairs, command
from rows import Row, as_long, at_most, below, least_cpu
from tpu_api import TpuApi

WORKERS, TIMES, PAIRS, STREAMS = 1_000, 7, 3, 64
ZONES = ("us-central1-a", "us-central1-b", "us-central1-c", "us-central1-f")
PROJECT, BUCKET = "bench-project", "bench-data"
SPLIT = "import sys; from pathlib import Path; from tpukit.fleet import streams; "
SPLIT += "streams.split([Path(sys.argv[1])], Path(sys.argv[2]), int(sys.argv[3])); import resource; "
SPLIT += "print(max(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, *("
SPLIT += "int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmHWM'))))"


def measure(tpu: str, env: Mapping[str, str], home: Path, cwd: Path) -> list[Row]:
    """Measure the fleet. `home` is an empty $TPUKIT_HOME."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    try:
        return [*_status(tpu, env, home, cwd), *_split(env, home / "split")]
    finally:
        shutil.rmtree(home)


def _split(env: Mapping[str, str], folder: Path) -> list[Row]:
    """Compare with GNU's split, which also deals lines out in turn, but makes no checksums.

    Both outputs are on the disk at the end. A copy of the same bytes shows the speed of the disk.
    """
    folder.mkdir()
    gigabytes = float(os.environ.get("SPLIT_GB", "10"))
    source, copy, dealt, streams = (folder / name for name in ("data.jsonl", "copy", "dealt", "streams"))
    _write_samples(source, int(gigabytes * 1e9))
    argv = [sys.executable, "-c", SPLIT, str(source), str(streams), str(STREAMS)]
    times, memory, cpu, disk = [], 0.0, float("inf"), float("inf")
    for number in range(PAIRS):
        runs = {}
        for which in ("ours", "theirs") if number % 2 == 0 else ("theirs", "ours"):
            shutil.rmtree(streams, ignore_errors=True)
            shutil.rmtree(dealt, ignore_errors=True)
            os.sync()
            if which == "ours":
                runs[which], used, peak = _run(argv, env)
                memory, cpu = max(memory, peak), min(cpu, used)
            else:
                dealt.mkdir()
                runs[which] = _run(["split", "-n", f"r/{STREAMS}", str(source), f"{dealt}/"], env)[0]
                runs[which] += _run(["sync", *map(str, dealt.iterdir())], env)[0]
        copied = _run(["cp", "--reflink=never", str(source), str(copy)], env)[0] + _run(["sync", str(copy)], env)[0]
        disk = min(disk, copied)
        copy.unlink()
        times.append((runs["ours"], runs["theirs"]))
    pairs = Pairs(*(tuple(side) for side in zip(*times, strict=True)))
    return [
        as_long(f"{gigabytes:g} GB of JSONL into {STREAMS} streams with checksums / split", pairs, at_most=1.5),
        at_most("that, as many times as long as a copy of the bytes", min(pairs.ours) / disk, "×", 3),
        below("peak memory of each process of that", memory, " MB", 128, digits=0),
        below("CPU of that for each GB", cpu / gigabytes, " s", 4),
    ]


def _run(argv: Sequence[str], env: Mapping[str, str]) -> tuple[float, float, float]:
    """Return wall-clock seconds, CPU seconds and the process's own peak memory in megabytes.

    The figure of the operating system includes the memory of the parent process.
    """
    before = time.perf_counter()
    process = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as printed:
        kilobytes = printed.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"bench: {argv[0]}: exit code {process.returncode}")
    return time.perf_counter() - before, used.ru_utime + used.ru_stime, int(kilobytes or 0) / 1024


def _write_samples(file: Path, size: int) -> None:
    """Write lines of varying length, as in texts, repeating the same lines."""
    draw = random.Random(0)
    letters = "".join(draw.choices("abcdefghij klmnop", k=4000))
    lines = [json.dumps({"id": number, "text": letters[: draw.randint(50, 4000)]}) for number in range(8000)]
    block = "".join(f"{line}\n" for line in lines).encode()
    with file.open("wb") as opened:
        for _ in range(max(1, size // len(block))):
            opened.write(block)
        opened.flush()
        os.fsync(opened.fileno())


def _status(tpu: str, env: Mapping[str, str], home: Path, cwd: Path) -> list[Row]:
    settings = home / "settings.yaml"
    settings.write_text(f"project: {PROJECT}\nzone: {ZONES[0]}\n", encoding="utf-8")
    with TpuApi(home / "google", PROJECT, {zone: _nodes(zone) for zone in ZONES}) as cloud:
        own = {"TPUKIT_HOME": str(home), "TPUKIT_SETTINGS": str(settings), **cloud.environment()}
        _fill(cloud)
        cloud.lists = 0
        argv = [tpu, "fleet", "status", "--name", "tpu", "--gcs-bucket", BUCKET]
        shows = [f"{WORKERS} workers: healthy {WORKERS}", f"{WORKERS * 1000} samples"]
        took = [
            command(argv, env={**env, **own, "STORAGE_EMULATOR_HOST": cloud.address}, cwd=cwd, shows=shows)
            for _ in range(TIMES)
        ]
        calls = cloud.lists / TIMES / len(ZONES)
    return [
        least_cpu(f"tpu fleet status, {WORKERS:,} workers in {len(ZONES)} zones", took, below=3.0),
        at_most("list calls of that for each zone", calls, "", 1, digits=2),
    ]


def _fill(cloud: TpuApi) -> None:
    """Fill a bucket with shards that every worker has made of a stream."""
    os.environ["STORAGE_EMULATOR_HOST"] = cloud.address
    try:
        from tpukit.fleet import wanted
        from tpukit.fleet.records import Work
        from tpukit.fleet.wanted import Plan
        from tpukit.host.bucket import opened

        body = json.dumps({"name": BUCKET}).encode()
        request = urllib.request.Request(f"{cloud.address}/storage/v1/b?project={PROJECT}", data=body, method="POST")
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request).close()
        root = f"gs://{BUCKET}"
        work = Work(f"{root}/datasets", f"{root}/activations", "extract.py:make", code="c0de", archive="code")
        wanted.save(Plan("tpu", list(ZONES), WORKERS // len(ZONES), "v3-8", work=work), root)
        files = opened(work.output)
        for number in range(WORKERS):
            maker = f"tpu-{ZONES[number % len(ZONES)]}-{number // len(ZONES)}"
            about = {"samples": "1000", "shards": "10", "made": json.dumps({maker: [10, 1000]})}
            files.replace(f"checkpoints/stream_{number:03d}.json", b"{}", "", about)
    finally:
        del os.environ["STORAGE_EMULATOR_HOST"]


def _nodes(zone: str) -> list[dict[str, Any]]:
    """Build nodes in the form in which Google lists them."""
    return [
        {
            "name": f"projects/{PROJECT}/locations/{zone}/nodes/tpu-{zone}-{number}",
            "acceleratorType": "v3-8",
            "state": "READY",
            "health": "HEALTHY",
            "id": f"{ZONES.index(zone)}{number:04d}",
            "networkEndpoints": [{"ipAddress": f"10.0.{number >> 8}.{number & 255}", "port": 8470}],
            "schedulingConfig": {"spot": True},
            "metadata": {"ssh-keys": "ada:ssh-ed25519 AAAA"},
            "labels": {"tpukit-fleet": "tpu", "tpukit-fleet-worker": f"{zone}-{number}"},
        }
        for number in range(WORKERS // len(ZONES))
    ]
