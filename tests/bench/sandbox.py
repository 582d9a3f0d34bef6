"""Start time and resources of the sandbox, compared with its earlier way to start.

Also measures the commands on a thousand hosts and a hundred jobs. STARTS sets another number of pairs of starts than 3.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from statistics import median

import box_figures
from measure import Pairs, Took, command, environment, in_turn, milliseconds, wall
from rows import Row, as_long, least

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from support import crowd
from tpubox.box import folder
from tpukit.kube import Cluster

NAME = "bench"
STARTS = int(os.environ.get("STARTS", "3"))
LOOKS = 5
SECONDS, MEMORY = 8.0, 1.1
"""Limits of a start with warm programs, in seconds and GiB."""
OF_BEFORE = round(SECONDS / 9.3, 2)
"""Ratio that follows from the limit in seconds, which was set on a machine where the earlier way took 9.3 s."""
ONE_BY_ONE = Path(__file__).resolve().with_name("one_by_one.py")
_PEER = "one by one, no snapshot, no memory limits"


class Starts:
    """A way to start a sandbox, and the figures of each start with it."""

    def __init__(self, argv: list[str], down: list[str], home: Path, cwd: Path) -> None:
        self._argv, self._down, self._home, self._cwd = argv, down, home / "sandbox", cwd
        self._env = {**with_programs(home), "TPUKIT_HOME": str(self._home)}
        self.took: list[Took] = []
        self.memory: list[float] = []

    def one(self) -> float:
        """Start a sandbox, delete it, and return the seconds until it was ready."""
        try:
            took = command(self._argv, env=self._env, cwd=self._cwd, shows=["KUBECONFIG"])
            place = folder.read(self._home / "data" / "sandbox" / NAME)
            self.memory.append(box_figures.memory(place))
            self.took.append(Took(took.wall, took.cpu + sum(box_figures.cpu_seconds(place).values())))
        finally:
            subprocess.run(self._down, env=self._env, capture_output=True, check=False)
        return took.wall


def measure_start(tpu: str, home: Path, cwd: Path) -> list[Row]:
    """Measure, and leave no sandbox behind."""
    down = [tpu, "sandbox", "down", "--name", NAME]
    ours = Starts([tpu, "sandbox", "up", "--addons", "--name", NAME], down, home, cwd)
    theirs = Starts([sys.executable, str(ONE_BY_ONE), NAME], down, home, cwd)
    pairs = in_turn(ours.one, theirs.one, STARTS)
    cpu = Pairs(*(tuple(took.cpu for took in side.took[1:]) for side in (ours, theirs)))
    return start_rows(pairs, cpu, ours.memory[1:], theirs.memory[1:])


def start_rows(pairs: Pairs, cpu: Pairs, ours: list[float], theirs: list[float]) -> list[Row]:
    """Return rows with the least seconds of several starts, which is the least disturbed one.

    On a machine with other users, the ratio of the two ways is more reliable.
    """
    what, seconds = "tpu sandbox up with JobSet and Kueue, programs built", min(pairs.ours)
    result = f"{seconds:.2f} s"
    took = milliseconds(pairs.ours), milliseconds(pairs.theirs)
    held = [f"{median(side):.2f} GiB ({min(side):.2f}–{max(side):.2f})" for side in (ours, theirs)]
    most = f"{max(ours):.2f} GiB at most"
    return [
        Row(f"{what} / {_PEER}", *took, result, f"< {SECONDS:g} s", seconds < SECONDS),
        as_long(f"the same / {_PEER}", pairs, at_most=OF_BEFORE),
        as_long(f"the same, CPU time of all processes / {_PEER}", cpu, at_most=1.0),
        Row(f"sandbox without jobs, memory (PSS) / {_PEER}", *held, most, f"< {MEMORY:g} GiB", max(ours) < MEMORY),
    ]


def measure_lists(tpu: str, home: Path, cwd: Path) -> list[Row]:
    """Measure, and leave no sandbox behind."""
    env = {**with_programs(home), "TPUKIT_HOME": str(home / "sandbox")}
    run = partial(wall, env=env, cwd=cwd)
    try:
        run([tpu, "sandbox", "up", "--addons", "--name", NAME], shows=["KUBECONFIG"])
        kubeconfig = home / "sandbox" / "data" / "sandbox" / NAME / "kubeconfig"
        first = _fill(Cluster(kubeconfig))
        env["KUBECONFIG"] = str(kubeconfig)
        listed = [run([tpu, "job", "list", "--place", "gke", "--all"], shows=[first]) for _ in range(LOOKS)]
        queued = [run([tpu, "team", "queue"], shows=[first]) for _ in range(LOOKS)]
    finally:
        subprocess.run([tpu, "sandbox", "down", "--name", NAME], env=env, capture_output=True, check=False)
    crowded = f"on {crowd.POOLS * crowd.SHAPE.hosts:,} hosts and {crowd.JOBS} JobSets"
    return [
        least(f"tpu job list {crowded}", listed, below=2.0),
        least(f"tpu team queue {crowded}", queued, below=3.0),
    ]


def with_programs(home: Path) -> dict[str, str]:
    """Build the programs once, because the first start without them takes minutes and does not count."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return environment(home, XDG_CACHE_HOME=cache)


def _fill(cluster: Cluster) -> str:
    """Create hosts and jobs, and return the id of one job. Jobs that fit have begun and keep running."""
    crowd.add_hosts(cluster)
    plans = crowd.send_jobs(cluster, ["sleep", "36000"])
    fit = crowd.QUOTA * crowd.SHAPE.hosts
    due = time.monotonic() + 1800.0
    while sum(pod["status"].get("phase") == "Running" for pod in cluster.list("Pod", crowd.TEAM)) < fit:
        if time.monotonic() > due:
            raise SystemExit("bench: the jobs that fit do not run after half an hour: `tpu team queue` says why")
        time.sleep(crowd.LOOK_SECONDS)
    return plans[0].id
