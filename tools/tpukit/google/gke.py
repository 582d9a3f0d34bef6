"""Node pools and operations of one GKE cluster, through google-cloud-container.

A call returns as soon as GKE has accepted the request, and does not wait for the operation. The variables of Google's
Terraform provider select an emulator. Calls that change something check the fence immediately before they are sent, and
are sent once: Google's client would retry a delete by itself, without a check in between.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar

from tpukit.core import fence, resources
from tpukit.core.errors import Conflict, Invalid, Transient
from tpukit.google.clients import SECONDS, ask, sign_in
from tpukit.google.refusals import is_failed_precondition

ENDPOINT = "GOOGLE_CONTAINER_CUSTOM_ENDPOINT"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NodePool:
    """Node pool as GKE lists it, with the fields that tpukit reads."""

    name: str
    status: str  # PROVISIONING RUNNING RUNNING_WITH_ERROR RECONCILING STOPPING ERROR
    message: str = ""  # GKE's explanation of an ERROR
    machine_type: str = ""
    topology: str = ""  # set for a slice of several hosts
    zones: tuple[str, ...] = ()
    nodes: int = 0  # at creation; the maximum for a pool that scales
    spot: bool = False
    flex_start: bool = False
    reservation: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[tuple[str, str, str], ...] = ()  # key, value, effect


@dataclass(frozen=True, slots=True)
class Operation:
    name: str
    kind: str  # CREATE_NODE_POOL DELETE_NODE_POOL ...
    target: str  # name of the pool, or of the cluster
    done: bool
    error: str = ""  # set if it failed: done does not mean successful
    started: float = 0.0
    ended: float = 0.0


class Gke(Protocol):
    """Interface of GKE. Errors are those of tpukit.core.errors."""

    def pools(self) -> Sequence[NodePool]: ...

    def operations(self) -> Sequence[Operation]: ...

    def create_pool(self, body: Mapping[str, Any]) -> Operation:
        """Create the pool in `body`, a NodePool of the REST API. Raise Conflict if the name is taken."""

    def delete_pool(self, name: str, labels: Mapping[str, str]) -> Operation:
        """Delete the pool with these labels. Raise NotFound if it is gone, Conflict if another pool has its name."""


class Client:
    """Client of one cluster. Safe from any thread."""

    def __init__(self, project: str, location: str, cluster: str) -> None:
        try:
            from google.cloud import container_v1
        except ImportError as error:
            hint = resources.install_hint("provisioner")
            raise Invalid("google-cloud-container is not installed", hint=hint) from error
        self._types: Any = container_v1
        self._parent = f"projects/{project}/locations/{location}"
        self._cluster = f"{self._parent}/clusters/{cluster}"
        self._client = sign_in(container_v1.ClusterManagerClient, ENDPOINT, "v1")

    def pools(self) -> Sequence[NodePool]:
        request = self._types.ListNodePoolsRequest(parent=self._cluster)
        answer = ask("list node pools", lambda: self._client.list_node_pools(request, timeout=SECONDS))
        return [_pool(pool) for pool in type(answer).pb(answer).node_pools]

    def operations(self) -> Sequence[Operation]:
        request = self._types.ListOperationsRequest(parent=self._parent)
        answer = ask("list operations", lambda: self._client.list_operations(request, timeout=SECONDS))
        links = [_operation(one) for one in type(answer).pb(answer).operations]
        # Google writes a link's project as its number, so compare only the path after it.
        mine = self._cluster.partition("/locations/")[2]
        return [operation for link, operation in links if f"{link}/".partition("/locations/")[2].startswith(f"{mine}/")]

    def create_pool(self, body: Mapping[str, Any]) -> Operation:
        from google.protobuf import json_format

        request = self._types.CreateNodePoolRequest(parent=self._cluster)
        try:
            json_format.ParseDict(dict(body), type(request).pb(request).node_pool)
        except json_format.ParseError as error:
            raise Invalid(f"node pool {body.get('name')}: {error}") from error
        call = self._client.create_node_pool
        answer = _change(
            f"create node pool {body['name']}", lambda: call(request, retry=None, timeout=fence.deadline(SECONDS))
        )
        return _operation(type(answer).pb(answer))[1]

    def delete_pool(self, name: str, labels: Mapping[str, str]) -> Operation:
        """Read and compare the pool before deleting it, because GKE's delete has no precondition.

        https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters.nodePools/delete
        """
        path = f"{self._cluster}/nodePools/{name}"
        wanted = self._types.GetNodePoolRequest(name=path)
        there = ask(f"get node pool {name}", lambda: self._client.get_node_pool(wanted, timeout=SECONDS))
        found = dict(type(there).pb(there).config.labels)
        if not labels.items() <= found.items():
            raise Conflict(f"another node pool is called {name} now: the one to delete had other labels")
        request, call = self._types.DeleteNodePoolRequest(name=path), self._client.delete_node_pool
        answer = _change(f"delete node pool {name}", lambda: call(request, retry=None, timeout=fence.deadline(SECONDS)))
        return _operation(type(answer).pb(answer))[1]


def _change(asked: str, call: Callable[[], T]) -> T:
    """Send a request that changes something. Raise a failed precondition as Transient.

    It passes by itself: another operation is in progress, or the control plane is being upgraded
    (https://github.com/hashicorp/terraform-provider-google/issues/3650).
    """
    try:
        return ask(asked, call)
    except Invalid as error:
        if is_failed_precondition(error.__cause__):
            raise Transient(error.message, retry_after=5.0) from error.__cause__
        raise


def _pool(pool: Any) -> NodePool:
    """Read a pool from the message itself: its wrapper and its conversion to a dict take many times as long."""
    config = pool.config
    scales = pool.autoscaling.enabled and not pool.initial_node_count
    affinity = config.reservation_affinity
    return NodePool(
        name=pool.name,
        status=_enum(pool, "status"),
        message=pool.status_message or " ".join(condition.message for condition in pool.conditions),
        machine_type=config.machine_type,
        topology=pool.placement_policy.tpu_topology,
        zones=tuple(pool.locations),
        nodes=pool.autoscaling.max_node_count if scales else pool.initial_node_count,
        spot=config.spot or config.preemptible,
        flex_start=config.flex_start,
        reservation=next(iter(affinity.values), ""),
        labels=dict(config.labels),
        taints=tuple((taint.key, taint.value, _enum(taint, "effect")) for taint in config.taints),
    )


def _operation(operation: Any) -> tuple[str, Operation]:
    """Return an operation with the link of its target."""
    # Links of a zonal cluster still say "zones".
    link = (operation.target_link.partition("/v1/")[2] or operation.target_link).replace("/zones/", "/locations/")
    return link, Operation(
        name=operation.name,
        kind=_enum(operation, "operation_type"),
        target=link.rpartition("/")[2],
        done=_enum(operation, "status") == "DONE",
        error=operation.error.message or operation.status_message,
        started=_seconds(operation.start_time),
        ended=_seconds(operation.end_time),
    )


def _seconds(stamp: str) -> float:
    """Return seconds since the epoch; 0 for no time.

    Cut off nanoseconds, which older versions of Python do not read.
    """
    try:
        return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", stamp)).timestamp()
    except ValueError:
        return 0.0


def _enum(message: Any, name: str) -> str:
    """Return the name of an enum value, or its number if this version of the package does not know it."""
    number = getattr(message, name)
    value = message.DESCRIPTOR.fields_by_name[name].enum_type.values_by_number.get(number)
    return str(value.name) if value is not None else str(number)
