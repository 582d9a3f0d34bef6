"""TPU VMs and queued resources through Google's own client, against the emulator."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from google.cloud import tpu_v2
from google.type import interval_pb2

from support.google_world import PROJECT
from support.waiting import until
from tpubox.google.compute import stock_and_quota
from tpubox.google.wire.faults import Fault
from tpubox.google.wire.server import Emulator
from tpubox.google.wire.settings import EVERY_API, Settings
from tpukit.core import fence
from tpukit.core.errors import Conflict, Denied, Invalid, LeaseLost, NoCapacity, NotFound
from tpukit.google import clients, tpu_vm
from tpukit.google.tpu_vm import Request, with_key

ZONE = "us-central2-b"


@pytest.fixture(scope="module")
def emulator(tmp_path_factory):
    with Emulator(tmp_path_factory.mktemp("google"), Settings(enabled=EVERY_API)) as running:
        yield running


@pytest.fixture
def client(emulator, monkeypatch):
    for name, value in emulator.environment().items():
        monkeypatch.setenv(name, value)
    emulator.cloud.faults.clear()
    return tpu_vm.Client(PROJECT)


def request(name: str, *nodes: str, **changes) -> Request:
    # The label tells the sandbox to start no hosts, because only the API is tested.
    labels = {"tpukit-job": name, "tpukit-simulated": "true"}
    values = {"accelerator": "v4-16", "runtime": "tpu-ubuntu2204-base", "labels": labels, **changes}
    return Request(name, nodes or (f"{name}-0",), **values)


def node_of(client, name: str, state: str = "READY"):
    return until(lambda: next((one for one in client.nodes(ZONE) if (one.name, one.state) == (name, state)), None))


def queued_of(client, name: str):
    return next(one for one in client.queued(ZONE) if one.name == name)


def withdraw(client, name: str) -> None:
    client.delete_queued(ZONE, name, queued_of(client, name).id)


def test_request_for_two_slices_becomes_two_tpu_vms_with_their_hosts_and_labels(client):
    client.request(ZONE, request("two", "two-0", "two-1", metadata={"ssh-keys": "me:ssh-ed25519 AAAA"}))
    nodes = [node_of(client, name) for name in ("two-0", "two-1")]
    assert [(one.accelerator, one.queued, len(one.hosts)) for one in nodes] == [("v4-16", "two", 2)] * 2
    assert nodes[0].labels["tpukit-job"] == "two" and nodes[0].metadata == {"ssh-keys": "me:ssh-ed25519 AAAA"}
    assert nodes[0].id != nodes[1].id
    (queued,) = [one for one in client.queued(ZONE) if one.name == "two"]
    assert (queued.state, queued.labels["tpukit-job"]) == ("ACTIVE", "two")
    with pytest.raises(Conflict):
        client.request(ZONE, request("two"))
    client.set_metadata(ZONE, "two-0", nodes[0].id, lambda _: {"ssh-keys": "me:ssh-ed25519 BBBB"})
    until(lambda: node_of(client, "two-0").metadata == {"ssh-keys": "me:ssh-ed25519 BBBB"})
    withdraw(client, "two")
    until(lambda: not [one for one in client.nodes(ZONE) if one.name.startswith("two-")])
    with pytest.raises(NotFound):
        client.delete_queued(ZONE, "two", queued.id)


def test_key_that_another_user_added_since_the_tpu_vm_was_listed_stays(client):
    client.create(ZONE, request("shared", "shared", metadata={"ssh-keys": "ada:ssh-ed25519 AAAA"}))
    listed = node_of(client, "shared")
    client.set_metadata(ZONE, "shared", listed.id, lambda found: with_key(found, "eve:ssh-ed25519 EEEE"))
    until(lambda: "eve:" in node_of(client, "shared").metadata["ssh-keys"])
    client.set_metadata(
        ZONE, "shared", listed.id, lambda found: with_key({**found, "note": "1"}, "bob:ssh-ed25519 BBBB")
    )
    keys = "ada:ssh-ed25519 AAAA\neve:ssh-ed25519 EEEE\nbob:ssh-ed25519 BBBB"
    until(lambda: node_of(client, "shared").metadata == {"ssh-keys": keys, "note": "1"})
    client.delete_node(ZONE, "shared", listed.id)


def test_plain_node_is_made_and_deleted_without_a_queue(client):
    client.create(ZONE, request("plain", "plain", spot=True))
    assert node_of(client, "plain").queued == ""
    client.delete_node(ZONE, "plain", node_of(client, "plain").id)
    until(lambda: not [one for one in client.nodes(ZONE) if one.name == "plain"])


def test_preempted_spot_request_is_suspended_by_the_service(client, emulator):
    client.request(ZONE, request("spot", spot=True))
    node_of(client, "spot-0")
    emulator.cloud.faults.set(Fault("preempt", match="spot-0"))
    found = until(lambda: next((one for one in client.queued(ZONE) if one.state == "SUSPENDED"), None))
    assert (found.name, found.by_service) == ("spot", True)
    withdraw(client, "spot")


def test_request_for_a_reservation_gets_its_chips_from_there(client, emulator):
    stock_and_quota.reserve(emulator.cloud, "mine", ZONE, "v4", 8)
    full = f"projects/{PROJECT}/locations/{ZONE}/reservations/mine"
    client.request(ZONE, request("kept", reservation=full))
    node_of(client, "kept-0")
    client.request(ZONE, request("late", reservation=full))
    until(lambda: [one.state for one in client.queued(ZONE) if one.name == "late"] == ["WAITING_FOR_RESOURCES"])
    for name in ("kept", "late"):
        withdraw(client, name)


@pytest.mark.parametrize("form", ["valid_after_duration", "valid_after_time", "valid_interval"])
def test_request_that_somebody_made_for_later_says_from_when_on_and_can_be_withdrawn(client, form):
    node = tpu_v2.Node(accelerator_type="v4-16", runtime_version="tpu-ubuntu2204-base")
    parent = f"projects/{PROJECT}/locations/{ZONE}"
    spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=parent, node_id="later-0", node=node)
    start = datetime.now(UTC) + timedelta(hours=1)
    values = {
        "valid_after_duration": timedelta(hours=1),
        "valid_after_time": start,
        "valid_interval": interval_pb2.Interval(start_time=start),
    }
    policy = tpu_v2.QueuedResource.QueueingPolicy({form: values[form]})
    later = tpu_v2.QueuedResource(tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec]), queueing_policy=policy)
    google = clients.sign_in(tpu_v2.TpuClient, tpu_vm.ENDPOINT, "v2")
    google.create_queued_resource(parent=parent, queued_resource=later, queued_resource_id="later")
    found = until(lambda: next((one for one in client.queued(ZONE) if one.state == "ACCEPTED"), None))
    assert (found.name, found.nodes, found.error) == ("later", ("later-0",), "")
    told = datetime.strptime(found.after, "%Y-%m-%d %H:%M UTC").replace(tzinfo=UTC)
    assert abs(told - start) < timedelta(minutes=3)
    withdraw(client, "later")
    until(lambda: not [one for one in client.queued(ZONE) if one.name == "later"])


def test_request_that_was_not_fulfilled_in_its_time_has_expired(client, emulator):
    emulator.cloud.faults.set(Fault("stockout", match="brief"))
    client.request(ZONE, request("brief", valid_seconds=1))
    found = until(
        lambda: next((one for one in client.queued(ZONE) if (one.name, one.state) == ("brief", "FAILED")), None)
    )
    assert found.expired
    withdraw(client, "brief")
    emulator.cloud.faults.clear()


def test_tpu_vm_that_was_recreated_under_its_name_is_neither_deleted_nor_changed(client):
    client.create(ZONE, request("again", "again"))
    first = node_of(client, "again").id
    client.delete_node(ZONE, "again", first)
    until(lambda: not [one for one in client.nodes(ZONE) if one.name == "again"])
    client.create(ZONE, request("again", "again"))
    second = node_of(client, "again")
    for call in (
        lambda: client.delete_node(ZONE, "again", first),
        lambda: client.set_metadata(ZONE, "again", first, lambda _: {"ssh-keys": "me:ssh-ed25519 AAAA"}),
        lambda: client.stop(ZONE, "again", first),
        lambda: client.start(ZONE, "again", first),
    ):
        with pytest.raises(Conflict, match="recreated"):
            call()
    assert node_of(client, "again") == second
    client.delete_node(ZONE, "again", second.id)


def test_queued_resource_that_was_recreated_under_its_name_is_not_deleted(client):
    client.request(ZONE, request("twice"))
    node_of(client, "twice-0")
    first = queued_of(client, "twice").id
    client.delete_queued(ZONE, "twice", first)
    until(lambda: not [one for one in client.queued(ZONE) if one.name == "twice"])
    client.request(ZONE, request("twice"))
    with pytest.raises(Conflict, match="recreated"):
        client.delete_queued(ZONE, "twice", first)
    assert queued_of(client, "twice").state != "DELETING"
    until(lambda: queued_of(client, "twice").state == "ACTIVE")
    withdraw(client, "twice")


def lost() -> float:
    raise LeaseLost("another driver has it")


def test_driver_that_lost_its_lease_sends_nothing_that_changes_a_tpu_vm(client):
    client.create(ZONE, request("held", "held"))
    client.request(ZONE, request("line"))
    node, queued = node_of(client, "held"), queued_of(client, "line")
    with fence.held(lost):
        for call in (
            lambda: client.request(ZONE, request("more")),
            lambda: client.create(ZONE, request("more", "more")),
            lambda: client.delete_node(ZONE, "held", node.id),
            lambda: client.delete_queued(ZONE, "line", queued.id),
            lambda: client.set_metadata(ZONE, "held", node.id, lambda _: {"key": "value"}),
            lambda: client.stop(ZONE, "held", node.id),
            lambda: client.start(ZONE, "held", node.id),
        ):
            with pytest.raises(LeaseLost):
                call()
        assert not [one for one in client.nodes(ZONE) if one.name.startswith("more")]
    assert node_of(client, "held") == node
    until(lambda: queued_of(client, "line").state == "ACTIVE")
    client.delete_node(ZONE, "held", node.id)
    withdraw(client, "line")


def test_call_may_take_no_longer_than_the_lease_is_held(client, monkeypatch):
    given = []
    monkeypatch.setattr(
        tpu_v2.TpuClient, "create_queued_resource", lambda self, message, timeout: given.append(timeout)
    )
    client.request(ZONE, request("brief"))
    with fence.held(lambda: 7.0):
        client.request(ZONE, request("brief"))
    assert given == [clients.SECONDS, 7.0]


def test_refusals_are_told_apart(client, emulator):
    with pytest.raises(Invalid, match="Runtime version"):
        client.request(ZONE, request("wrong", runtime="v9"))
    with pytest.raises(NotFound):
        client.host_keys(ZONE, "nothing")
    emulator.cloud.faults.set(Fault("quota", match="much"))
    with pytest.raises(NoCapacity, match="Quota limit"):
        client.request(ZONE, request("much"))


def test_without_a_token_an_emulator_is_not_asked(client, monkeypatch):
    monkeypatch.delenv(clients.TOKEN)
    with pytest.raises(Denied, match="no token"):
        tpu_vm.Client(PROJECT)
