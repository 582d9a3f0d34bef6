"""The provisioner in a sandbox: real Kubernetes, JobSet and Kueue, GKE's API, and its own service account."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator

import pytest
import yaml

from support import role_sets
from support.box import ROOT, sandbox, until
from support.fault_points import EXIT, POINTS
from support.provisioned import NAME, PROJECT, SYSTEM, V4_16, Provisioned, lines, stop
from support.role_sets import RoleSets
from tpukit import catalogue
from tpukit.jobs import render
from tpukit.provisioner.deployment import PERMISSIONS, ROLE

EXAMPLE = (ROOT / "examples" / "03-provisioned" / "README.md").read_text()
LINES = tuple(
    line.partition("  #")[0].strip()
    for block in re.findall(r"^```console\n(.*?)^```", EXAMPLE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
)
"""Commands on the page of the examples."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provisioned]:
    folder = tmp_path_factory.mktemp("provisioner")
    with sandbox(folder, "provisioner") as box:
        yield Provisioned(box, folder / "controller")


@pytest.fixture(autouse=True)
def cleared(world: Provisioned) -> Iterator[None]:
    yield
    world.clear()


def test_provisioner_jobsets_that_complete_fail_and_are_deleted_had_pools_and_lose_them(world: Provisioned):
    with world.running():
        for name, seconds, slices in (("completes", 8, 2), ("fails", 3600, 1), ("deleted", 3600, 1)):
            # A separate label: otherwise its pods may use another JobSet's pool, and its own is never created.
            world.send(name, seconds, slices=slices, selector={**V4_16, "example.com/run": name})
        until(lambda: world.hosts("deleted") == 2, world.log)
        assert len(world.pools("deleted")) == 1
        until(lambda: world.hosts("fails") == 2, world.log)
        # No event is needed for a JobSet that ends before its pool is observed as ready.
        for name in ("fails", "deleted"):
            until(lambda: any(f"{name}-" in said for said in world.events("NodePoolReady")), world.log)  # noqa: B023
        world.fail("fails")
        until(lambda: world.ended("completes") == "Completed")
        until(lambda: world.ended("fails") == "Failed")
        world.delete("deleted")
        until(lambda: not world.pools(), world.log)
        # Events are written asynchronously. A slice may run on the pool created for the other slice; its pod then gets
        # the events of both.
        until(lambda: len(set(world.events("NodePoolCreating"))) == 4 and world.events("NodePoolDeleting"), world.log)
    made = world.created()
    assert len([name for name in made if name != "default-pool"]) == 4
    assert set(made.values()) == {1}


def test_provisioner_jobset_that_kueue_admits_gets_its_pool_then(world: Provisioned):
    shape = catalogue.find("v4-16")
    for document in render.queues({render.PoolKind(shape, "on-demand"): 1}, ["slices"], cpus=8, memory_gb=32):
        world.cluster.apply(document)
    queue = world.cluster.list("LocalQueue", "slices")[0]["metadata"]["name"]
    with world.running():
        for name in ("first", "second"):
            world.send(name, 3600, labels={"kueue.x-k8s.io/queue-name": queue}, suspend=True)
        until(lambda: world.hosts("first") + world.hosts("second") == 2, world.log)
        assert len(world.pools()) == 1
        running = "first" if world.hosts("first") else "second"
        other = "second" if running == "first" else "first"
        world.delete(running)
        until(lambda: world.hosts(other) == 2, world.log)
        world.delete(other)
        until(lambda: not world.pools(), world.log)


def test_provisioner_of_two_replicas_one_acts_and_the_other_goes_on_when_it_is_killed(world: Provisioned):
    first = world.start()
    until(lambda: world.cluster.list("Lease", SYSTEM))
    leader = world.cluster.list("Lease", SYSTEM)[0]["spec"]["holderIdentity"]
    second = world.start()
    try:
        world.send("handed-over", 3600)
        until(lambda: world.hosts("handed-over") == 2, world.log)
        stop(first, signal.SIGKILL)
        world.delete("handed-over")
        world.send("after", 3600)
        until(lambda: world.hosts("after") == 2, world.log)
        assert world.cluster.list("Lease", SYSTEM)[0]["spec"]["holderIdentity"] != leader
        world.delete("after")
        until(lambda: not world.pools(), world.log)
    finally:
        stop(first, signal.SIGKILL)
        stop(second)
    assert set(world.created().values()) == {1}


