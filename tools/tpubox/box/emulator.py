"""Run Google's APIs of one sandbox: its clusters are the sandbox's own, and their pools become its nodes.

python -m tpubox.box.emulator FOLDER [--project NAME]... [--seconds [TYPE=]SECONDS]...
    [--api NAME]... [--seed NUMBER]
"""

from __future__ import annotations

import argparse
import base64
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

from tpubox.box import folder, memory_limits
from tpubox.box.folder import HOST, Folder
from tpubox.google.wire.server import Emulator
from tpubox.google.wire.settings import Hooks, Log, Pool, Settings
from tpubox.kubelet.agent_client import AgentClient
from tpubox.kubelet.archive import printed
from tpubox.kubelet.nodes import FILE, Presence, written
from tpubox.pools import kwok_pools, pool_adapter
from tpubox.pools.autoscaler import Autoscaler
from tpubox.pools.preemptions import Preemptions
from tpukit.core.clock import SystemClock
from tpukit.core.errors import TpukitError, Transient
from tpukit.kube import Cluster

ENVIRONMENT = "environment.json"
"""The file below google/ with the variables that point Google's tools to this emulator."""


PATIENCE_SECONDS, PAUSE_SECONDS = 300.0, 0.3
"""Retry limits: GKE does not abandon a pool because an API server is late once."""
_STATUSES = {Presence.LEAVING: "STOPPING", Presence.AWAY: "TERMINATED"}
"""States of machines in Compute Engine, by the presence of their pool."""


def agent(place: Folder) -> AgentClient:
    return AgentClient(place.url("agent"), place.token, place.certificates("cluster") / "ca.crt")


def main(argv: list[str] | None = None) -> int:
    memory_limits.keep()
    words = argparse.ArgumentParser(prog="python -m tpubox.box.emulator", description=__doc__)
    words.add_argument("folder", type=Path)
    words.add_argument("--project", action="append", help="a project that exists; may be repeated")
    words.add_argument(
        "--seconds", action="append", default=[], help="seconds that operations take, of one type or all others"
    )
    words.add_argument(
        "--api",
        action="append",
        help="an API that is enabled from the start; '*': all (default: those of a new project)",
    )
    words.add_argument("--seed", type=int, default=0, help="seed of the random faults")
    words.add_argument("--operations", type=int, help="operations that GKE allows at once in one cluster")
    said = words.parse_args(argv)
    place = folder.read(said.folder)
    authority = (place.certificates("cluster") / "ca.crt").read_bytes()
    settings = Settings(
        projects=tuple(said.project or Settings().projects),
        seconds={kind: float(value) for kind, _, value in (each.rpartition("=") for each in said.seconds)},
        seed=said.seed,
        cluster_operations=said.operations or Settings().cluster_operations,
        enabled=tuple(said.api or Settings().enabled),
        kubernetes=f"{HOST}:{place.ports['kube-apiserver']}",
        kubernetes_ca=base64.b64encode(authority).decode(),
        own_cluster=f"sandbox-{place.name}",
    )
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    try:
        with Emulator(place.path / "google", settings, port=place.ports["google"], hooks=_hooks(place)) as emulator:
            variables = {**emulator.environment(), "STORAGE_EMULATOR_HOST": emulator.storage_host}
            folder.write(place.path / "google" / ENVIRONMENT, json.dumps(variables, indent=1))
            preemptions = Preemptions(
                emulator.cloud, partial(written, place.path / "agent" / FILE), agent(place).restore
            )
            threading.Thread(target=preemptions.run, args=(over,), name="preemptions", daemon=True).start()
            Autoscaler(emulator.cloud, partial(Cluster, place.kubeconfig)).run(over)
    except TpukitError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _hooks(place: Folder) -> Hooks:
    client, cluster = agent(place), cache(partial(Cluster, place.kubeconfig))

    def created(pool: Pool) -> None:
        if not pool.nodes:
            client.remove_pool(pool.full_name, budgets=True)  # the pool shrank to zero nodes
        elif kwok_pools.is_simulated(made := pool_adapter.of_google(pool)):
            kwok_pools.add(cluster(), made)
        else:
            client.add_pool(made)

    def deleted(pool: Pool) -> None:
        if pool.nodes and kwok_pools.is_simulated(made := pool_adapter.of_google(pool)):
            kwok_pools.remove(cluster(), made, SystemClock(), budgets=pool.keeps_budgets)
        else:
            client.remove_pool(pool.full_name, budgets=pool.keeps_budgets)

    return Hooks(
        on_pool_created=patiently(created),
        on_pool_deleted=patiently(deleted),
        logs=partial(logs, place.path / "agent"),
        not_running=partial(not_running, place.path / "agent"),
    )


def patiently(
    work: Callable[[Pool], None], seconds: float = PATIENCE_SECONDS, pause: float = PAUSE_SECONDS
) -> Callable[[Pool], None]:
    """Wrap `work` so that transient errors are retried until `seconds` have passed."""

    def again(pool: Pool) -> None:
        due = time.monotonic() + seconds
        while True:
            try:
                return work(pool)
            except Transient:
                if time.monotonic() >= due:
                    raise
                time.sleep(pause)

    return again


def not_running(folder: Path, full_name: str) -> dict[str, str]:
    """Return the hosts of a pool that are preempted, about to be, or lost.

    The node agent records them in this folder; asking the agent may take long.
    """
    for record in written(folder / FILE):
        if record.pool.key == full_name:
            status = None if record.removed else _STATUSES.get(record.presence)  # a drained node still runs
            going = dict.fromkeys(record.pool.nodes, status) if status else {}
            return going | dict.fromkeys(record.lost, "TERMINATED")
    return {}


def logs(folder: Path) -> Iterator[Log]:
    """Yield the output of pods that the node agent of this folder holds."""
    for one in printed(folder):
        yield Log(
            namespace=one.namespace,
            pod=one.pod,
            container=one.container,
            id=f"{one.uid}-{one.container}-{one.run}-{one.file:04d}",
            labels=one.labels,
            node=one.node,
            zone=one.node_labels.get("topology.kubernetes.io/zone", ""),
            paths=one.paths,
        )


if __name__ == "__main__":
    raise SystemExit(main())
