"""TPU VMs and queued resources of one project, through google-cloud-tpu (Cloud TPU API v2).

A call returns as soon as Google has accepted the request, before its operation is done. Deletes and updates have no
precondition in this API, so each reads the object first, compares its id, and checks the fence before it is sent. The
variables of Google's Terraform provider select an emulator.
https://cloud.google.com/tpu/docs/reference/rest
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from tpukit.core import fence, resources
from tpukit.core.errors import Conflict, Invalid
from tpukit.google import os_login
from tpukit.google.clients import SECONDS, ask, sign_in

ENDPOINT = "GOOGLE_TPU_V2_CUSTOM_ENDPOINT"
SSH_KEYS = "ssh-keys"
CLOCK_SECONDS = 300.0
"""Largest difference between the clocks of Google and of this machine."""
Change = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Function from the present metadata to the new metadata."""


@dataclass(frozen=True, slots=True)
class Host:
    """Worker of a TPU VM, with its addresses."""

    internal: str
    external: str = ""

    @property
    def address(self) -> str:
        return self.external or self.internal


@dataclass(frozen=True, slots=True)
class Node:
    """TPU VM, which the API calls a node."""

    name: str
    id: str  # unique: a recreated node has another one
    state: str  # READY, CREATING, PREEMPTED and others; "" if unknown, which is not bad news
    health: str = ""
    accelerator: str = ""
    hosts: tuple[Host, ...] = ()
    queued: str = ""  # name of the queued resource that made it
    labels: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    says: str = ""  # Google's description of its health
    spot: bool = False  # may be preempted; preemptible is the older word for spot


@dataclass(frozen=True, slots=True)
class Queued:
    """Queued resource: a request for TPU VMs that waits until there are some."""

    name: str
    state: str  # CREATING ACCEPTED WAITING_FOR_RESOURCES PROVISIONING ACTIVE SUSPENDING SUSPENDED FAILED DELETING
    by_service: bool = False  # Google changed the state, not a user
    error: str = ""  # set if it FAILED
    expired: bool = False  # FAILED because it was not fulfilled within its validity
    labels: Mapping[str, str] = field(default_factory=dict)  # of the requested nodes
    nodes: tuple[str, ...] = ()  # their names
    after: str = ""  # earliest start, for people; empty: any time
    id: str = ""  # creation time: the API has nothing else to tell apart two of the same name


@dataclass(frozen=True, slots=True)
class Request:
    """Request for TPU VMs of one shape."""

    name: str
    nodes: tuple[str, ...]
    accelerator: str
    runtime: str
    spot: bool = False
    reservation: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    external_ips: bool = True
    valid_seconds: int = 0  # a queued request that is not fulfilled by then fails; 0: no limit


class TpuVms(Protocol):
    """Interface of the Cloud TPU API. Errors are those of tpukit.core.errors."""

    def nodes(self, zone: str) -> Sequence[Node]: ...

    def queued(self, zone: str) -> Sequence[Queued]: ...

    def request(self, zone: str, request: Request) -> None:
        """Queue a request. Raise Conflict if the name is taken."""

    def create(self, zone: str, request: Request) -> None:
        """Create TPU VMs at once, without a queue. NoCapacity comes later, as an error of the operation."""

    def delete_queued(self, zone: str, name: str, expected: str) -> None:
        """Delete a queued resource with its nodes. Raise NotFound if it is gone, Conflict if it has another id."""

    def delete_node(self, zone: str, name: str, expected: str) -> None:
        """Delete a TPU VM. Raise NotFound if it is gone, Conflict if it has another id."""

    def host_keys(self, zone: str, name: str) -> Sequence[Sequence[str]]:
        """Return the public host keys of each worker; empty before the machines published them."""

    def set_metadata(self, zone: str, name: str, expected: str, change: Change) -> None:
        """Replace the metadata of a TPU VM with the result of `change`. Raise Conflict if it has another id."""

    def login(self, public_key: str) -> str:
        """Register the key with OS Login, and return the caller's user name; empty if the project has it off."""


