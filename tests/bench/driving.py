"""One `tpu serve` that drives jobs: its API requests, its use of this machine, and the cost of an unreachable cluster.

The last part measures how much a second, unreachable cluster delays the jobs of the first.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import kubelet
import running_jobs
from history import cpu_seconds, until_ready
from measure import in_turn
from rows import Row, below, longer_by
from running_jobs import Size

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tpubox.box.folder import read
from tpukit.jobs.plan import ClusterName, Plan
from tpukit.jobs.records import JOBS
from tpukit.kernel.store.sqlite import SqliteStore

FULL = Size(200, "v4-512")
NAME = "driving"
SENDER = "bench"
KINDS = 4  # JobSets, Workloads, Jobs, pods
LOG_READS = 20.0  # per second and cluster
STEADY_SECONDS = 60.0
FEW = 20  # jobs beside the unreachable cluster
DEAD = "dead"
PAIRS, PAIR_SECONDS = 4, 12.0
_PATIENCE = 300.0
_LOG = 'verb="get",resource="pods/log"'


def measure(tpu: str, env: Mapping[str, str], home: Path, cwd: Path, size: Size = FULL) -> list[Row]:
    """Measure, and leave no sandbox behind."""
    shutil.rmtree(home, ignore_errors=True)
    env = {**env, "TPUKIT_HOME": str(home)}

    def sandbox(*words: str) -> None:
        argv = [tpu, "sandbox", *words, "--name", NAME]
        subprocess.run(argv, env=env, cwd=cwd, check=True, capture_output=True, stdin=subprocess.DEVNULL)

    try:
        sandbox("up", "--addons")
        place = read(home / "data" / "sandbox" / NAME)
        kubeconfig = place.kubeconfig.read_text(encoding="utf-8")
        context = re.findall(r'"?current-context"?: *"?([\w-]+)', kubeconfig)[0]
        with kubelet.serve(place.certificates("cluster")) as port, _silent_server() as dead:
            began = time.monotonic()
            store = _store(home)
            plans = running_jobs.fill(place, store, SENDER, size, context, port)
            store.close()
            print(f"  {size} run after {time.monotonic() - began:.0f} s", flush=True)
            env["KUBECONFIG"] = str(_with_dead_cluster(home, kubeconfig, dead))
            return [*_steady(tpu, env, cwd, size, context), _unreachable(tpu, env, home, cwd, plans, context, dead)]
    finally:
        subprocess.run(
            [tpu, "sandbox", "down", "--name", NAME], env=env, cwd=cwd, capture_output=True, stdin=subprocess.DEVNULL
        )
        shutil.rmtree(home, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Sample:
    """The figures of a `tpu serve` at one moment."""

    at: float
    cpu: float
    rounds: float
    requests: float  # excludes those for logs
    log_reads: float


class Serving:
    def __init__(self, process: subprocess.Popen[str], port: int, group: str) -> None:
        self.process, self._port, self._group = process, port, group

    def sample(self) -> Sample:
        found = self.metrics()
        requests = {name: value for name, value in found.items() if name.startswith("tpukit_api_requests_total{")}
        logs = sum(value for name, value in requests.items() if _LOG in name)
        rounds = found.get(f'tpukit_round_seconds_count{{group="{self._group}"}}', 0.0)
        return Sample(time.monotonic(), cpu_seconds(self.process.pid), rounds, sum(requests.values()) - logs, logs)

    def metrics(self) -> dict[str, float]:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{self._port}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}

    def until(self, true: Callable[[dict[str, float]], bool]) -> None:
        due = time.monotonic() + _PATIENCE
        while not true(self.metrics()):
            if time.monotonic() > due or self.process.poll() is not None:
                raise SystemExit(f"bench: `tpu serve` does not drive its jobs after {_PATIENCE:.0f} s")
            time.sleep(0.5)

    def until_round(self, more: int) -> None:
        first = self.sample().rounds
        self.until(lambda _: self.sample().rounds >= first + more)

    def most_memory(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")))


@contextmanager
def _serving(tpu: str, env: Mapping[str, str], cwd: Path, group: str) -> Iterator[Serving]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = [tpu, "serve", "--port", str(port)]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process: subprocess.Popen[str] = subprocess.Popen(argv, env=env, cwd=cwd, **quiet)  # type: ignore[call-overload]
    try:
        until_ready(port)
        yield Serving(process, port, f"gke {group}")
    finally:
        process.terminate()
        process.wait()


def _steady(tpu: str, env: Mapping[str, str], cwd: Path, size: Size, context: str) -> list[Row]:
    with _serving(tpu, env, cwd, context) as serving:
        serving.until(lambda found: found.get('tpukit_jobs_active{state="running"}', 0.0) >= size.jobs)
        serving.until_round(3)
        before = serving.sample()
        time.sleep(STEADY_SECONDS)
        after = serving.sample()
        memory = serving.most_memory() / 1e6
    seconds, rounds = after.at - before.at, after.rounds - before.rounds
    cpu = after.cpu - before.cpu
    requests = (after.requests - before.requests) / rounds
    reads = (after.log_reads - before.log_reads) / seconds
    print(f"  a round each {seconds / rounds:.2f} s", flush=True)
    most = KINDS * len(running_jobs.TEAMS)
    what = f"tpu serve, {size}"
    return [
        below(f"{what} in {len(running_jobs.TEAMS)} namespaces: requests a round", requests, "", most + 1),
        below(f"{what}: reads of logs", reads, "/s", LOG_READS + 1),
        below(f"{what}: CPU", cpu / seconds, " cores", 1.0, digits=2),
        # A busy machine delays rounds, which looks like little work, so the cost of one round counts.
        below(f"{what}: CPU of a round", cpu / rounds, " s", 1.0, digits=2),
        below(f"{what}: most memory", memory, " MB", 300.0, digits=0),
    ]


def _unreachable(
    tpu: str, env: Mapping[str, str], home: Path, cwd: Path, plans: Sequence[Plan], context: str, dead: int
) -> Row:
    """Compare the time between rounds of the healthy cluster's jobs, with and without jobs on the other."""
    few, alone, both = plans[:FEW], home / "alone", home / "both"
    _copy_records(home, alone, few, ())
    silent = [_elsewhere(one, dead) for one in few]
    _copy_records(home, both, few, silent)

    def seconds(folder: Path, silent: int) -> float:
        with _serving(tpu, {**env, "TPUKIT_HOME": str(folder)}, cwd, context) as serving:
            serving.until_round(3)
            before = serving.sample()
            time.sleep(PAIR_SECONDS)
            after = serving.sample()
            found = serving.metrics()
        waiting = found['tpukit_jobs_active{state="scheduled"}']
        if found['tpukit_jobs_active{state="running"}'] != len(few) or waiting != silent:
            raise SystemExit(f"bench: {len(few)} jobs are to run and {silent} to wait: {found}")
        return (after.at - before.at) / max(1.0, after.rounds - before.rounds)

    pairs = in_turn(lambda: seconds(both, len(silent)), lambda: seconds(alone, 0), PAIRS)
    return longer_by(f"a round of {len(few)} jobs while another cluster is silent / without it", pairs, below=1.0)


