"""Every fault that can be injected, one by one and at random, while jobs run.

Invariants: a pool that Google lists has exactly its nodes in Kubernetes; every job ends as expected and no host of it
ran twice in one attempt; refusals use Google's words; after the deletion of everything, nothing is left.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.box import ENDLESS_FIRST, SETTINGS, TEAM, Box, Doc, sandbox, until
from tpubox.box import fault_commands
from tpukit.core.errors import TpukitError
from tpukit.jobs.plan import Plan
from tpukit.places.local import processes as pods

PROJECT = "projects/tpu-project"
REGION = f"{PROJECT}/locations/us-central2"
POOLS = f"container/v1/{REGION}/clusters/here/nodePools"
ZONE = "us-central2-b"
VMS = f"tpu/v2/{PROJECT}/locations/{ZONE}/nodes"
BUCKET = "marks"
WORKLOAD_POOL = "tpu-project.svc.id.goog"
SEED = 20261115
ACTIONS = 40
GRACE = 3.0


class World:
    """A cluster of Google's with two spot slices, and jobs that write a mark for each host that begins."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.jobs: list[Plan] = []
        network = f"{PROJECT}/global/networks/net"
        compute = f"compute/v1/{PROJECT}"
        box.ask("POST", f"{compute}/global/networks", {"name": "net", "autoCreateSubnetworks": False})
        subnet = {"name": "subnet", "ipCidrRange": "10.0.0.0/16", "network": network}
        box.ask("POST", f"{compute}/regions/us-central2/subnetworks", subnet)
        cluster = {"name": "here", "initialNodeCount": 1, "locations": ["us-central2-b"]}
        cluster |= {"network": "net", "subnetwork": "subnet"}
        cluster |= {"workloadIdentityConfig": {"workloadPool": WORKLOAD_POOL}}
        cluster |= {"addonsConfig": {"gcsFuseCsiDriverConfig": {"enabled": True}}}  # jobs mount the bucket
        box.ask(
            "POST",
            POOLS.removesuffix("/here/nodePools"),
            {"cluster": {**cluster, "releaseChannel": {"channel": "UNSPECIFIED"}}},
        )
        until(lambda: box.ask("GET", POOLS.removesuffix("/nodePools"))["status"] == "RUNNING")
        box.ask("POST", f"storage/v1/b?project={PROJECT.partition('/')[2]}", {"name": BUCKET})
        pods_of_team = f"serviceAccount:{WORKLOAD_POOL}[{TEAM}/{SETTINGS.service_account}]"
        binding = {"role": "roles/storage.objectUser", "members": [pods_of_team]}
        box.ask("PUT", f"storage/v1/b/{BUCKET}/iam", {"bindings": [binding]})
        box.add_queue(2)

    def create(self, name: str) -> tuple[int, Doc]:
        pool = {
            "name": name,
            "initialNodeCount": 2,
            "config": {"machineType": "ct4p-hightpu-4t", "spot": True},
            "placementPolicy": {"type": "COMPACT", "tpuTopology": "2x2x2"},
        }
        return self.box.google("POST", POOLS, {"nodePool": pool})

    def delete(self, name: str) -> tuple[int, Doc]:
        return self.box.google("DELETE", f"{POOLS}/{name}")

    def finished(self, operation: Doc) -> Doc:
        """Return an operation once it is done."""

        def done() -> Doc | None:
            found: Doc = self.box.ask("GET", f"container/v1/{REGION}/operations/{operation['name']}")
            return found if found["status"] == "DONE" else None

        found: Doc = until(done)
        return found

    def pool(self, name: str) -> Doc | None:
        status, found = self.box.google("GET", f"{POOLS}/{name}")
        assert status in (200, 404)
        return found if status == 200 else None

    def has(self, name: str) -> bool:
        """Create a pool if it is missing."""
        if self.pool(name) is None:
            status, answer = self.create(name)
            assert status == 200, answer
            assert "error" not in self.finished(answer)
        return True

    def nodes(self) -> dict[str, set[str]]:
        """Return the names of ready nodes by pool."""
        found: dict[str, set[str]] = {}
        for node in self.box.cluster.list("Node"):
            pool = node["metadata"]["labels"]["cloud.google.com/gke-nodepool"]
            found.setdefault(pool, set()).add(node["metadata"]["name"])
        return found

    def agrees(self) -> bool:
        """Check that Kubernetes has exactly the nodes of the existing pools."""
        pools = self.box.ask("GET", "emulator/resources?kind=pool")
        wanted = {full.rpartition("/")[2]: set(doc["_nodes"]) for full, doc in pools.items() if doc["_nodes"]}
        return wanted == self.nodes()

    def settled(self) -> None:
        until(self.agrees)

    def send(self, name: str, *command: str, **fields: Any) -> Plan:
        mounts = [{"bucket": BUCKET, "path": "/marks", "read_only": False}]
        made = self.box.send(name, *command, mounts=mounts, max={"restarts": 1, "grace": f"{GRACE:.0f}s"}, **fields)
        self.jobs.append(made)
        return made

    def sleep(self, name: str, seconds: float) -> Plan:
        return self._marking(name, f"sleep {seconds}")

    def stay(self, name: str) -> Plan:
        """Send a job whose hosts, in every attempt, stay until it is released."""
        return self._marking(name, "until [ -e /marks/$TPUKIT_JOB.release ]; do sleep 0.1; done")

    def release(self, made: Plan) -> None:
        self._bucket.joinpath(f"{made.id}.release").touch()

    def _marking(self, name: str, action: str) -> Plan:
        """Send a job on one slice that writes a mark at the begin and the end of each host of each attempt."""
        mark = "/marks/$TPUKIT_JOB/$TPUKIT_ATTEMPT-$MEGASCALE_SLICE_ID-$TPU_WORKER_ID"
        script = f'mkdir -p /marks/$TPUKIT_JOB; echo began >> "{mark}"; {action}; echo ended >> "{mark}"'
        return self.send(name, "sh", "-c", script, slices=1)

    @property
    def _bucket(self) -> Path:
        return self.box.place.path / "google" / "buckets" / BUCKET

    def marks(self, made: Plan) -> dict[str, list[str]]:
        """Return the marks of each host of each attempt, read through Cloud Storage."""
        listed = self.box.ask("GET", f"storage/v1/b/{BUCKET}/o?prefix={made.id}/").get("items", [])
        return {one["name"].rpartition("/")[2]: (self._bucket / one["name"]).read_text().split() for one in listed}

    def check(self, made: Plan, slices: int) -> None:
        """Check that a job completed, was charged for nothing, and ran no host twice in one attempt."""
        assert self.box.ended(made) == "Completed"
        assert self.box.status(made).get("restartsCountTowardsMax", 0) == 0
        marks = self.marks(made)
        assert all(Counter(words)["began"] == 1 for words in marks.values()), marks
        last = max(int(name.partition("-")[0]) for name in marks)
        ended = [words for name, words in marks.items() if name.startswith(f"{last}-")]
        assert ended == [["began", "ended"]] * 2 * slices, marks

    def clear(self) -> None:
        fault_commands.clear(self.box.place)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with sandbox(tmp_path_factory.mktemp("faults"), "faults") as box:
        yield World(box)


