"""Mounted buckets answer as GCS FUSE does, seen from inside real containers."""

from __future__ import annotations

import pytest

from tpukit.sandbox.agent.bucket_limits import rename_limits
from unit.agent_world import World, with_cpu_node

world = pytest.fixture(name="world")(with_cpu_node)


REFUSALS = """
import fcntl, os
def tried(what, *arguments):
    try:
        what(*arguments)
        return "done"
    except OSError as problem:
        return problem.strerror
os.chdir("/data")
os.makedirs("step.tmp/state")
os.mkdir("empty")
open("file", "w").write("saved")
print("link:", tried(os.link, "file", "hard"), "/", tried(os.link, "/data/file", "/data/step.tmp/hard"))
print("full folder:", tried(os.rename, "step.tmp", "step"), "/", tried(os.rename, "/data/step.tmp/", "/data/step"))
print("empty folder:", tried(os.rename, "empty", "other"))
print("file:", tried(os.rename, "file", "moved"))
print("pipe:", tried(os.mkfifo, "pipe"))
print("mode:", tried(os.chmod, "moved", 0o600), oct(os.stat("moved").st_mode & 0o777))
lock = open("moved", "a")
exclusive = fcntl.LOCK_EX | fcntl.LOCK_NB
print("locks:", tried(fcntl.flock, lock, exclusive), tried(fcntl.lockf, lock, exclusive))
os.chdir(os.environ["HOME"])
os.makedirs("a/b")
open("file", "w").close()
print("elsewhere:", *(tried(*one) for one in ((os.link, "file", "hard"), (os.rename, "a", "c"), (os.mkfifo, "pipe"))))
"""


@pytest.mark.parametrize("security", [{}, {"runAsUser": 65532, "allowPrivilegeEscalation": False}])
def test_bucket_refuses_what_gcs_fuse_refuses_and_other_folders_do_not(world: World, security: dict[str, object]):
    (world.home / "buckets" / "b").mkdir(parents=True)
    csi = {"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": {"bucketName": "b"}}
    mounts = [{"name": "v", "mountPath": "/data", "subPath": "runs"}]
    spec = {"volumes": [{"name": "v", "csi": csi}]}
    world.pod("python", "-c", REFUSALS, spec=spec, volumeMounts=mounts, securityContext=security)
    world.phase("Succeeded", "Failed")
    assert world.log().splitlines() == [
        "link: Function not implemented / Function not implemented",
        "full folder: Too many open files / Too many open files",
        "empty folder: done",
        "file: done",
        "pipe: Operation not supported",
        "mode: done 0o644",
        "locks: done done",
        "elsewhere: done done done",
    ]


def test_bucket_renames_folders_that_hold_no_more_than_its_mount_allows(world: World):
    (world.home / "buckets" / "b").mkdir(parents=True)
    attributes = {"bucketName": "b", "mountOptions": "implicit-dirs,rename-dir-limit=2"}
    csi = {"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": attributes}
    script = "cd /data; mkdir -p a/b c; touch a/b/1 c/1 c/2 c/3; mv a d; mv c e; ls"
    volumes, mounts = [{"name": "v", "csi": csi}], [{"name": "v", "mountPath": "/data"}]
    world.shell(script, spec={"volumes": volumes}, volumeMounts=mounts)
    world.phase("Succeeded", "Failed")
    shown = world.log()
    assert "Too many open files" in shown
    assert shown.splitlines()[-2:] == ["c", "d"]


def test_call_with_an_address_that_no_process_has_is_answered_and_so_are_those_after_it(world: World):
    (world.home / "buckets" / "b").mkdir(parents=True)
    csi = {"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": {"bucketName": "b"}}
    wild = "ctypes.CDLL(None).rename(ctypes.c_void_p(2**64 - 8), b'x')"
    script = f"import ctypes, os; print({wild}); open('/data/f', 'w'); os.rename('/data/f', '/data/g'); print('on')"
    volumes, mounts = [{"name": "v", "csi": csi}], [{"name": "v", "mountPath": "/data"}]
    world.pod("python", "-c", script, spec={"volumes": volumes}, volumeMounts=mounts)
    world.phase("Succeeded", "Failed")
    assert world.log().splitlines() == ["-1", "on"]


def test_stream_of_a_fleet_on_a_mounted_bucket_is_refused_with_what_to_write(world: World):
    (world.home / "buckets" / "b").mkdir(parents=True)
    csi = {"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": {"bucketName": "b"}}
    script = "from tpukit.host import bucket; bucket.opened('/data/out').create('claim', b'1')"
    volumes, mounts = [{"name": "v", "csi": csi}], [{"name": "v", "mountPath": "/data"}]
    world.pod("python", "-c", script, spec={"volumes": volumes}, volumeMounts=mounts)
    world.phase("Failed")
    assert "/data/out cannot tell which of two came first" in world.log()
    assert "write gs://BUCKET/FOLDER in its place" in world.log()


def test_lock_on_a_bucket_keeps_no_other_host_out(world: World):
    bucket = world.home / "buckets" / "b"
    bucket.mkdir(parents=True)
    csi = {"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": {"bucketName": "b"}}
    spec = {"volumes": [{"name": "v", "csi": csi}]}
    mounts = [{"name": "v", "mountPath": "/data"}]
    holder = "import fcntl, time; f = open('/data/f', 'w'); fcntl.flock(f, 2); open('/data/held', 'w'); time.sleep(600)"
    world.pod("python", "-c", holder, name="holder", spec=spec, volumeMounts=mounts)
    world.until((bucket / "held").exists)
    other = "import fcntl; fcntl.flock(open('/data/f', 'w'), 2 | 4)"
    world.pod("python", "-c", other, name="other", spec=spec, volumeMounts=mounts)
    world.phase("Succeeded", "Failed", name="other")
    assert world.status("other")["phase"] == "Succeeded"


@pytest.mark.parametrize(
    ("machine", "options", "expected"),
    [
        ("ct4p-hightpu-4t", "implicit-dirs", 0),
        ("ct5p-hightpu-4t", "implicit-dirs", 200_000),
        ("ct5p-hightpu-4t", "rename-dir-limit=10", 10),
        ("ct4p-hightpu-4t", "implicit-dirs,file-system:rename-dir-limit:7", 7),
        ("ct4p-hightpu-4t", "profile:aiml-checkpointing", 200_000),
        ("", "", 0),
    ],
)
def test_folders_that_a_bucket_renames_are_as_large_as_machine_and_mount_allow(
    machine: str, options: str, expected: int
):
    attributes = {"bucketName": "b", "mountOptions": options}
    volumes = [{"name": "v", "csi": {"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": attributes}}]
    volumes.append({"name": "scratch", "emptyDir": {}})
    container = {"volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in ("v", "scratch")]}
    labels = {"node.kubernetes.io/instance-type": machine}
    assert rename_limits({"spec": {"volumes": volumes}}, container, labels) == {"/v": expected}
