"""Mounted buckets behave like GCS FUSE, seen from inside real containers."""

from __future__ import annotations

from typing import Any

import pytest

from support.agent_world import World, with_cpu_node
from tpubox.kubelet.bucket_limits import rename_limits

world = pytest.fixture(name="world")(with_cpu_node)


TRIED = """
def tried(what, *arguments):
    try:
        what(*arguments)
        return "done"
    except OSError as problem:
        return problem.strerror
"""
REFUSALS = """
import ctypes, fcntl, os
def fallocate(file):
    if ctypes.CDLL(None, use_errno=True).fallocate(file, 0, ctypes.c_long(0), ctypes.c_long(9)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
os.chdir("/data")
lasting = os.open("lasting", os.O_CREAT | os.O_RDWR)
os.makedirs("step.tmp/state")
os.mkdir("empty")
open("file", "w").write("saved")
print("link:", tried(os.link, "file", "hard"), "/", tried(os.link, "/data/file", "/data/step.tmp/hard"))
print("full folder:", tried(os.rename, "step.tmp", "step"), "/", tried(os.rename, "/data/step.tmp/", "/data/step"))
print("empty folder:", tried(os.rename, "empty", "other"))
print("file:", tried(os.rename, "file", "moved"))
print("pipe:", tried(os.mkfifo, "pipe"))
print("room:", tried(os.posix_fallocate, os.open("kept", os.O_CREAT | os.O_RDWR), 0, 9), os.stat("kept").st_size)
print("raw room:", tried(fallocate, os.open("kept", os.O_RDWR)))
print("attribute:", tried(os.setxattr, "moved", "user.a", b"1"), "/", tried(os.setxattr, lasting, "user.a", b"1"))
print("unnamed:", tried(os.open, ".", os.O_TMPFILE | os.O_RDWR), "/", tried(os.open, "/data", os.O_TMPFILE | os.O_RDWR))
new = ((open, "a\\nb", "w"), (os.mkdir, "a\\rb"), (os.symlink, "moved", "a\\nb"), (os.rename, "moved", "a\\nb"))
print("line break:", *(tried(*one) for one in new))
print("mode:", tried(os.chmod, "moved", 0o600), oct(os.stat("moved").st_mode & 0o777))
lock = open("moved", "a")
exclusive = fcntl.LOCK_EX | fcntl.LOCK_NB
print("locks:", tried(fcntl.flock, lock, exclusive), tried(fcntl.lockf, lock, exclusive))
os.chdir(os.environ["HOME"])
os.makedirs("a/b")
open("file", "w").close()
others = ((os.link, "file", "hard"), (os.rename, "a", "c"), (os.mkfifo, "pipe"), (open, "a\\nb", "w"))
print("elsewhere:", *(tried(*one) for one in others), tried(fallocate, os.open("file", os.O_RDWR)))
"""


@pytest.mark.parametrize("security", [{}, {"runAsUser": 65532, "allowPrivilegeEscalation": False}])
def test_bucket_refuses_what_gcs_fuse_refuses_and_other_folders_do_not(world: World, security: dict[str, object]):
    mount = {"subPath": "runs"}
    world.with_bucket("python", "-c", TRIED + REFUSALS, mount=mount, options="uid=65532", securityContext=security)
    world.phase("Succeeded", "Failed")
    assert world.log().splitlines() == [
        "link: Function not implemented / Function not implemented",
        "full folder: Too many open files / Too many open files",
        "empty folder: done",
        "file: done",
        "pipe: Operation not supported",
        "room: done 9",
        "raw room: Operation not supported",
        "attribute: Operation not supported / Operation not supported",
        "unnamed: Operation not supported / Operation not supported",
        "line break: Invalid argument Invalid argument Invalid argument Invalid argument",
        "mode: done 0o644",
        "locks: done done",
        "elsewhere: done done done done done",
    ]


def test_bucket_renames_folders_that_hold_no_more_than_its_mount_allows(world: World):
    script = "cd /data; mkdir -p a/b c; touch a/b/1 c/1 c/2 c/3; mv a d; mv c e; ls"
    world.with_bucket("/bin/sh", "-c", script, options="implicit-dirs,rename-dir-limit=2")
    world.phase("Succeeded", "Failed")
    shown = world.log()
    assert "Too many open files" in shown
    assert shown.splitlines()[-2:] == ["c", "d"]


def test_call_with_an_address_that_no_process_has_is_answered_and_so_are_those_after_it(world: World):
    wild = "ctypes.CDLL(None).rename(ctypes.c_void_p(2**64 - 8), b'x')"
    script = f"import ctypes, os; print({wild}); open('/data/f', 'w'); os.rename('/data/f', '/data/g'); print('on')"
    world.with_bucket("python", "-c", script)
    world.phase("Succeeded", "Failed")
    assert world.log().splitlines() == ["-1", "on"]