@pytest.fixture
def bystander(world: World) -> Iterator[Plan]:
    """Run a job on its own slice that faults of Google's APIs must not affect."""
    world.has("tpu-0")
    made = world.stay(f"bystander-{len(world.jobs)}")
    until(lambda: len(world.box.running(made)) == 2)
    yield made
    world.clear()
    world.release(made)
    world.check(made, slices=1)
    assert world.box.status(made).get("restarts", 0) == 0


@pytest.mark.parametrize(("code", "status"), [(429, "RESOURCE_EXHAUSTED"), (500, "INTERNAL"), (503, "UNAVAILABLE")])
def test_refused_request_says_why_in_googles_words_and_makes_nothing(world: World, bystander, code: int, status: str):
    fault_commands.add(world.box.place, "refuse", match="POST container.*nodePools", status=code, times=1)
    refused, answer = world.create("refused")
    assert (refused, answer["error"]["code"], answer["error"]["status"]) == (code, code, status)
    assert len(answer["error"]["message"].split()) > 2
    assert world.pool("refused") is None
    world.settled()


def test_quota_used_up_is_refused_with_metric_limit_and_what_is_short(world: World, bystander):
    fault_commands.add(world.box.place, "quota", match="refused", times=1)
    code, answer = world.create("refused")
    assert code == 403
    assert 'resource "PREEMPTIBLE_TPU_PODSLICE_V4"' in answer["error"]["message"]
    assert "short '8.0'" in answer["error"]["message"]
    assert world.pool("refused") is None
    world.settled()


