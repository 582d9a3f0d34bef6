"""Start a sandbox with JobSet and Kueue as `tpu sandbox up` did before it had snapshots and memory limits.

The agent and then Google's APIs start after the control plane, every definition is installed again, and Go's own
garbage collection settings apply. The programs and their other options are the current ones.

    python one_by_one.py NAME           start the sandbox NAME, which must be new
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from support.waiting import until
from tpubox.box import (
    addon_processes,
    binaries,
    cloud_components,
    components,
    control_plane,
    folder,
    installing,
    memory_limits,
)
from tpukit.core.errors import NotFound
from tpukit.kube import Cluster

ADDONS = "--addons"


def up(name: str) -> Path:
    programs = binaries.ensure()
    with folder.locked(name):
        place = folder.prepare(name)
        store, api_server = control_plane.store(place, programs), control_plane.api_server(place, programs)
        controllers = [control_plane.controller_manager(place, programs), control_plane.scheduler(place, programs)]
        kwok = control_plane.kwok(place, programs)
        agent, emulator = cloud_components.agent(place), cloud_components.google(place)
        # Its child processes must not have limits either.
        runner = replace(cloud_components.addons(place), argv=(sys.executable, __file__, ADDONS, str(place.path)))
        components.start(place, [store, api_server, runner])
        components.wait(place, [api_server])
        components.start(place, [*controllers, agent])
        cluster = Cluster(place.kubeconfig)
        installing.install_own(cluster, programs)
        components.start(place, [kwok])
        installing.install_addons(cluster, installing.addons(programs))
        components.wait(place, [agent])
        components.start(place, [emulator])
        components.wait(place, [emulator, *controllers, kwok, runner])
        until(partial(_takes_pods, cluster), "pods to be taken", every=0.1)
        installed = installing.installed_addons(cluster)
        until(partial(installing.addons_ready, cluster, place, installed), "JobSet and Kueue", every=0.1)
    return place.kubeconfig


def _takes_pods(cluster: Cluster) -> bool:
    try:
        return bool(cluster.get("ServiceAccount", "default", "default"))
    except NotFound:
        return False


if __name__ == "__main__":
    memory_limits.LIMITS.clear()
    if sys.argv[1] == ADDONS:
        sys.exit(addon_processes.main(sys.argv[2:]))
    print(f"KUBECONFIG={up(sys.argv[1])}")
