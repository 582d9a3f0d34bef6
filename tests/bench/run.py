"""Measure tpukit against its peers in one run on one machine, and fail when a limit is missed.

    make bench

Peers are installed by name and version into an environment of their own (.bench/), with the interpreter that runs this
script. Ratios are medians over pairs of runs made in turn, with their interval: a limit is missed only if the whole
interval is on its wrong side. Times are medians with the least and the most. `make bench ONLY=start,fleet` measures a
part; `ONLY=sandbox` is every part of the sandbox, `ONLY=drill` every part of the drill.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path

import activations
import box_scale
import cluster_commands
import drill
import drill_figures
import driving
import fit
import fleet
import history
import manager
import provisioner
import queueing
from measure import command, environment, in_turn, wall
from rows import Row, as_long, faster, least_cpu, table

import sandbox

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BENCH = ROOT / ".bench"
HOME = BENCH / "home"
EMPTY = BENCH / "empty"  # working directory of commands, empty so that no file affects them
TPU = str(Path(sys.executable).with_name("tpu"))

SLICES, HOSTS, CHIPS = 2, 2, 4
PAIRS = 21
STARTS = 21
HELLO = ROOT / "examples" / "01-hello-tpu"

JOB = """\
name: bench
tpu: v4-32
slices: 2
command: [python, train.py]
image: us-docker.pkg.dev/project/repository/train:1
workdir: gs://bucket/runs/bench
"""


def main() -> int:
    for folder in (HOME, EMPTY):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    xpk = install_peers()
    print(facts(), flush=True)
    measures: list[tuple[str, Callable[[], list[Row]]]] = [
        ("help", lambda: [measure_help(xpk)]),
        ("render", lambda: [measure_render(xpk)]),
        ("start", lambda: [measure_start()]),
        ("all shapes", lambda: [measure_all_shapes()]),
        ("history", lambda: history.measure(TPU, environment(HOME), HOME / "history", EMPTY, HELLO / "job.yaml")),
        ("manager", lambda: manager.measure(TPU, environment(HOME), HOME / "manager", EMPTY)),
        ("drill", lambda: drill.measure(TPU, environment(HOME), HOME / "drill", EMPTY)),
        ("drill programs", drill_figures.programs),
        ("drill chance", drill_figures.chance),
        ("drill saves", drill_figures.saves),
        ("fit", lambda: fit.measure(TPU, HOME / "fit")),
        ("queue", lambda: queueing.measure(Path(xpk).with_name("python"), environment(HOME), HOME / "queue")),
        ("sandbox start", lambda: sandbox.measure_start(TPU, HOME, EMPTY)),
        ("sandbox lists", lambda: sandbox.measure_lists(TPU, HOME, EMPTY)),
        ("sandbox commands", lambda: cluster_commands.measure(TPU, HOME, EMPTY)),
        ("sandbox pools", lambda: box_scale.measure_pools(HOME / "pools")),
        ("sandbox vms", lambda: box_scale.measure_vms(HOME / "vms")),
        ("provisioner", lambda: provisioner.measure(HOME / "provisioner")),
        ("fleet", lambda: fleet.measure(TPU, environment(HOME), HOME / "fleet", EMPTY)),
        ("activations", lambda: activations.measure(environment(HOME), HOME / "activations")),
        ("driving", lambda: driving.measure(TPU, sandbox.with_programs(HOME), HOME / "driving", EMPTY)),
    ]
    only = [name for name in os.environ.get("ONLY", "").split(",") if name]
    names = [name for name, _ in measures]
    if unknown := [one for one in only if not any(_is_part(name, one) for name in names)]:
        raise SystemExit(f"bench: there is no {', '.join(unknown)}; there are {', '.join(names)}")
    rows = []
    for name, measure in measures:
        if only and not any(_is_part(name, one) for one in only):
            continue
        print(f"measuring: {name}", flush=True)
        rows += measure()
    print()
    print(table(rows))
    return 0 if all(row.met for row in rows) else 1


def _is_part(name: str, wanted: str) -> bool:
    """Match a part by name. `sandbox` and `drill` match all parts with that prefix."""
    return name == wanted or name.startswith(f"{wanted} ")


def install_peers() -> str:
    """Install the peers, and return the xpk command."""
    folder, wanted = BENCH / "peers", (HERE / "peers.txt").read_text(encoding="utf-8")
    done = folder / "installed.txt"
    if not done.exists() or done.read_text(encoding="utf-8") != wanted:
        print("installing peers into .bench/peers (about a minute, once)", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", "-r", str(HERE / "peers.txt")], check=True)
        done.write_text(wanted, encoding="utf-8")
    return str(folder / "bin" / "xpk")


def facts() -> str:
    peer = next(line for line in (HERE / "peers.txt").read_text(encoding="utf-8").splitlines() if "==" in line)
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    busy = "; others keep it busy, so ratios are worth more than times" if load > cores else ""
    machine = f"{cores} cores, {platform.machine()}, {platform.system()} {platform.release()}"
    return (
        f"machine   {machine}, load {load:.1f}{busy}\n"
        f"python    {platform.python_version()}, jax {version('jax')}\n"
        f"measured  tpukit {version('tpukit')}, {peer.replace('==', ' ')}"
    )


def peer_environment() -> dict[str, str]:
    # Telemetry would run in a second process, which takes time from both sides.
    return environment(HOME, TELEMETRY_ENABLED="false")


def our_environment() -> dict[str, str]:
    return environment(HOME, TPUKIT_HOME=str(HOME / "tpukit"))


def measure_help(xpk: str) -> Row:
    ours = partial(wall, [TPU, "--help"], env=our_environment(), cwd=EMPTY, shows=["catalogue"])
    theirs = partial(wall, [xpk, "--help"], env=peer_environment(), cwd=EMPTY, shows=["workload"])
    return faster("tpu --help / xpk --help", in_turn(ours, theirs, PAIRS), at_least=10.0)


def measure_render(xpk: str) -> Row:
    """Render the same job on both sides: two slices of v4-32, which are 2x2x4."""
    job = EMPTY / "job.yaml"
    job.write_text(JOB, encoding="utf-8")
    shows = ["kind: ", "JobSet", "2x2x4", "us-docker.pkg.dev/project/repository/train:1"]
    ours = partial(wall, [TPU, "job", "render", str(job)], env=our_environment(), cwd=EMPTY, shows=shows)
    create = ["workload", "create", "--dry-run", "--skip-validation", "--workload=bench", "--cluster=cluster"]
    where = ["--project=project", "--zone=us-central2-b", "--tpu-type=v4-32", "--num-slices=2"]
    what = ["--command=python train.py", "--docker-image=us-docker.pkg.dev/project/repository/train:1"]
    theirs = partial(wall, [xpk, *create, *where, *what], env=peer_environment(), cwd=EMPTY, shows=shows)
    pairs = in_turn(ours, theirs, PAIRS)
    return faster("tpu job render / xpk workload create --dry-run", pairs, at_least=5.0)


def measure_start() -> Row:
    """Measure the time from the command until the last of four hosts reports its first step."""
    pairs = in_turn(start_by_tpukit, start_by_bare_script, STARTS)
    return as_long(f"tpu run / bare script, to the first step of {SLICES} × {HOSTS} hosts", pairs, at_most=1.2)


def start_by_tpukit() -> float:
    home = HOME / "start"
    shutil.rmtree(home, ignore_errors=True)
    before = time.time()
    command(
        [TPU, "run", str(HELLO / "job.yaml")], env=environment(HOME, TPUKIT_HOME=str(home)), cwd=EMPTY, shows=["hello-"]
    )
    return first_step(list(home.glob("data/runs/*/attempt-0/*/progress"))) - before


def start_by_bare_script() -> float:
    folder = HOME / "bare"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    argv = [sys.executable, str(HERE / "bare.py"), str(SLICES), str(HOSTS), str(CHIPS), str(folder)]
    before = time.time()
    command([*argv, sys.executable, str(HELLO / "hello.py")], env=environment(HOME), cwd=EMPTY, shows=[])
    return first_step([path for path in folder.iterdir() if path.is_file()]) - before


def first_step(reports: list[Path]) -> float:
    """Return when the last host reported the program's only step."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in reports]
    if [report["step"] for report in found] != [1] * (SLICES * HOSTS):
        raise SystemExit(f"bench: not every host reported its first step: {found}")
    return float(max(report["time"] for report in found))


def measure_all_shapes() -> Row:
    argv = [sys.executable, str(HERE / "all_shapes.py")]
    took = [command(argv, env=our_environment(), cwd=EMPTY, shows=["shapes"]) for _ in range(5)]
    return least_cpu("rendering every slice that GKE offers", took, below=5.0)


if __name__ == "__main__":
    sys.exit(main())