class Client:
    """Client of one project. Safe from any thread."""

    def __init__(self, project: str) -> None:
        try:
            # Operations carry a message of this package, which google-cloud-tpu does not depend on. Without it, a REST
            # response cannot be read, although the request succeeds.
            from google.cloud import (
                common,  # noqa: F401
                tpu_v2,
            )
        except ImportError as error:
            raise Invalid("google-cloud-tpu is not installed", hint=resources.install_hint("tpu-vm")) from error
        self._types: Any = tpu_v2
        self._project = project
        self._client = sign_in(tpu_v2.TpuClient, ENDPOINT, "v2")

    def nodes(self, zone: str) -> Sequence[Node]:
        request = self._types.ListNodesRequest(parent=self._parent(zone), page_size=1000)
        call = ask(f"list TPU VMs of {zone}", lambda: _all(self._client.list_nodes(request, timeout=SECONDS)))
        return [_node(one) for one in call]

    def queued(self, zone: str) -> Sequence[Queued]:
        request = self._types.ListQueuedResourcesRequest(parent=self._parent(zone), page_size=1000)
        asked = f"list queued resources of {zone}"
        call = ask(asked, lambda: _all(self._client.list_queued_resources(request, timeout=SECONDS)))
        return [_queued(one) for one in call]

    def request(self, zone: str, request: Request) -> None:
        types, parent = self._types, self._parent(zone)
        spec = types.QueuedResource.Tpu.NodeSpec(parent=parent, node=self._node(request))
        if len(request.nodes) > 1:
            prefix = request.nodes[0].removesuffix("-0")
            spec.multislice_params = type(spec).MultisliceParams(node_count=len(request.nodes), node_id_prefix=prefix)
        else:
            spec.node_id = request.nodes[0]
        queued = types.QueuedResource(tpu=types.QueuedResource.Tpu(node_spec=[spec]))
        if request.spot:
            queued.spot = types.QueuedResource.Spot()
        elif request.reservation:
            queued.guaranteed = types.QueuedResource.Guaranteed()  # `reserved` is a field of v2alpha1's alone
            queued.reservation_name = request.reservation
        if request.valid_seconds:
            # https://cloud.google.com/tpu/docs/queued-resources: a request that is not filled by then expires.
            policy = types.QueuedResource.QueueingPolicy(valid_until_duration=timedelta(seconds=request.valid_seconds))
            queued.queueing_policy = policy
        message = types.CreateQueuedResourceRequest(
            parent=parent, queued_resource_id=request.name, queued_resource=queued
        )
        asked = f"request {len(request.nodes)} × {request.accelerator} in {zone} as {request.name}"
        self._send(asked, self._client.create_queued_resource, message)

    def create(self, zone: str, request: Request) -> None:
        for name in request.nodes:
            node = self._node(request)
            node.scheduling_config = self._types.SchedulingConfig(spot=request.spot, reserved=bool(request.reservation))
            message = self._types.CreateNodeRequest(parent=self._parent(zone), node_id=name, node=node)
            self._send(f"create TPU VM {name} in {zone}", self._client.create_node, message)

    def delete_queued(self, zone: str, name: str, expected: str) -> None:
        asked, full = f"delete queued resource {name} in {zone}", f"{self._parent(zone)}/queuedResources/{name}"
        found = ask(asked, lambda: self._client.get_queued_resource(name=full, timeout=SECONDS))
        queued = _queued(type(found).pb(found))
        _expect(asked, queued.id, expected)
        # A FAILED one has no TPU VM, and a node name in it may now belong to another user.
        message = self._types.DeleteQueuedResourceRequest(name=full, force=queued.state != "FAILED")
        self._send(asked, self._client.delete_queued_resource, message)

    def delete_node(self, zone: str, name: str, expected: str) -> None:
        asked = f"delete TPU VM {name} in {zone}"
        message = self._types.DeleteNodeRequest(name=self._expected(asked, zone, name, expected).name)
        self._send(asked, self._client.delete_node, message)

    def stop(self, zone: str, name: str, expected: str) -> None:
        asked = f"stop TPU VM {name} in {zone}"
        message = self._types.StopNodeRequest(name=self._expected(asked, zone, name, expected).name)
        self._send(asked, self._client.stop_node, message)

    def start(self, zone: str, name: str, expected: str) -> None:
        asked = f"start TPU VM {name} in {zone}"
        message = self._types.StartNodeRequest(name=self._expected(asked, zone, name, expected).name)
        self._send(asked, self._client.start_node, message)

    def host_keys(self, zone: str, name: str) -> Sequence[Sequence[str]]:
        full = f"{self._parent(zone)}/nodes/{name}"
        message = self._types.GetGuestAttributesRequest(name=full, worker_ids=[""])
        asked = f"ask for the host keys of {name} in {zone}"
        answer = ask(asked, lambda: self._client.get_guest_attributes(message, timeout=SECONDS))
        return [
            [f"{item.key} {item.value}" for item in worker.query_value.items if item.namespace == "hostkeys"]
            for worker in type(answer).pb(answer).guest_attributes
        ]

    def set_metadata(self, zone: str, name: str, expected: str, change: Change) -> None:
        asked = f"change the metadata of {name} in {zone}"
        found = self._expected(asked, zone, name, expected)
        present = dict(found.metadata)
        metadata = dict(change(present))
        if metadata == present:
            return
        # Nodes have no etag: a write by another user between the call above and this one is lost.
        node = self._types.Node(name=found.name, metadata=metadata)
        message = self._types.UpdateNodeRequest(node=node, update_mask={"paths": ["metadata"]})
        self._send(asked, self._client.update_node, message)

    def login(self, public_key: str) -> str:
        return os_login.login(self._project, public_key)

    def _expected(self, asked: str, zone: str, name: str, expected: str) -> Any:
        """Return the node, if it still has this id."""
        full = f"{self._parent(zone)}/nodes/{name}"
        found = ask(asked, lambda: self._client.get_node(name=full, timeout=SECONDS))
        _expect(asked, str(found.id), expected)
        return found

    def _send(self, asked: str, method: Callable[..., Any], message: Any) -> None:
        """Send a request that changes something, after a final check of the fence."""
        ask(asked, lambda: method(message, timeout=fence.deadline(SECONDS)))

    def _node(self, request: Request) -> Any:
        return self._types.Node(
            accelerator_type=request.accelerator,
            runtime_version=request.runtime,
            network_config=self._types.NetworkConfig(enable_external_ips=request.external_ips),
            labels=dict(request.labels),
            metadata=dict(request.metadata),
        )

    def _parent(self, zone: str) -> str:
        return f"projects/{self._project}/locations/{zone}"


