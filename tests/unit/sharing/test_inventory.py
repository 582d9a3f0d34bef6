"""The inventory: tables, filters and exports; and TPU VMs created, lost and restarted through the API."""

from __future__ import annotations

import csv
import io
from functools import partial

import pytest

from support.google_world import PROJECT
from support.waiting import PATIENCE
from tpubox.google.tpu import nodes as tpu_nodes
from tpubox.google.wire.faults import Fault
from tpubox.google.wire.server import Emulator
from tpubox.google.wire.settings import EVERY_API, Settings
from tpukit.core.clock import SystemClock
from tpukit.core.errors import Conflict, NoCapacity, NotFound
from tpukit.google import tpu_vm
from tpukit.google.tpu_vm import Node
from tpukit.sharing import inventory, shared_vms
from tpukit.sharing.inventory import Vm

ZONE, OTHER = "us-central2-b", "us-central1-a"


def vm(name: str, type_: str = "v4-8", **fields) -> Vm:
    return Vm(name, fields.pop("zone", ZONE), type_, 1.0, **fields)


def node(name: str, state: str = "READY", type_: str = "v4-8", **fields) -> Node:
    return Node(name, name, state, accelerator=type_, **fields)


KNOWN = [
    vm("g-v4-8-10", user="ada", job="a", since=9.0, notes="=1+1"),
    vm("g-v4-8-9", user="bob", job="b", since=5.0),
    vm("g-v4-8-2", user="cy", job="old", since=7.0),
    vm("g-v3-8-spot-1", "v3-8", spot=True),
    vm("g-v2-8-1", "v2-8", zone=OTHER),
]
NODES = {
    ZONE: [
        *(node("g-v4-8-9"), node("g-v4-8-10"), node("g-v4-8-2"), node("new-v4-8-p1")),
        node("job-x-0", labels={"tpukit-store": "me"}),
        node("g-v3-8-spot-1", "PREEMPTED", "v3-8"),
    ]
}


def rows():
    return inventory.merged(KNOWN, NODES, {"a"}, own="tpukit-store")


def test_merged_shows_who_holds_what_and_leaves_out_what_jobs_made():
    shown = {row.vm.name: (row.state, row.user) for row in rows()}
    assert list(shown) == ["g-v2-8-1", "g-v3-8-spot-1", "g-v4-8-2", "g-v4-8-9", "g-v4-8-10", "new-v4-8-p1"]
    assert shown["g-v4-8-10"] == ("READY", "ada")
    assert shown["g-v4-8-9"] == ("READY", "")  # its job has ended
    assert shown["g-v3-8-spot-1"] == ("PREEMPTED", "")
    assert shown["g-v2-8-1"] == ("UNKNOWN", "")  # its zone was not listed
    assert inventory.merged(KNOWN[:1], {ZONE: []}, {"a"})[0].state == "NOT_FOUND"


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("v2", {"v2-8"}),
        ("v34", {"v3-8", "v4-8"}),
        ("v234", {"v2-8", "v3-8", "v4-8"}),
        ("v*", {"v2-8", "v3-8", "v4-8", "v5litepod-8", "v6e-8"}),
        ("v4-8", {"v4-8"}),
        ("v5", {"v5litepod-8"}),
        ("v6e", {"v6e-8"}),
        ("v4-16", set()),
    ],
)
def test_types_are_found_by_type_generation_and_several_at_once(pattern, meant):
    types = ("v2-8", "v3-8", "v4-8", "v5litepod-8", "v6e-8")
    assert {one for one in types if inventory.fits(pattern, one)} == meant


def test_matching_tells_spot_from_the_rest():
    spot = [row.vm.name for row in inventory.matching(rows(), ["v34"], spot=True)]
    assert spot == ["g-v3-8-spot-1", "new-v4-8-p1"]
    rest = [row.vm.name for row in inventory.matching(rows(), ["v34"], on_demand=True)]
    assert rest == ["g-v4-8-2", "g-v4-8-9", "g-v4-8-10"]


def test_choose_takes_a_free_one_that_was_not_used_lately():
    assert inventory.choose(rows(), "v4-8").vm.name == "new-v4-8-p1"
    assert inventory.choose(inventory.matching(rows(), [], on_demand=True), "v4-8").vm.name == "g-v4-8-9"
    with pytest.raises(NoCapacity, match="g-v3-8-spot-1 PREEMPTED"):
        inventory.choose(rows(), "v3-8")
    with pytest.raises(NoCapacity, match="the inventory has none of this type"):
        inventory.choose(rows(), "v6e-8")


def test_resolve_takes_aliases_full_names_and_short_ones():
    known = {one.name for one in KNOWN}
    assert inventory.resolve("mine", {"mine": "g-v4-8-9"}, known) == "g-v4-8-9"
    assert inventory.resolve("v3-8-p1", {}, known) == "g-v3-8-spot-1"
    assert inventory.resolve("v4-8-10", {}, known) == "g-v4-8-10"
    assert inventory.resolve("new-v4-8-7", {}, known) == "new-v4-8-7"
    with pytest.raises(Conflict, match="could be"):
        inventory.resolve("v4-8-9", {}, {*known, "h-v4-8-9"})


