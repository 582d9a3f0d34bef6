"""Isolation of containers on the same machine, seen from inside real ones."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.agent_world import World, with_cpu_node
from tpubox.kubelet import pod_isolation
from tpukit.places.local import processes as pods
from tpukit.places.local.processes import Mount

world = pytest.fixture(name="world")(with_cpu_node)
NOBODY = {"runAsUser": 65532, "runAsGroup": 65532}


def ran(world: World, script: str, name: str = "p", **options: Any) -> str:
    world.shell(script, name=name, **options)
    world.phase("Succeeded", "Failed", name=name)
    return world.log(name)


@pytest.mark.parametrize("user", [{}, NOBODY], ids=["own user", "another user"])
@pytest.mark.parametrize("folder", ["/tmp", "/var/tmp", "/dev/shm"])
def test_file_that_a_pod_leaves_outside_its_volumes_is_seen_by_no_other(
    world: World, folder: str, user: dict[str, int]
):
    path = f"{folder}/tpukit-test-left"
    assert ran(world, f"echo step > {path}; cat {path}", "one", securityContext=user) == "step\n"
    assert ran(world, f"test -e {path} && echo seen || echo none", "two", securityContext=user) == "none\n"
    assert not Path(path).exists()


def test_container_that_is_started_again_finds_its_volume_and_nothing_in_tmp(world: World):
    script = "test -e /tmp/left && echo kept; test -e /data/again && exit 0; touch /tmp/left /data/again; exit 1"
    spec = {"restartPolicy": "OnFailure", "volumes": [{"name": "data", "emptyDir": {}}]}
    world.shell(script, spec=spec, volumeMounts=[{"name": "data", "mountPath": "/data"}])
    world.phase("Succeeded")
    assert world.container()["restartCount"] == 1
    assert world.log() == ""


def test_containers_of_a_pod_share_a_volume_at_tmp(world: World):
    mount = [{"name": "data", "mountPath": "/tmp"}]
    first = {"name": "first", "image": "i", "command": ["/bin/sh", "-c", "echo shared > /tmp/x"], "volumeMounts": mount}
    spec = {"initContainers": [first], "volumes": [{"name": "data", "emptyDir": {}}]}
    assert ran(world, "cat /tmp/x", spec=spec, volumeMounts=mount) == "shared\n"


def test_volume_inside_tmp_is_there(world: World):
    spec = {"volumes": [{"name": "data", "emptyDir": {}}]}
    mounts = [{"name": "data", "mountPath": "/tmp/data"}]
    assert ran(world, "touch /tmp/data/x && ls /tmp/data", spec=spec, volumeMounts=mounts) == "x\n"


def test_shared_memory_is_64_mib_unless_a_volume_is_there(world: World):
    script = "head -c 70000000 /dev/zero > /dev/shm/x && echo fits"
    assert "No space left" in ran(world, script, "small")
    spec = {"volumes": [{"name": "m", "emptyDir": {"medium": "Memory"}}]}
    mounts = [{"name": "m", "mountPath": "/dev/shm"}]
    assert ran(world, script, "large", spec=spec, volumeMounts=mounts) == "fits\n"


@pytest.mark.parametrize("user", [{}, NOBODY], ids=["own user", "another user"])
def test_host_name_is_the_pods_and_leads_to_its_own_address(world: World, user: dict[str, int]):
    code = "import os, socket; name = socket.gethostname(); print(name, os.environ['HOSTNAME'], "
    code += "socket.gethostbyname(name) == os.environ['IP'])"
    env = [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    world.pod("python", "-c", code, spec={"hostname": "host-0", "subdomain": "sub"}, env=env, securityContext=user)
    world.phase("Succeeded", "Failed")
    assert world.log() == "host-0 host-0 True\n"
    assert socket.gethostname() != "host-0"


def test_command_that_joins_a_container_has_its_host_name_and_its_tmp(world: World, home: Path):
    world.shell("echo inside > /tmp/x; echo up; sleep 60")
    world.until(lambda: world.status().get("phase") == "Running" and world.log() == "up\n")
    (run,) = (home / "agent" / "pods").glob("*/main/0")
    argv = pods.joining(run, pods.status(run).pid, ["sh", "-c", "cat /proc/sys/kernel/hostname /tmp/x"])
    assert subprocess.check_output(argv, text=True) == "p\ninside\n"


@pytest.mark.parametrize("folder", ["/tmp/work/here", "/opt/tpukit-test/work", "/tpukit-test"])
def test_working_folder_that_the_image_lacks_is_made_for_the_container_alone(world: World, folder: str):
    assert ran(world, "pwd; touch x && ls", workingDir=folder) == f"{folder}\nx\n"
    assert not Path(folder).exists()


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ({}, "pod"),
        ({"hostname": "h"}, "h"),
        ({"hostname": "x" * 62 + "-long"}, "x" * 62),
        ({"hostNetwork": True}, ""),
    ],
    ids=["pod's name", "own name", "cut", "node's"],
)
def test_host_name_is_cut_as_a_kubelet_cuts_it(spec: dict[str, Any], name: str):
    assert pod_isolation.host_name({"metadata": {"name": "pod"}, "spec": spec}) == name


@pytest.mark.parametrize(
    ("spec", "targets", "size"),
    [({}, ["/data"], 64 << 20), ({}, ["/dev/shm/"], 0), ({"hostIPC": True}, [], 0)],
    ids=["own", "volume", "node's"],
)
def test_shared_memory_is_the_containers_unless_it_has_another(spec: dict[str, Any], targets: list[str], size: int):
    mounts = [Mount(Path("/source"), target) for target in targets]
    assert pod_isolation.shared_memory({"spec": spec}, mounts) == size