def with_key(metadata: Mapping[str, str], line: str) -> Mapping[str, str]:
    """Add a line to the SSH keys in the metadata of a TPU VM."""
    known = metadata.get(SSH_KEYS, "").splitlines()
    return metadata if line in known else {**metadata, SSH_KEYS: "\n".join([*known, line])}


def _expect(asked: str, found: str, expected: str) -> None:
    if found != expected:
        raise Conflict(f"{asked}: it was recreated under this name: it is {found}, not {expected}")


def _all(pages: Any) -> list[Any]:
    """Return the messages themselves: their wrappers take many times as long to read."""
    return [type(one).pb(one) for one in pages]


def _node(node: Any) -> Node:
    return Node(
        name=node.name.rpartition("/")[2],
        id=str(node.id),
        state=_enum(node, "state"),
        health=_enum(node, "health"),
        accelerator=node.accelerator_type,
        hosts=tuple(Host(one.ip_address, one.access_config.external_ip) for one in node.network_endpoints),
        queued=node.queued_resource.rpartition("/")[2],
        labels=dict(node.labels),
        metadata=dict(node.metadata),
        says=node.health_description,
        spot=node.scheduling_config.spot or node.scheduling_config.preemptible,
    )


def _queued(queued: Any) -> Queued:
    specs = queued.tpu.node_spec
    labels = [dict(spec.node.labels) for spec in specs]
    return Queued(
        name=queued.name.rpartition("/")[2],
        state=_enum(queued.state, "state"),
        by_service=_enum(queued.state, "state_initiator") == "SERVICE",
        error=queued.state.failed_data.error.message,
        expired=_enum(queued.state, "state") == "FAILED" and _is_over(queued),
        labels=labels[0] if labels else {},
        nodes=tuple(name for spec in specs for name in _names(spec, queued.name.rpartition("/")[2])),
        after=_after(queued),
        id=queued.create_time.ToJsonString() if queued.HasField("create_time") else "",
    )


def _after(queued: Any) -> str:
    """Return the earliest start of a request; empty for none, as in all requests of tpukit."""
    policy = queued.queueing_policy
    if policy.HasField("valid_after_duration"):
        at = queued.create_time.seconds + policy.valid_after_duration.seconds
    else:
        at = policy.valid_after_time.seconds or policy.valid_interval.start_time.seconds
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC" if at else ""


def _is_over(queued: Any) -> bool:
    """Return whether the validity of a request is over, as far as clocks agree."""
    policy = queued.queueing_policy
    if not policy.HasField("valid_until_duration"):
        return False
    left = queued.create_time.seconds + policy.valid_until_duration.seconds - datetime.now(UTC).timestamp()
    return left <= CLOCK_SECONDS or "expired" in queued.state.failed_data.error.message


def _names(spec: Any, queued: str) -> list[str]:
    several = spec.multislice_params
    prefix = several.node_id_prefix or queued
    return [spec.node_id] if spec.node_id else [f"{prefix}-{number}" for number in range(several.node_count)]


def _enum(message: Any, name: str) -> str:
    """Return the name of an enum value; empty if unset, or unknown to this version of the package."""
    number = getattr(message, name)
    value = message.DESCRIPTOR.fields_by_name[name].enum_type.values_by_number.get(number)
    return str(value.name) if value is not None and number else ""
