"""Volumes of pods, seen from inside real containers, and by rewriting where there are no mounts."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from unit.agent_world import CPU, World


@pytest.fixture(params=["mounted", "rewritten"])
def world(home: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    world = World(home)
    if request.param == "rewritten":
        kubelet = world.agent.kubelet
        kubelet._driver._machine = dataclasses.replace(kubelet._driver._machine, mounts=False)
    world.client.add_pool(CPU)
    yield world
    world.close()


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
    bucket = world.home / "buckets" / "b"
    bucket.mkdir(parents=True)
    csi = {"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": {"bucketName": "b"}}
    mounts = [{"name": "v", "mountPath": "/data", "subPath": "runs"}]
    printed(world, "echo saved > /data/file", [{"name": "v", "csi": csi}], mounts)
    assert (bucket / "runs" / "file").read_text() == "saved\n"


def test_volume_of_an_unknown_kind_keeps_the_pod_waiting_and_says_so(world: World):
    world.shell("true", spec={"volumes": [{"name": "v", "nfs": {"server": "s", "path": "/"}}]})
    world.until(lambda: world.status().get("containerStatuses"))
    waiting = world.container()["state"]["waiting"]
    assert waiting["message"] == "volumes of kind nfs are not made here"


def test_sub_path_that_leaves_its_volume_is_refused(world: World):
    mounts = [{"name": "v", "mountPath": "/data", "subPath": "../../.."}]
    world.shell("true", spec={"volumes": [{"name": "v", "emptyDir": {}}]}, volumeMounts=mounts)
    world.until(lambda: world.status().get("containerStatuses"))
    assert "leaves its volume" in world.container()["state"]["waiting"]["message"]


def test_hosts_of_a_job_know_each_other_by_name(world: World):
    spec = {"completionMode": "Indexed", "parallelism": 2, "completions": 2}
    job = world.api.put("Job", {"metadata": {"name": "j"}, "spec": spec})
    owner = {"kind": "Job", "name": "j", "uid": job["metadata"]["uid"], "controller": True}
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