def test_stockout_ends_the_operation_leaves_the_pool_in_error_without_nodes_and_it_can_be_deleted(
    world: World, bystander
):
    fault_commands.add(world.box.place, "stockout", match="dry$", times=1)
    _, operation = world.create("dry")
    done = world.finished(operation)
    assert done["error"]["code"] == 8  # RESOURCE_EXHAUSTED of google.rpc
    assert "does not have enough resources available" in done["statusMessage"]
    pool = world.pool("dry")
    assert pool is not None
    assert (pool["status"], pool["conditions"][0]["code"]) == ("ERROR", "GCE_STOCKOUT")
    world.settled()
    assert "error" not in world.finished(world.delete("dry")[1])
    assert world.pool("dry") is None


def test_operation_that_fails_says_so_and_leaves_no_pool_and_no_node(world: World, bystander):
    fault_commands.add(
        world.box.place, "fail", match="CREATE_NODE_POOL .*failing", message="The zone is on fire.", times=1
    )
    _, operation = world.create("failing")
    assert world.finished(operation)["statusMessage"] == "The zone is on fire."
    assert world.pool("failing") is None
    world.settled()


def test_deletion_that_fails_leaves_the_pool_and_its_nodes_as_they_were(world: World, bystander):
    fault_commands.add(world.box.place, "fail", match="DELETE_NODE_POOL .*tpu-0", times=1)
    assert "An internal error" in world.finished(world.delete("tpu-0")[1])["statusMessage"]
    assert (world.pool("tpu-0") or {})["status"] == "RUNNING"
    world.settled()


def test_slow_operation_is_seen_running_and_a_second_change_of_the_pool_is_refused_meanwhile(world: World, bystander):
    fault_commands.add(world.box.place, "slow", match="CREATE_NODE_POOL .*late", seconds=8.0, times=1)
    _, operation = world.create("late")
    assert operation["status"] == "RUNNING"
    code, answer = world.delete("late")
    assert (code, answer["error"]["status"]) == (400, "FAILED_PRECONDITION")
    world.settled()
    assert "error" not in world.finished(operation)
    world.settled()
    assert "error" not in world.finished(world.delete("late")[1])
    world.settled()


def test_pool_that_comes_up_broken_says_so_and_has_its_nodes(world: World, bystander):
    fault_commands.add(world.box.place, "broken", match="CREATE_NODE_POOL .*odd", times=1)
    assert "error" not in world.finished(world.create("odd")[1])
    assert (world.pool("odd") or {})["status"] == "RUNNING_WITH_ERROR"
    world.settled()
    world.finished(world.delete("odd")[1])
    world.settled()


def test_preempted_tpu_vm_says_so_and_is_gone_when_deleted(world: World, bystander):
    vm = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base", "schedulingConfig": {"spot": True}}
    world.box.ask("POST", f"{VMS}?nodeId=vm", vm)
    fault_commands.add(world.box.place, "preempt", match="nodes/vm$")
    until(lambda: world.box.ask("GET", f"{VMS}/vm")["state"] == "PREEMPTED")
    world.box.ask("DELETE", f"{VMS}/vm")
    until(lambda: world.box.google("GET", f"{VMS}/vm")[0] == 404)


