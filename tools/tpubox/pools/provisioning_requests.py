"""An emulation of GKE's queued provisioning: all nodes of a ProvisioningRequest are provisioned together.

A request is accepted, and waits until one pool is free for all of its pods and there are chips for them. GKE makes one
resize request of it, in one pool, so it fails if no single pool could ever hold its pods: a job of two slices is two
pools. https://github.com/AI-Hypercomputer/xpk/pull/631

When its nodes exist it is Provisioned, and ten minutes later its booking ends: idle nodes may then be removed.
https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest Nodes that have reached the maximum lifetime
of a flex-start slice are not removed here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from tpubox.google.gke.pool_updates import scale
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.refusal import Refused
from tpubox.kubelet.times import stamp
from tpubox.pools.pool_fit import Scalable, fits
from tpukit.core.errors import NotFound
from tpukit.kube import Cluster, Kind

CLASS = "queued-provisioning.gke.io"
BOOKED_SECONDS = 600.0
RETRY_SECONDS = 30.0
"""Seconds between two attempts to get chips for a waiting request: GKE's interval is a guess."""
_REQUESTS = Kind("autoscaling.x-k8s.io/v1", "provisioningrequests")
_TEMPLATES = Kind("v1", "podtemplates")
_NODE_LABEL = "autoscaling.gke.io/provisioning-request"
_log = logging.getLogger(__name__)

Object = Mapping[str, Any]


def wanted(pods: Sequence[tuple[Object, int]], pools: Sequence[Scalable]) -> Scalable | None:
    """Return the pool that holds all these pods, so many of each template; None if no pool ever could.

    A pool in use counts too, so that a request waits for it.
    """
    count = sum(number for _, number in pods)
    able = [pool for pool in pools if pool.most >= count and all(fits(template, pool) for template, _ in pods)]
    return min(able, key=lambda pool: pool.size > 0, default=None)


class ProvisioningRequests:
    def __init__(self, cloud: Cloud, cluster: Cluster) -> None:
        self._cloud = cloud
        self._cluster = cluster
        self._pools: dict[str, str] = {}  # that grows or grew for a request, by its uid
        self._tried: dict[str, float] = {}

    def tick(self, pools: Sequence[Scalable]) -> None:
        """Advance all requests. `pools` are those of queued provisioning without an operation in progress."""
        queued = [doc for doc in self._cloud.state.all("pool").values() if _is_queued(doc)]
        if not queued:
            return
        try:
            every = self._cluster.call("GET", _REQUESTS.path())["items"]
        except NotFound:
            return
        self._pools = {uid: name for uid, name in self._pools.items() if uid in {_uid(one) for one in every}}
        for one in sorted(every, key=lambda one: str(one["metadata"]["creationTimestamp"])):
            if one["spec"]["provisioningClassName"] == CLASS and not _condition(one, "Failed"):
                self._step(one, pools, busy=len(pools) < len(queued))

    def _step(self, request: Object, pools: Sequence[Scalable], *, busy: bool) -> None:
        uid, now = _uid(request), self._cloud.clock.now()
        if _condition(request, "Provisioned"):
            began = self._tried.setdefault(uid, now)
            if now - began >= BOOKED_SECONDS and not _condition(request, "BookingExpired"):
                self._say(request, "BookingExpired", "The booking of the nodes is over.")
            return
        if not _condition(request, "Accepted"):
            self._say(request, "Accepted", "The request is in the queue.")
            return
        if uid in self._pools:
            self._follow(request, pools)
        elif now - self._tried.get(uid, -RETRY_SECONDS) >= RETRY_SECONDS:
            self._begin(request, pools, busy=busy)

    def _begin(self, request: Object, pools: Sequence[Scalable], *, busy: bool) -> None:
        chosen = wanted(self._templates(request), pools)
        if chosen is None and not busy:
            self._say(request, "Failed", "Pods of the request cannot be scheduled in any node pool.")
        if chosen is None or chosen.size or chosen.full in self._pools.values():
            return
        uid = _uid(request)
        self._tried[uid] = self._cloud.clock.now()
        try:
            scale(self._cloud, chosen.full, chosen.most)
            self._pools[uid] = chosen.full
        except Refused as refused:
            _log.info("provisioning request %s: %s", request["metadata"]["name"], refused.message)
            self._give_up(uid)

    def _follow(self, request: Object, pools: Sequence[Scalable]) -> None:
        uid = _uid(request)
        mine = next((pool for pool in pools if pool.full == self._pools[uid]), None)
        if mine is None:
            return  # its nodes are being created
        if mine.size < mine.most:
            self._give_up(uid)  # chips do not suffice for all: remove the nodes and wait for the next attempt
            return
        name = f"gke-{request['metadata']['namespace']}-{request['metadata']['name']}"[:63]
        for node in self._cloud.state.all("pool")[mine.full]["_nodes"]:
            self._cluster.patch("Node", node, {"metadata": {"labels": {_NODE_LABEL: name}}})
        self._tried[uid] = self._cloud.clock.now()
        self._say(request, "Provisioned", "All nodes of the request are there.", {"ResizeRequestName": name})

    def _give_up(self, uid: str) -> None:
        self._tried[uid] = self._cloud.clock.now()
        full = self._pools.pop(uid, "")
        with self._cloud.state.transaction():
            if doc := self._cloud.state.get("pool", full):
                self._cloud.state.put("pool", full, {**doc, "_unfilled": ""})
        if doc and doc["_size"]:
            scale(self._cloud, full, 0)

    def _templates(self, request: Object) -> list[tuple[Object, int]]:
        namespace = request["metadata"]["namespace"]
        found = []
        for part in request["spec"]["podSets"]:
            name = part["podTemplateRef"]["name"]
            found.append((self._cluster.call("GET", _TEMPLATES.path(namespace, name))["template"], part["count"]))
        return found

    def _say(self, request: Object, kind: str, message: str, details: Mapping[str, str] | None = None) -> None:
        meta = request["metadata"]
        now = stamp(self._cloud.clock.now())
        condition = {"type": kind, "status": "True", "reason": kind, "message": message, "lastTransitionTime": now}
        conditions = [*request.get("status", {}).get("conditions", []), condition]
        status = {"conditions": conditions, **({"provisioningClassDetails": details} if details else {})}
        path = _REQUESTS.path(meta["namespace"], meta["name"], "status")
        self._cluster.call("PATCH", path, body={"status": status}, content="application/merge-patch+json")


def _is_queued(pool: Object) -> bool:
    return bool(pool.get("queuedProvisioning", {}).get("enabled"))


def _uid(request: Object) -> str:
    return str(request["metadata"]["uid"])


def _condition(request: Object, kind: str) -> bool:
    conditions = request.get("status", {}).get("conditions", [])
    return any(one["type"] == kind and one["status"] == "True" for one in conditions)