def test_stream_of_a_fleet_on_a_mounted_bucket_is_refused_with_what_to_write(world: World):
    script = "from tpukit.host import bucket; bucket.opened('/data/out').create('claim', b'1')"
    world.with_bucket("python", "-c", script)
    world.phase("Failed")
    assert "/data/out cannot decide which of two writers was first" in world.log()
    assert "write gs://BUCKET/FOLDER in its place" in world.log()


def test_lock_on_a_bucket_keeps_no_other_host_out(world: World):
    bucket = world.home / "buckets" / "b"
    holder = "import fcntl, time; f = open('/data/f', 'w'); fcntl.flock(f, 2); open('/data/held', 'w'); time.sleep(600)"
    world.with_bucket("python", "-c", holder, name="holder")
    world.until((bucket / "held").exists)
    other = "import fcntl; fcntl.flock(open('/data/f', 'w'), 2 | 4)"
    world.with_bucket("python", "-c", other, name="other")
    world.phase("Succeeded", "Failed", name="other")
    assert world.status("other")["phase"] == "Succeeded"


WRITES = """
import os
os.chdir("/data")
new = ((open, "new", "w"), (open, "old", "a"), (os.mkdir, "folder"), (os.rename, "old", "other"))
print(open("old").read(), *(tried(*one) for one in new), sep=", ")
"""
READ_ONLY, DENIED = "Read-only file system", "Permission denied"


@pytest.mark.parametrize(
    ("mount", "answer"),
    [
        ({"read_only": True}, READ_ONLY),
        ({"options": "implicit-dirs,ro"}, READ_ONLY),
        ({"mount": {"readOnly": True}}, READ_ONLY),
        ({"securityContext": {"runAsUser": 1000}}, DENIED),
        ({"spec": {"securityContext": {"runAsUser": 1000, "runAsGroup": 1000}}, "options": "gid=1000"}, DENIED),
        ({"securityContext": {"runAsUser": 1000}, "options": "uid=1000"}, "done"),
        ({"securityContext": {"runAsUser": 1000}, "options": "dir-mode=777,file-mode=666"}, "done"),
        ({"spec": {"securityContext": {"runAsUser": 1000, "fsGroup": 2000}}}, "done"),
    ],
)
def test_bucket_is_written_to_by_those_whom_its_mount_lets(world: World, mount: dict[str, Any], answer: str):
    bucket = world.home / "buckets" / "b"
    bucket.mkdir(parents=True)
    (bucket / "old").write_text("read")
    world.with_bucket("python", "-c", TRIED + WRITES, **mount)
    world.phase("Succeeded", "Failed")
    assert world.log().strip().split(", ") == ["read", *[answer] * 4]


def test_bucket_of_which_one_folder_is_mounted_shows_that_one_alone(world: World):
    (world.home / "buckets" / "b" / "sub").mkdir(parents=True)
    (world.home / "buckets" / "b" / "other").touch()
    (world.home / "buckets" / "b" / "sub" / "inside").touch()
    world.with_bucket("ls", "/data", options="implicit-dirs,only-dir=sub")
    world.phase("Succeeded", "Failed")
    assert world.log().split() == ["inside"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"annotations": {}}, "code = FailedPrecondition desc = failed to find the sidecar container in Pod spec"),
        ({"options": "only-dir=../other"}, "code = InvalidArgument"),
    ],
)
def test_bucket_that_the_driver_does_not_mount_keeps_the_pod_waiting_and_an_event_says_why(
    world: World, change: dict[str, Any], said: str
):
    world.with_bucket("true", **change)
    (event,) = world.until(lambda: world.events("FailedMount"))
    assert event["message"].startswith('MountVolume.SetUp failed for volume "v" : rpc error: ')
    assert said in event["message"]
    world.until(lambda: world.status().get("containerStatuses"))
    assert world.container()["state"] == {"waiting": {"reason": "ContainerCreating"}}


def test_bucket_that_is_made_later_lets_the_pod_start(world: World):
    attributes = {"bucketName": "b"}
    volume = {"name": "v", "csi": {"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": attributes}}
    world.pod("true", name="early", spec={"volumes": [volume]}, annotations={"gke-gcsfuse/volumes": "true"})
    world.until(lambda: any("bucket doesn't exist" in one["message"] for one in world.events("FailedMount")))
    (world.home / "buckets" / "b").mkdir(parents=True)
    world.phase("Succeeded", name="early")


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
