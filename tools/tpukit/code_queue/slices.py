"""The slice that a queued job needs, from its `metadata.tpu`. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from tpukit import catalogue
from tpukit.code_queue.records import QueuedJob
from tpukit.core.errors import Invalid

CAPACITIES = ("on-demand", "spot", "flex-start")
OFFERED = "queue/slices/"
"""Prefix of leases of workers whose own machine is a slice: OFFERED + SLICE/WORKER."""


def parse(text: str) -> tuple[str, str]:
    """Return the name of the slice and its capacity from `SLICE` or `SLICE:CAPACITY`."""
    name, _, capacity = text.partition(":")
    if capacity and capacity not in CAPACITIES:
        hint = f"write {name}, or {name}: and one of {', '.join(CAPACITIES)}"
        raise Invalid(f"metadata.tpu: {capacity!r} is not a capacity", hint=hint)
    try:
        return catalogue.find(name).name, capacity or "on-demand"
    except Invalid as error:
        raise Invalid(f"metadata.tpu: {error.message}", hint=error.hint) from error


def requested(job: QueuedJob) -> str:
    """Return `metadata.tpu` as text; empty if the job needs no slice."""
    asked = job.metadata.get("tpu") if isinstance(job.metadata, dict) else None
    return str(asked or "")


def offer(tpu: str, worker: str) -> str:
    """Return the name of the lease with which a worker offers its machine as this slice."""
    return f"{OFFERED}{parse(tpu)[0]}/{worker}"


def offered(leases: Iterable[str]) -> frozenset[str]:
    """Return the slices that workers offer, from the names of held leases."""
    return frozenset(name.removeprefix(OFFERED).partition("/")[0] for name in leases if name.startswith(OFFERED))


def fits(job: QueuedJob, tpu: str) -> bool:
    """Return whether a machine that is the slice `tpu` (empty: none) can run the job. Invalid requests fit nowhere."""
    asked = requested(job)
    try:
        return not asked or (bool(tpu) and parse(asked)[0] == parse(tpu)[0])
    except Invalid:
        return False