def test_preemption_at_a_step_of_real_jax_resumes_the_job_and_charges_nobody(world: World):
    for name in ("tpu-0", "tpu-1"):
        world.has(name)
    made = world.box.send("jax", "python", "-c", ENDLESS_FIRST, "40", max={"restarts": 1, "grace": "20s"})
    world.box.agent.preempt("tpu-1", step=5, back=1.0)
    assert world.box.ended(made) == "Completed"
    status = world.box.status(made)
    assert status["restarts"] >= 1
    assert status.get("restartsCountTowardsMax", 0) == 0
    assert all(world.box.logs(pod).count("ended") == 1 for pod in world.box.pods(made))
    world.settled()


def test_preempted_slice_leaves_its_chips_to_others_and_returns_when_there_are_enough(world: World, bystander):
    for name in ("tpu-0", "tpu-1"):
        world.has(name)
    world.settled()
    taken = {pod["spec"]["nodeName"] for pod in world.box.running(bystander)}
    (free,) = [name for name in ("tpu-0", "tpu-1") if not taken & world.nodes()[name]]

    def stand(chips: int) -> None:
        world.box.ask("POST", "emulator/limits", {"stock": {"zone": ZONE, "generation": "v4", "chips": chips}})

    def preempted() -> int:
        operations = f"compute/v1/{PROJECT}/zones/{ZONE}/operations"
        listed = world.box.ask("GET", f"{operations}?filter=operationType=compute.instances.preempted")
        return len(listed.get("items", ()))

    stand(16)
    before = preempted()
    try:
        world.box.agent.preempt(free, grace=0, back=None)
        until(lambda: preempted() == before + 2, "two machines more that were preempted")
        assert "error" not in world.finished(world.create("other")[1]), "the chips were not given back"
        assert "error" not in world.finished(world.delete("other")[1])
        world.box.agent.restore(free)
        world.settled()
        stand(8)
        world.box.agent.preempt(free, grace=0, back=1.0)
        until(lambda: preempted() == before + 4, "two machines more that were preempted")
        time.sleep(4)  # longer than the delay until its return
        assert free not in world.nodes()
        stand(16)
        world.settled()
    finally:
        world.box.ask("DELETE", "emulator/limits")
    world.settled()


@pytest.mark.parametrize("action", ["lose", "drain", "preempt"])
def test_host_that_goes_away_costs_an_attempt_and_nobody_is_charged(world: World, action: str):
    world.has("tpu-0")
    made = world.stay(action)
    host = until(lambda: len(found := world.box.running(made)) == 2 and found)[1]["spec"]["nodeName"]
    options = {"lose": {"back": 1.0}, "drain": {}, "preempt": {"grace": GRACE, "back": 1.0}}[action]
    getattr(world.box.agent, action)(host, **options)
    until(lambda: world.box.status(made).get("restarts") or world.box.status(made).get("terminalState"))
    if action == "drain":
        world.box.agent.restore(host)
    world.release(made)
    world.check(made, slices=1)
    assert world.box.status(made)["restarts"] == 1
    world.settled()


def test_hung_host_keeps_the_job_where_it_is_and_goes_on_when_it_is_restored(world: World):
    world.has("tpu-0")
    made = world.stay("hang")
    host = until(lambda: len(found := world.box.running(made)) == 2 and found)[0]["spec"]["nodeName"]
    world.box.agent.hang(host)
    world.release(made)
    time.sleep(3)
    assert not any(one["status"] == "True" for one in world.box.status(made).get("conditions", []))
    world.box.agent.restore(host)
    world.check(made, slices=1)


