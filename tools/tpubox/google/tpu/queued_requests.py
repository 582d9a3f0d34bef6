"""TPU VMs that a queued resource requests: their names, all of one kind and one tier."""

from __future__ import annotations

from tpubox.google.compute.stock_and_quota import Holding
from tpubox.google.tpu import nodes as tpu_nodes
from tpubox.google.tpu import queue_timing
from tpubox.google.tpu.service import place
from tpubox.google.wire.api import Call
from tpubox.google.wire.sources import GUESS
from tpubox.google.wire.state import Doc

_TIERS = ("bestEffort", "guaranteed", "spot")


def nodes(call: Call, body: Doc) -> Doc:
    """Return the requested TPU VMs by full name."""
    found: Doc = {}
    for spec in (body.get("tpu") or {}).get("nodeSpec", []):
        parent = _parent(spec.get("parent") or place(call), call)
        several, one = spec.get("multisliceParams"), spec.get("nodeId")
        if several and one:  # oneof name_strategy; queue_timing explains the source of the text
            raise GUESS.invalid("Invalid value at 'tpu.nodeSpec' (oneof), oneof field 'name_strategy' is already set.")
        if several:
            prefix = several.get("nodeIdPrefix") or call.query["queuedResourceId"]
            ids = [f"{prefix}-{number}" for number in range(int(several.get("nodeCount", 0)))]
        else:
            ids = [one or ""]
        if twice := [each for each in ids if f"{parent}/nodes/{each}" in found]:
            raise GUESS.invalid(f"Node ids of a queued resource must be unique, not {twice[0]!r} twice.")
        found.update({f"{parent}/nodes/{each}": spec.get("node", {}) for each in ids})
    if not found:
        raise GUESS.invalid("A queued resource must ask for at least one TPU node.")
    return found


def _parent(parent: str, call: Call) -> str:
    if parent.rpartition("/")[2] != call["location"]:
        raise GUESS.invalid(f"Nodes must be in the location of the queued resource, not in {parent}.")
    return place(call)


def holding(call: Call, body: Doc, asked: Doc) -> Holding:
    """Return the chips of all TPU VMs together."""
    queue_timing.one_of("", "tier", {name: body[name] for name in body if body[name] is not None}, _TIERS)
    model, reservation = body.get("provisioningModel"), (body.get("reservationName") or "").rpartition("/")[2]
    if model == queue_timing.FLEX_START and (reservation or "spot" in body or "bestEffort" in body):
        # A guess: GKE refuses it for its pools: https://cloud.google.com/kubernetes-engine/docs/concepts/dws
        raise GUESS.invalid("FLEX_START cannot be combined with a reservation or another tier.")
    # Flex-start uses the preemptible quota: https://cloud.google.com/tpu/docs/request-using-flex-start. That best
    # effort does too is a guess. gcloud alpha sends STANDARD together with `spot`: the tier takes precedence.
    spot = "spot" in body or "bestEffort" in body or model in ("SPOT", queue_timing.FLEX_START)
    each = [tpu_nodes.asked_for(node, call["location"], spot=spot, reservation=reservation) for node in asked.values()]
    if len({(one.generation, one.chips, one.spot) for one in each}) > 1:
        raise GUESS.invalid("All nodes of a queued resource must have the same accelerator and tier.")
    return Holding(each[0].zone, each[0].generation, sum(one.chips for one in each), each[0].spot, reservation)


def scheduling(body: Doc, node: Doc) -> Doc:
    """Return the scheduling options of a TPU VM: its own, and those that follow from the tier."""
    own = node.get("schedulingConfig") or {}
    if "spot" in body or body.get("provisioningModel") == "SPOT":
        return {**own, "spot": True}
    if "bestEffort" in body:
        return {**own, "preemptible": True}
    return {**own, "reserved": True} if body.get("reservationName") else own