def test_csv_has_a_row_for_each_and_no_formula():
    table = list(csv.DictReader(io.StringIO(inventory.to_csv(rows()))))
    assert [row["name"] for row in table] == [row.vm.name for row in rows()]
    assert next(row for row in table if row["user"] == "ada")["notes"] == "'=1+1"


@pytest.fixture(scope="module")
def emulator(tmp_path_factory):
    with Emulator(tmp_path_factory.mktemp("google"), Settings(enabled=EVERY_API)) as running:
        yield running


@pytest.fixture
def client(emulator, monkeypatch):
    for name, value in emulator.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(shared_vms, "POLL_SECONDS", 0.05)
    emulator.cloud.faults.clear()
    return tpu_vm.Client(PROJECT)


def make(client, one: Vm) -> bool:
    # The label tells the sandbox to start no hosts, because only the API is tested.
    labels = {"tpukit-simulated": "true"}
    asked = shared_vms.apply(client, one, runtime="tpu-ubuntu2204-base", metadata={"ssh-keys": "me:key"}, labels=labels)
    wait(lambda: shared_vms.ready(client, one))
    return asked


def wait(done) -> None:
    shared_vms.wait(SystemClock(), PATIENCE, done, "it")


def test_node_made_as_spot_says_so(client):
    labels = {"tpukit-simulated": "true"}
    wanted = tpu_vm.Request("plain", ("plain",), "v4-8", "tpu-ubuntu2204-base", spot=True, labels=labels)
    client.create(ZONE, wanted)
    assert [node.spot for node in client.nodes(ZONE) if node.name == "plain"] == [True]


def test_apply_twice_asks_once_and_delete_leaves_neither_tpu_nor_request(client):
    one = vm("g-v4-8-1")
    assert make(client, one) is True
    assert make(client, one) is False
    assert shared_vms.delete(client, one)
    wait(lambda: shared_vms.gone(client, one))
    assert not [request for request in client.queued(ZONE) if request.name == one.name]
    assert not shared_vms.delete(client, one)
    with pytest.raises(NotFound, match="does not exist"):
        shared_vms.ready(client, one)


def test_preempted_tpu_is_not_applied_over_but_deleted_and_made_anew(client, emulator):
    one = vm("g-v4-8-spot-2", spot=True)
    make(client, one)
    first = next(node.id for node in client.nodes(ZONE) if node.name == one.name)
    emulator.cloud.faults.set(Fault("preempt", match=one.name))
    wait(lambda: shared_vms.state(client, one) in ("PREEMPTED", "queued: SUSPENDED", "queued: SUSPENDING"))
    with pytest.raises(Conflict, match="reapply"):
        make(client, one)
    emulator.cloud.faults.clear()
    shared_vms.delete(client, one)
    wait(lambda: shared_vms.gone(client, one))
    make(client, one)
    assert next(node.id for node in client.nodes(ZONE) if node.name == one.name) != first


@pytest.mark.parametrize("end", [tpu_nodes.preempt, tpu_nodes.terminate])
def test_waiting_for_a_tpu_that_has_ended_stops_at_once(client, emulator, end):
    one = vm(f"g-v4-8-{end.__name__}")
    labels = {"tpukit-simulated": "true"}
    apply = partial(shared_vms.apply, client, one, runtime="tpu-ubuntu2204-base", metadata={}, labels=labels)
    apply(queued=False)
    wait(lambda: shared_vms.ready(client, one))
    end(emulator.cloud, f"projects/{PROJECT}/locations/{ZONE}/nodes/{one.name}")
    with pytest.raises(Conflict, match="reapply"):
        shared_vms.ready(client, one)


def test_restart_turns_one_host_off_and_on_and_refuses_several(client):
    one, two = vm("g-v4-8-3"), vm("g-v4-16-1", "v4-16")
    make(client, one)
    shared_vms.restart(client, one, SystemClock(), PATIENCE)
    assert shared_vms.state(client, one) == "READY"
    make(client, two)
    with pytest.raises(Conflict, match="2 hosts"):
        shared_vms.restart(client, two, SystemClock(), PATIENCE)
    with pytest.raises(NotFound):
        shared_vms.restart(client, vm("g-v4-8-77"), SystemClock(), PATIENCE)


def test_list_zones_asks_each_zone_once():
    class Zones:
        def __init__(self) -> None:
            self.asked: list[str] = []

        def nodes(self, zone: str) -> list[Node]:
            self.asked.append(zone)
            return [node(f"{zone}-{index}") for index in range(500)]

    cloud = Zones()
    listed = shared_vms.list_zones(cloud, [ZONE, OTHER])  # type: ignore[arg-type]
    assert sorted(cloud.asked) == sorted([ZONE, OTHER])
    assert len(inventory.merged([], listed, set())) == 1000