class Chaos:
    """A random sequence of faults, chosen by a seed."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.random = world, random.Random(seed)
        self.names = ("tpu-0", "tpu-1")
        self.said: list[str] = []

    def act(self, number: int) -> None:
        acts = [self.make, self.make, self.remove, self.google, self.google, self.host, self.host, self.job]
        self.random.choice(acts)(number)
        time.sleep(self.random.uniform(0, 0.8))

    def make(self, _number: int) -> None:
        self.note(self.world.create(self.random.choice(self.names)))

    def remove(self, _number: int) -> None:
        self.note(self.world.delete(self.random.choice(self.names)))

    def note(self, answer: tuple[int, Doc]) -> None:
        code, body = answer
        if code >= 400:
            error = body["error"]
            assert error["code"] == code
            assert error["status"]
            assert len(error["message"].split()) > 2, error
            self.said.append(f"{code} {error['status']}")

    def google(self, _number: int) -> None:
        order: dict[str, Any] = self.random.choice(
            [
                {"kind": "refuse", "match": "POST container", "status": self.random.choice([429, 500, 503])},
                {"kind": "slow", "match": "NODE_POOL", "seconds": 1.0},
                {"kind": "fail", "match": "NODE_POOL"},
                {"kind": "broken", "match": "NODE_POOL"},
                {"kind": "stockout"},
                {"kind": "quota"},
            ]
        )
        fault_commands.add(self.world.box.place, order.pop("kind"), **order, times=1)

    def host(self, _number: int) -> None:
        action = self.random.choice(["preempt", "lose", "hang", "drain", "restore"])
        target, which = self.random.choice(self.names), self.random.random()  # both each time: a seed gives one order
        if action != "preempt" and (found := sorted(self.world.nodes().get(target, ()))):
            target = found[int(which * len(found))]
        options = {"preempt": {"grace": GRACE, "back": 1.0}, "lose": {"back": 1.0}}.get(action, {})
        try:
            getattr(self.world.box.agent, action)(target, **options)
        except TpukitError as error:
            assert len(error.message.split()) > 2
            self.said.append(type(error).__name__)

    def job(self, number: int) -> None:
        self.world.sleep(f"chance-{number}", self.random.uniform(0.5, 3))

    def calm(self) -> None:
        """Stop all faults, and wait until both slices exist."""
        self.world.clear()
        for name in self.names:
            until(partial(self.is_there, name), f"pool {name}", every=0.5)
            self.world.box.agent.restore(name)

    def is_there(self, name: str) -> bool:
        """Check that a pool runs, and recreate it if it is missing or failed."""
        pool = self.world.pool(name)
        if pool is None:
            self.world.create(name)
        elif pool["status"] == "ERROR":
            self.world.delete(name)
        return pool is not None and pool["status"].startswith("RUNNING")


def test_troubles_at_random_lose_double_and_leave_nothing(world: World):
    print(f"seed {SEED}")
    chaos = Chaos(world, SEED)
    before = len(world.jobs)
    for name in chaos.names:
        world.has(name)
    for number in range(ACTIONS):
        chaos.act(number)
    chaos.calm()
    world.settled()
    jobs = world.jobs[before:]
    assert len(jobs) > 2, "this seed sends too few jobs to show anything"
    assert len(set(chaos.said)) > 2, f"this seed was refused too little to show anything: {chaos.said}"
    for made in jobs:
        world.check(made, slices=1)
    sent = {made.id for made in world.jobs}
    names = {one["metadata"]["name"] for one in world.box.cluster.list("JobSet", TEAM)}
    assert sent <= names


def test_when_all_is_taken_away_nothing_is_left(world: World):
    for job in world.box.cluster.list("JobSet", TEAM):
        world.box.cluster.delete("JobSet", job["metadata"]["name"], TEAM, foreground=True)
    until(lambda: not world.box.cluster.list("Pod", TEAM))
    running = world.box.place.path / "agent" / "pods"
    until(lambda: not pods.strays(running) and not list(running.iterdir()))
    world.finished(world.box.ask("DELETE", POOLS.removesuffix("/nodePools")))
    until(lambda: not world.box.cluster.list("Node"))
    until(lambda: world.box.agent.pools() == {})

    def left() -> list[str]:
        every = world.box.ask("GET", "emulator/resources")
        return [one for one in every if one.split()[0] in ("pool", "cluster", "vm")]

    until(lambda: not left())
