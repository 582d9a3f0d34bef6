"""A GKE in memory that acts by itself, with an unreliable connection.

Operations take time and may fail, chips run out, pools get status ERROR, hosts are preempted and return. Answers may be
lost, and the calling process may be killed at any call.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from tpukit.core import fence
from tpukit.core.clock import ManualClock
from tpukit.core.errors import Conflict
from tpukit.google.gke import NodePool, Operation
from tpukit.google.refusals import _of_status

Doc = dict[str, Any]
TOO_MANY = 'Too many operations: cluster "c" hits the concurrent operations quota 5, please try again later.'
UNDER_WAY = (
    "Operation operation-1 is currently creating a node pool for cluster c. Please wait and try again once it is done."
)
STOCKOUT = "Not all instances running in IGM. Current errors: [GCE_STOCKOUT]: zone does not have enough resources."
QUOTA = 'Insufficient regional quota to satisfy request: resource "TPUS": request requires 16 and is short 16.'


class Killed(BaseException):
    """The driving process is killed: nothing of it may continue, not even its error handlers."""


class SimulatedGke:
    """The simulation. Faults are by number of the call: refused | busy | conflict | lost | killed | killed after."""

    def __init__(self, clock: ManualClock, seed: int = 0, *, at_once: int = 5) -> None:
        self.clock, self.dice, self.at_once = clock, random.Random(seed), at_once
        self.pool_docs: dict[str, Doc] = {}
        self.ops: list[Doc] = []
        self.calls: list[str] = []
        self.faults: dict[int, str] = {}
        self.stock: dict[tuple[str, str], int] = {}  # chips by zone and capacity type; without an entry unlimited
        self.quota: int | None = None  # total chips
        self.breaks: Counter[str] = Counter()  # pools whose next creates fail, by name; "" matches all
        self.seconds = (60.0, 60.0)
        self.came: Callable[[NodePool], None] = lambda pool: None
        self.went: Callable[[str], None] = lambda name: None
        self.made: Counter[str] = Counter()  # creates that GKE accepted, by name
        self.trouble: Callable[[], str] = lambda: ""  # a fault for any call
        self.before: Callable[[str], None] = lambda what: None  # called before each call
        self.sent: Callable[[str], None] = lambda what: None  # called between the check of the fence and the call

    # Calls of a client.

    def pools(self) -> list[NodePool]:
        return self._call("list pools", lambda: [_read(doc) for doc in self.pool_docs.values()])

    def operations(self) -> list[Operation]:
        return self._call("list operations", lambda: [_operation(one) for one in self.ops[-200:]])

    def create_pool(self, body: Doc) -> Operation:
        return self._call(f"create {body['name']}", lambda: self._create(dict(body)))

    def delete_pool(self, name: str, labels: Doc) -> Operation:
        def delete() -> Operation:
            if (
                name in self.pool_docs
                and not labels.items() <= self.pool_docs[name]["body"]["config"]["labels"].items()
            ):
                raise Conflict(f"another node pool is called {name} now")
            return self._delete(name)

        return self._call(f"delete {name}", delete)

    def _call(self, what: str, do: Callable[[], Any]) -> Any:
        self.before(what)
        if not what.startswith("list"):
            fence.check()
            self.sent(what)
        self.calls.append(what)
        fault = self.faults.pop(len(self.calls), "") or self.trouble()
        if fault == "killed":
            raise Killed
        if fault == "refused":
            raise _of_status(429, TOO_MANY)
        if fault == "busy":
            raise _of_status(400, "Cluster is running incompatible operation operation-1.")
        if fault == "conflict":
            raise _of_status(409, "The operation was aborted because of a concurrent change of the cluster.")
        self.tick()
        answer = do()
        if fault == "lost":
            raise _of_status(503, "the connection was reset")
        if fault == "killed after":
            raise Killed
        return answer

    def _create(self, body: Doc) -> Operation:
        name = body["name"]
        assert len(name) <= 40 and name[0].isalpha() and name == name.lower(), name
        if name in self.pool_docs:
            raise _of_status(409, f"Already exists: {name}.")
        self._admit(name)
        if self.quota is not None and self.held() + chips(body) > self.quota:
            raise _of_status(403, QUOTA)
        self.made[name] += 1
        self.pool_docs[name] = {"body": body, "status": "PROVISIONING", "message": ""}
        return self._start("CREATE_NODE_POOL", name)

    def _delete(self, name: str) -> Operation:
        if name not in self.pool_docs:
            raise _of_status(404, f"Not found: {name}.")
        self._admit(name)
        self.pool_docs[name]["status"] = "STOPPING"
        return self._start("DELETE_NODE_POOL", name)

    def _admit(self, name: str) -> None:
        running = [one for one in self.ops if not one["done"]]
        if any(one["target"] == name for one in running):
            raise _of_status(400, UNDER_WAY)
        if len(running) >= self.at_once:
            raise _of_status(429, TOO_MANY)

    def _start(self, kind: str, name: str) -> Operation:
        now = self.clock.now()
        due = now + self.dice.uniform(*self.seconds)
        one = {"name": f"operation-{len(self.ops):06}", "kind": kind, "target": name, "due": due, "started": now}
        self.ops.append({**one, "done": False, "error": "", "ended": 0.0})
        return _operation(self.ops[-1])

    # Events in the cloud.

    def tick(self) -> None:
        for one in self.ops:
            if not one["done"] and one["due"] <= self.clock.now():
                one |= {"done": True, "ended": self.clock.now()}
                self._end(one)

    def _end(self, one: Doc) -> None:
        name = one["target"]
        if one["kind"] == "DELETE_NODE_POOL":
            if self.breaks["delete"] > 0:
                self.breaks["delete"] -= 1
                one["error"] = "An internal error has occurred."
                self.pool_docs[name]["status"] = "RUNNING"
                return
            self.went(name)
            del self.pool_docs[name]
            return
        doc = self.pool_docs[name]
        for key in (name, ""):
            if self.breaks[key] > 0:
                self.breaks[key] -= 1
                one["error"] = "An internal error has occurred."
                doc |= {"status": "ERROR", "message": one["error"]}
                return
        zone, kind = doc["body"]["locations"][0], _capacity(doc["body"])
        left = self.stock.get((zone, kind))
        if left is not None and self.held(zone, kind, up=True) + chips(doc["body"]) > left:
            one["error"] = STOCKOUT
            doc |= {"status": "ERROR", "message": STOCKOUT}
            return
        doc["status"] = "RUNNING"
        self.came(_read(doc))

    def held(self, zone: str = "", kind: str = "", *, up: bool = False) -> int:
        """Return the chips of pools; with `up`, only of those that have hosts."""
        return sum(
            chips(doc["body"])
            for doc in self.pool_docs.values()
            if (not up or doc["status"] in ("RUNNING", "STOPPING"))
            and (not zone or (doc["body"]["locations"][0], _capacity(doc["body"])) == (zone, kind))
        )


def chips(body: Doc) -> int:
    return _nodes(body) * 4


def _nodes(body: Doc) -> int:
    """Return the number of nodes, for a pool with autoscaling the maximum."""
    return int(body["initialNodeCount"] or body["autoscaling"]["maxNodeCount"])


def _capacity(body: Doc) -> str:
    config = body["config"]
    if config.get("flexStart"):
        return "flex-start"
    reserved = "values" in config.get("reservationAffinity", {})
    return "spot" if config.get("spot") else "reservation" if reserved else "on-demand"


def _read(doc: Doc) -> NodePool:
    body = doc["body"]
    config = body["config"]
    return NodePool(
        body["name"],
        doc["status"],
        doc["message"],
        config["machineType"],
        body.get("placementPolicy", {}).get("tpuTopology", ""),
        tuple(body["locations"]),
        _nodes(body),
        spot=config.get("spot", False),
        flex_start=config.get("flexStart", False),
        reservation=next(iter(config.get("reservationAffinity", {}).get("values", ())), ""),
        labels=config["labels"],
        taints=tuple((one["key"], one["value"], one["effect"]) for one in config.get("taints", ())),
    )


def _operation(one: Doc) -> Operation:
    return Operation(one["name"], one["kind"], one["target"], one["done"], one["error"], one["started"], one["ended"])
