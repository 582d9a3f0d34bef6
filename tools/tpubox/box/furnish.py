"""Setup of a fresh sandbox for jobs: slices, a CPU pool, queues over them, a team and a bucket.

On Google Cloud Terraform makes all this, and it can do so in a sandbox too. This is the short way, for a first try.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count

from tpubox.box.emulator import agent
from tpubox.box.folder import HOST, Folder
from tpubox.google.wire.settings import Settings as Google
from tpubox.kubelet import Pool, of_slice
from tpukit.core.errors import Transient
from tpukit.jobs import render
from tpukit.jobs.render import PoolKind
from tpukit.jobs.spec import Settings
from tpukit.kube import Cluster
from tpukit.teams import settling

ZONE = "us-central2-b"
BUCKET = "my-runs"
_CPUS, _MEMORY_GB = 8, 32


def furnish(place: Folder, slices: Mapping[PoolKind, int]) -> None:
    """Add the missing ones of these slices. Other slices of the sandbox stay, in the queue too. Idempotent."""
    machines, cluster, settings = agent(place), Cluster(place.kubeconfig), Settings()
    there = [Pool.from_json(record["pool"]) for record in machines.pools().values()]
    missing, total = additions(there, slices)
    for pool in missing:
        machines.add_pool(pool)
    labels = dict([render.node_labels.CPU_POOL])
    machines.add_pool(Pool("cpu", f"e2-standard-{_CPUS}", {"cpu-0": ZONE}, labels=labels))
    for document in render.queues(total, [settings.team], cpus=_CPUS, memory_gb=_MEMORY_GB):
        writes = [document]
        if document["kind"] == "ClusterQueue":
            writes = settling.renewed(document, cluster.list("ClusterQueue"))
        for one in writes:
            cluster.apply(one)
    account = {"name": settings.service_account, "namespace": settings.team}
    cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    project = next((word.removeprefix("--project=") for word in place.google if word.startswith("--project=")), "")
    _post(place, "emulator/services", {})
    bucket = {"name": BUCKET, "location": "US"}
    _post(place, f"storage/v1/b?project={project or Google().projects[0]}", bucket)


def additions(there: Sequence[Pool], slices: Mapping[PoolKind, int]) -> tuple[list[Pool], dict[PoolKind, int]]:
    """Return the pools that are missing, and how many slices of each kind the sandbox has with them.

    Pools of one shape are numbered across all capacities.
    """
    own = [pool for pool in there if not pool.cluster]
    names, total = {pool.name for pool in own}, Counter[PoolKind]()
    for pool in own:
        if pool.slice:
            capacity = f"{pool.capacity}:{pool.reservation}" if pool.reservation else pool.capacity
            total[PoolKind(pool.slice, capacity)] += 1
    missing: list[Pool] = []
    for kind, wanted in slices.items():
        while total[kind] < wanted:
            name = next(name for number in count() if (name := f"{kind.shape.name}-{number}") not in names)
            names.add(name)
            missing.append(of_slice(name, kind.shape, ZONE, capacity=kind.capacity))
            total[kind] += 1
    return missing, dict(total)


def _post(place: Folder, path: str, body: Mapping[str, str]) -> None:
    """Create an object in the emulator; an existing one is kept."""
    headers = {"Authorization": f"Bearer {place.token}", "Content-Type": "application/json"}
    address = f"http://{HOST}:{place.ports['google']}/{path}"
    request = urllib.request.Request(address, json.dumps(body).encode(), headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy leads back to this machine
    try:
        opener.open(request, timeout=60).close()
    except urllib.error.HTTPError as error:
        with error:
            if error.code != 409:
                raise Transient(f"{path}: {error.read().decode(errors='replace')}") from error
