"""The slices that exist: those of jobs, shared TPU VMs and fleets, with holder, hosts, chips and price."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tpukit import catalogue
from tpukit.catalogue import prices
from tpukit.core.errors import TpukitError
from tpukit.fleet.records import WORKERS, Worker
from tpukit.goodput import rates
from tpukit.jobs import report
from tpukit.jobs.records import ACTIVE, JOBS, Job
from tpukit.kernel.store import Store, everything
from tpukit.sharing.inventory import VMS, Vm

SLICES_MOST = 400
"""Limit of slices on the map; the rest is only counted."""
READY = "READY"


@dataclass(frozen=True, slots=True)
class Held:
    """One slice, and its holder."""

    tpu: str
    kind: str  # the place of its job, TPU VM, or fleet
    holder: str  # a job or a fleet; "": free
    link: str
    state: str  # running, scheduled (being created), or idle
    since: float  # of that state; 0: unknown
    hosts: int = 0
    chips: int = 0
    usd: float | None = None  # an hour; None: no known price
    name: str = ""


def of_everything(store: Store, active: Sequence[Job]) -> list[Held]:
    found = [one for job in active for one in of_job(job)]
    shown, holders = {one.holder for one in found}, {job.id for job in active}
    vms = [vm for vm in (entry.value for entry in everything(store, VMS)) if vm.job not in shown]
    found += [of_vm(vm, holders, _ended(store, vm, holders)) for vm in vms]
    workers = (entry.value for entry in everything(store, WORKERS, states=("active",)))
    return found + [of_worker(worker) for worker in workers if worker.tpu_state]


def of_job(job: Job) -> list[Held]:
    """Return the slices of a job, from the moment when all of them exist."""
    attempt, shape, count = job.attempt, job.plan.get("slice"), report.slice_count(job)
    if not isinstance(shape, dict) or not count or job.state not in ACTIVE or attempt is None or attempt.ended:
        return []
    since = attempt.marks.placed or attempt.started
    if not since:
        return []
    usd = rates.of_job(job).usd
    state = "running" if attempt.started else "scheduled"
    one = Held(
        *(str(shape.get("name", "?")), job.place, job.id, f"/job/{job.id}", state, attempt.started or since),
        hosts=_count(shape.get("hosts")),
        chips=_count(shape.get("chips")),
        usd=None if usd is None else usd / count,
    )
    return [one] * min(count, SLICES_MOST)


def of_vm(vm: Vm, holders: Iterable[str], ended: float) -> Held:
    held = bool(vm.job) and vm.job in holders
    hosts, chips, usd = _shape(vm.type, vm.zone, vm.spot)
    link, state, since = (f"/job/{vm.job}", "running", vm.since) if held else ("/vms", "idle", ended)
    return Held(vm.type, "TPU VM", vm.job if held else "", link, state, since, hosts, chips, usd, vm.name)


def of_worker(worker: Worker) -> Held:
    hosts, chips, usd = _shape(worker.tpu_type, worker.zone, worker.spot)
    state, since = ("running", 0.0) if worker.tpu_state == READY else ("scheduled", worker.since)
    return Held(worker.tpu_type, "fleet", worker.fleet, "/fleets", state, since, hosts, chips, usd, worker.tpu)


def _ended(store: Store, vm: Vm, holders: Iterable[str]) -> float:
    """Return since when a TPU VM has had no job: the end of its last job, or its creation."""
    if vm.job and vm.job not in holders:
        try:
            return store.get(JOBS, vm.job).value.ended or vm.since
        except TpukitError:
            return vm.since
    return vm.created


def _shape(tpu: str, zone: str, spot: bool) -> tuple[int, int, float | None]:
    try:
        found = catalogue.find(tpu)
    except TpukitError:
        return 0, 0, None
    price = prices.price(found, zone, "spot" if spot else "on-demand")
    return found.hosts, found.chips, price.usd if price else None


def _count(number: object) -> int:
    return number if isinstance(number, int) and 0 < number < 10**6 else 0