def _store(home: Path) -> SqliteStore:
    (home / "state").mkdir(parents=True, exist_ok=True)
    (home / "state" / "sender").write_text(SENDER, encoding="ascii")
    return SqliteStore(home / "state" / "store.db")


def _copy_records(source: Path, target: Path, plans: Sequence[Plan], silent: Sequence[Plan]) -> None:
    old, new = SqliteStore(source / "state" / "store.db"), _store(target)
    for one in plans:
        new.create(JOBS, one.id, old.get(JOBS, one.id).value)
    for one in silent:
        new.create(JOBS, one.id, running_jobs.record(one))
    old.close(), new.close()


def _elsewhere(made: Plan, port: int) -> Plan:
    from dataclasses import replace

    return replace(made, id=f"dead-{made.id}", target=ClusterName(DEAD, f"https://127.0.0.1:{port}", "nobody"))


def _with_dead_cluster(home: Path, kubeconfig: str, port: int) -> Path:
    """Write the sandbox's kubeconfig with a second context, whose server accepts connections and never answers."""
    import yaml

    config = yaml.safe_load(kubeconfig)
    config["clusters"].append({"name": DEAD, "cluster": {"server": f"https://127.0.0.1:{port}"}})
    config["users"].append({"name": DEAD, "user": {"token": DEAD}})
    config["contexts"].append({"name": DEAD, "context": {"cluster": DEAD, "user": DEAD}})
    file = home / "kubeconfig"
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    return file


@contextmanager
def _silent_server() -> Iterator[int]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(1024)
        yield server.getsockname()[1]