def test_provisioner_killed_at_every_fault_point_loses_doubles_and_orphans_no_pool(world: Provisioned):
    """Kill the provisioner at a different point each time, while one JobSet arrives and the previous one is deleted."""
    for number, point in enumerate(POINTS):
        before, name = f"killed-{number - 1}", f"killed-{number}"
        if point.endswith(("list", "delete_pool")):  # requires something to remove
            with world.running():
                until(lambda: world.hosts(before) == 2, world.log)  # noqa: B023
        if point.endswith("patch"):  # requires something to remember
            world.box.ask("POST", "emulator/faults", {"kind": "stockout", "times": 1})
        process = world.start(point=point)
        # A separate label: otherwise its pods would use the pool of the deleted JobSet, and there would be nothing to
        # do.
        world.send(name, 3600, selector={**V4_16, "example.com/run": str(number)})
        if number:
            world.delete(before)
        try:
            until(lambda: process.poll() is not None, world.log)  # noqa: B023
        finally:
            stop(process, signal.SIGKILL)
        assert process.returncode == EXIT, (point, world.log()[-2000:])
        world.cluster.delete("Lease", NAME, SYSTEM)  # as if the lease had lapsed
    with world.running():
        until(lambda: world.hosts(name) == 2, world.log)
        until(lambda: len(world.pools()) == 1, world.log)
        world.delete(name)
        until(lambda: not world.pools(), world.log)
    again = [pool for pool, times in world.created().items() if times > 1]
    assert len(again) <= 2, "only those that ran into a stock-out are made twice"


def test_provisioner_faults_of_gke_are_overcome(world: Provisioned):
    faults = [
        {"kind": "lost", "match": "POST .*nodePools$", "times": 1},
        {"kind": "refuse", "match": "POST .*nodePools$", "status": 429, "times": 2},
        {"kind": "stockout", "times": 1},
        {"kind": "lost", "match": "DELETE .*nodePools", "times": 1},
        {"kind": "refuse", "match": "GET .*nodePools$", "status": 503, "times": 2},
    ]
    for fault in faults:
        world.box.ask("POST", "emulator/faults", fault)
    with world.running():
        world.send("unlucky", 3600)
        until(lambda: world.hosts("unlucky") == 2, world.log)

        def explained() -> bool:
            said = world.tpu("explain", "unlucky", "-n", "slices")
            return "NodePoolStockOut" in said and "the node pool is deleted when the JobSet is completed" in said

        until(explained, lambda: world.tpu("explain", "unlucky", "-n", "slices"))
        world.delete("unlucky")
        until(lambda: not world.pools(), world.log)
    world.box.ask("DELETE", "emulator/faults")


def test_provisioner_impossible_request_is_an_event_that_says_what_to_write(world: Provisioned):
    with world.running():
        world.send("odd", 3600, chips=3)
        (said,) = until(lambda: [text for text in world.events("NodePoolImpossible") if "write" in text][:1])
        assert "google.com/tpu: 4" in said
        assert "google.com/tpu: 4" in json.loads(world.tpu("explain", "odd", "-n", "slices", "--json"))["impossible"][0]
    world.delete("odd")


def test_provisioner_example_is_applied_explained_and_deleted_by_the_lines_of_its_page(world: Provisioned):
    apply, pods, explain, logs, delete = LINES
    with world.running():
        assert world.type(apply), world.typed[-1]
        assert world.type(pods), world.typed[-1]
        until(lambda: world.type(explain) and "pool   " in world.typed[-1], lambda: world.typed[-1] + world.log())
        assert "JobSet default/v4-2x2x2 is " in world.typed[-1]
        until(lambda: world.type(logs) and "chips: 8" in world.typed[-1], lambda: world.typed[-1] + world.log())
        assert world.type(delete), world.typed[-1]
        until(lambda: not world.pools(), world.log)


def test_provisioner_needs_every_permission_of_its_custom_role_and_no_other(world: Provisioned):
    """Compare the grants of `tpu provisioner init` with the record of calls: no more, and no less."""
    sets = RoleSets(f"http://127.0.0.1:{world.box.place.ports['google']}", world.box.place.token, PROJECT)
    sets.check(role_sets.PROVISIONER)
    assert sets.used(NAME) == {*PERMISSIONS, "iam.serviceAccounts.actAs"}
    assert sets.granted(NAME) == {f"projects/{PROJECT}/roles/{ROLE}", "roles/iam.serviceAccountUser"}
    role = world.box.ask("GET", f"iam/v1/projects/{PROJECT}/roles/{ROLE}")
    assert set(role["includedPermissions"]) == set(PERMISSIONS)


def test_provisioner_needs_every_rule_of_its_cluster_role_and_no_other(world: Provisioned):
    """Compare the rules of its token with the requests of the tests above."""
    documents = yaml.safe_load_all((ROOT / "deploy" / "base" / "roles.yaml").read_text())
    rules = [rule for one in documents for rule in one.get("rules", ())]
    granted = {(verb, resource) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    assert world.asked == granted


def test_provisioner_image_is_built_and_pushed_by_the_line_that_init_prints(world: Provisioned):
    """Push to a project where `tpu cluster up` has created the resources for image builds."""
    world.box.let_images_be_built(PROJECT, "us", "images")
    repositories = f"artifact_registry/v1/projects/{PROJECT}/locations/us/repositories"
    assert world.type(world.image_line), world.typed[-1]
    (image,) = world.box.ask("GET", f"{repositories}/images/dockerImages")["dockerImages"]
    assert image["uri"].startswith(f"us-docker.pkg.dev/{PROJECT}/images/tpu-provisioner@sha256:")
    assert image["tags"] == ["1"]


def test_provisioner_logs_are_json_with_pool_and_reason(world: Provisioned):
    said = [one for one in lines(world.log()) if one["message"] == "delete node pool"]
    assert said and all(one["pool"] and one["reason"] for one in said)
