"""Volumes of pods, seen from inside real containers, and through path rewriting where mounts are unavailable."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.agent_world import CPU, World


@pytest.fixture(params=["mounted", "rewritten"])
def world(home: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    world = World(home)
    if request.param == "rewritten":
        kubelet = world.agent.kubelet
        kubelet._driver._machine = dataclasses.replace(kubelet._driver._machine, mounts=False)
    world.client.add_pool(CPU)
    yield world
    world.close()


def mounted(home: Path) -> World:
    """Return a world where containers have their own mounts."""
    world = World(home)
    world.client.add_pool(CPU)
    return world


def printed(world: World, script: str, volumes: list[dict[str, object]], mounts: list[dict[str, object]]) -> str:
    world.shell(script, spec={"volumes": volumes}, volumeMounts=mounts)
    world.phase("Succeeded", "Failed")
    return world.log()


def test_config_map_and_secret_are_files(world: World):
    world.api.put("ConfigMap", {"metadata": {"name": "m"}, "data": {"a": "map", "b": "other"}})
    world.api.put("Secret", {"metadata": {"name": "s"}, "data": {"k": base64.b64encode(b"hush").decode()}})
    volumes = [
        {"name": "m", "configMap": {"name": "m", "items": [{"key": "a", "path": "x/y"}]}},
        {"name": "s", "secret": {"secretName": "s", "defaultMode": 0o400}},
    ]
    mounts = [{"name": "m", "mountPath": "/config"}, {"name": "s", "mountPath": "/etc/hush", "readOnly": True}]
    assert printed(world, "cat /config/x/y /etc/hush/k; ls /config", volumes, mounts) == "maphushx\n"


def test_what_a_kubelet_writes_can_be_read_only_and_is_reached_by_its_links(home: Path):
    world = mounted(home)
    world.api.put("ConfigMap", {"metadata": {"name": "m"}, "data": {"a": "map"}})
    world.api.put("Secret", {"metadata": {"name": "s"}, "data": {"a": base64.b64encode(b"hush").decode()}})
    name = {"path": "a", "fieldRef": {"fieldPath": "metadata.name"}}
    volumes = [
        {"name": "m", "configMap": {"name": "m"}},
        {"name": "s", "secret": {"secretName": "s"}},
        {"name": "d", "downwardAPI": {"items": [name]}},
        {"name": "p", "projected": {"sources": [{"configMap": {"name": "m"}}]}},
        {"name": "inner", "emptyDir": {}},
    ]
    mounts = [{"name": one["name"], "mountPath": f"/in/{one['name']}", "readOnly": False} for one in volumes[:4]]
    mounts.append({"name": "inner", "mountPath": "/in/m/inner"})
    script = "for v in m s d p; do cat /in/$v/..data/a; readlink /in/$v/a; echo x > /in/$v/b; echo x > /in/$v/a; done"
    shown = printed(world, f"{script}; echo fine > /in/m/inner/x; cat /in/m/inner/x", volumes, mounts)
    assert shown.count("Read-only file system") == 8
    assert shown.count("..data/a\n") == 4
    assert shown.endswith("fine\n")
    world.close()


@pytest.mark.parametrize(
    ("volume", "said"),
    [
        ({"configMap": {"name": "m"}}, 'configmap "m" not found'),
        ({"secret": {"secretName": "s"}}, 'secret "s" not found'),
        (
            {"configMap": {"name": "there", "items": [{"key": "k", "path": "p"}]}},
            "references non-existent config key: k",
        ),
        ({"hostPath": {"path": "/not/there", "type": "Directory"}}, "/not/there is not a directory"),
        ({"hostPath": {"path": "/etc", "type": "File"}}, "hostPath type check failed: /etc is not a file"),
    ],
)
def test_volume_that_is_not_there_keeps_the_pod_creating_and_an_event_says_why(
    home: Path, volume: dict[str, object], said: str
):
    world = mounted(home)
    world.api.put("ConfigMap", {"metadata": {"name": "there"}, "data": {"a": "1"}})
    world.shell("true", spec={"volumes": [{"name": "v", **volume}]})
    event = world.until(lambda: world.events("FailedMount"))[0]
    assert event["message"].startswith('MountVolume.SetUp failed for volume "v" : ')
    assert said in event["message"]
    assert (event["involvedObject"]["name"], event["type"]) == ("p", "Warning")
    world.until(lambda: world.status().get("containerStatuses"))
    assert world.container()["state"] == {"waiting": {"reason": "ContainerCreating"}}
    world.close()


@pytest.mark.parametrize(
    ("kind", "is_made"), [("", Path.is_dir), ("DirectoryOrCreate", Path.is_dir), ("FileOrCreate", Path.is_file)]
)
def test_host_path_that_is_not_there_is_made_where_its_type_says_so(home: Path, kind: str, is_made):
    world = mounted(home)
    path = home / "on-host"
    volume = {"name": "v", "hostPath": {"path": str(path), "type": kind}}
    printed(world, "ls /on-host", [volume], [{"name": "v", "mountPath": "/on-host"}])
    assert is_made(path)
    world.close()


def test_downward_and_projected_volumes_hold_what_the_pod_is(world: World):
    world.api.put("ConfigMap", {"metadata": {"name": "m"}, "data": {"ca": "authority"}})
    name = {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}
    sources = [
        {"serviceAccountToken": {"path": "token"}},
        {"configMap": {"name": "m"}},
        {"downwardAPI": {"items": [name]}},
    ]
    volumes = [{"name": "d", "downwardAPI": {"items": [name]}}, {"name": "p", "projected": {"sources": sources}}]
    mounts = [{"name": "d", "mountPath": "/down"}, {"name": "p", "mountPath": "/var/run/secrets/account"}]
    script = "cat /down/name; for f in token ca name; do echo; cat /var/run/secrets/account/$f; done"
    assert printed(world, script, volumes, mounts) == "p\ntoken-of-default\nauthority\np"


def test_empty_dir_at_tmp_is_the_pods_own_and_python_still_runs(world: World):
    script = "python -c \"import tpukit, pathlib; pathlib.Path('/tmp/note').write_text('x')\"; ls /tmp/note"
    volumes, mounts = [{"name": "t", "emptyDir": {}}], [{"name": "t", "mountPath": "/tmp"}]
    note = Path("/tmp/note")
    assert not note.exists()
    assert printed(world, script, volumes, mounts).endswith("/note\n")
    assert not note.exists()


def test_bucket_is_a_folder_that_outlives_the_pod(world: World):
    world.with_bucket("/bin/sh", "-c", "echo saved > /data/file", mount={"subPath": "runs"})
    world.phase("Succeeded")
    assert (world.home / "buckets" / "b" / "runs" / "file").read_text() == "saved\n"


def test_volume_of_an_unknown_kind_keeps_the_pod_waiting_and_says_so(world: World):
    world.shell("true", spec={"volumes": [{"name": "v", "nfs": {"server": "s", "path": "/"}}]})
    world.until(lambda: world.status().get("containerStatuses"))
    waiting = world.container()["state"]["waiting"]
    assert waiting["message"] == "volumes of kind nfs are not supported here"


def test_sub_path_that_leaves_its_volume_is_refused(world: World):
    mounts = [{"name": "v", "mountPath": "/data", "subPath": "../../.."}]
    world.shell("true", spec={"volumes": [{"name": "v", "emptyDir": {}}]}, volumeMounts=mounts)
    world.until(lambda: world.status().get("containerStatuses"))
    assert "leaves its volume" in world.container()["state"]["waiting"]["message"]


def test_hosts_of_a_job_know_each_other_by_name(world: World):
    spec = {"completionMode": "Indexed", "parallelism": 2, "completions": 2}
    job = world.api.put("Job", {"metadata": {"name": "j"}, "spec": spec})
    owner = {"kind": "Job", "name": "j", "uid": job["metadata"]["uid"], "controller": True}
    listed = {"kubernetes.io/service-name": "sub", "service.kubernetes.io/headless": ""}
    endpoints = [{"hostname": "j-1", "addresses": ["10.9.1.2"]}]
    world.api.put("EndpointSlice", {"metadata": {"name": "sub-x", "labels": listed}, "endpoints": endpoints})
    code = "import os, socket; print(socket.gethostbyname(os.environ['PEER']))"
    pod = world.pod("python", "-c", code, name="j-0", env=[{"name": "PEER", "value": "j-1.sub"}])
    pod["metadata"]["ownerReferences"] = [owner]
    pod["spec"] |= {"hostname": "j-0", "subdomain": "sub"}
    pod["metadata"]["name"] = "j-0-abc"
    del pod["metadata"]["uid"]
    world.api.put("Pod", pod)
    world.phase("Succeeded", "Failed", name="j-0-abc")
    address = world.log("j-0-abc").strip()
    assert address.startswith("127.") and address != "127.0.0.1"
