"""A sandbox that is killed, started twice, run beside another, and taken down."""

import shutil

import pytest

from support.box import until
from support.sandbox_command import *  # noqa: F403 (fixtures)
from support.sandbox_command import Box, completed, planned, seen, send
from tpukit.core.errors import NotFound


def test_killed_store_and_api_server_come_back_with_their_state(box, cluster):
    made = planned(name="survives", command=["sleep", "1"])
    box.kill("etcd", "kube-apiserver")
    until(lambda: not box.status()["running"])
    assert box.tpu("status", check=False).returncode == 1
    box.tpu("up")
    status = box.status()
    assert status["running"]
    # Others may have restarted as well, because losing a lease ends a component.
    restarted = {one["name"] for one in status["components"] if one["restarts"]}
    assert restarted >= {"etcd", "kube-apiserver", "jobset", "kueue"}
    cluster = box.cluster
    assert len(cluster.list("Node")) == 4
    send(cluster, made)
    until(lambda: completed(cluster, made), lambda: seen(cluster, made))


def test_everything_killed_comes_back_with_its_state(box, cluster):
    made = planned(name="lasting")
    send(cluster, made)
    box.kill(*(one["name"] for one in box.status()["components"]))
    until(lambda: not any(one["running"] for one in box.status()["components"]))
    box.tpu("up")
    until(lambda: completed(box.cluster, made))


def test_up_of_what_runs_changes_nothing(box):
    before = {one["name"]: one["pid"] for one in box.status()["components"]}
    box.tpu("up")
    assert {one["name"]: one["pid"] for one in box.status()["components"]} == before


def test_two_side_by_side_do_not_see_each_other_and_one_leaves_the_other_alone(box, cluster):
    second = Box(box.home, "second")
    second.tpu("up")
    assert second.cluster.list("Node") == []
    comes_and_goes_with_its_deployment(second)
    assert len(cluster.list("Node")) == 4
    second.tpu("down")
    assert not second.folder.exists()
    assert box.status()["running"]


def comes_and_goes_with_its_deployment(bare):
    """Apply and delete a release by its public address, in a sandbox without addons."""

    def kubectl(*words):
        done = bare.tpu("shell", "--", "kubectl", *words, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def runs():
        return any(one["running"] for one in bare.status()["components"] if one["name"] == "jobset")

    assert bare.cluster.list("Deployment") == []
    with pytest.raises(NotFound):
        bare.cluster.list("JobSet")
    version = bare.status()["versions"]["jobset"]
    release = f"https://github.com/kubernetes-sigs/jobset/releases/download/{version}/manifests.yaml"
    deployment = ("--namespace=jobset-system", "deployment/jobset-controller-manager")
    for _ in range(2):  # apply is repeatable
        kubectl("apply", "--server-side", "--force-conflicts", f"--filename={release}")
        kubectl("wait", *deployment, "--for=condition=Available", "--timeout=10m")
    assert runs()
    kubectl("delete", *deployment)
    until(lambda: not runs())
    unknown = release.replace(version, "v0.2.3")
    done = bare.tpu("shell", "--", "kubectl", "apply", f"--filename={unknown}", check=False)
    assert "404" in done.stderr


def test_new_one_begins_with_the_snapshot_of_its_build_and_has_keys_of_its_own(box, cluster):
    second = Box(box.home, "again")
    second.tpu("up", "--addons")
    try:
        begun = [one.get("Namespace", "kube-system")["metadata"]["uid"] for one in (cluster, second.cluster)]
        assert begun[0] == begun[1]
        keys = [(one.folder / "certificates" / "cluster" / "ca.crt").read_text() for one in (box, second)]
        assert keys[0] != keys[1]
        until(lambda: second.cluster.get("ConfigMap", "kube-root-ca.crt", "default")["data"]["ca.crt"] == keys[1])
        for part in ("token", "certificates/accounts.key"):
            assert (box.folder / part).read_bytes() != (second.folder / part).read_bytes()
        assert second.cluster.list("ClusterQueue") == []
    finally:
        second.tpu("down")
    assert box.status()["running"]


def test_down_leaves_no_process_and_no_file(home):
    box = Box(home, "leaving")
    box.tpu("up")
    components = box.status()["components"]
    assert len(box.processes()) >= 2 * len(components), "each has one above it"
    box.tpu("down")
    until(lambda: not box.processes())
    assert not box.folder.exists()
    assert box.tpu("down", check=False).returncode == 1
    assert box.tpu("status", check=False).stderr.startswith("tpu: there is no sandbox leaving")


def test_missing_go_is_a_sentence(home, monkeypatch):
    empty = home / "empty"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))
    monkeypatch.setenv("XDG_CACHE_HOME", str(empty))
    box = Box(home, "without-go")
    done = box.tpu("up", check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("tpu: go is not on PATH")
    shutil.rmtree(empty)
    with pytest.raises(NotFound):
        box.cluster.version()
