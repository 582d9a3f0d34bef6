"""`tpu clean --cloud`: list TPU VMs and queued resources without use, and delete them after a question."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from tpukit.core.errors import NotFound, TpukitError
from tpukit.core.quantities import counted, duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpukit.sharing.inventory import Vm
    from tpukit.sharing.waste import Waste


def run(idle: float, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """List what is wasted in the zones of the inventory and the settings. Ask, then delete what may be deleted."""
    from tpukit.cli import context, questions

    found = listed(idle)
    now = context.CLOCK.now()
    if as_json:
        context.print_json({"waste": [_json(one) for one in found]})
    else:
        _show(found, now)
    mine = [one for one in found if one.ends]
    if dry_run or not mine or (as_json and not yes):
        return
    if not yes:
        if not questions.possible():
            return
        questions.require(f"Delete {counted(len(mine), 'object')}?")
    sys.exit(0 if _delete(mine, idle) else 1)


def listed(idle: float) -> list[Waste]:
    from concurrent.futures import ThreadPoolExecutor

    from tpukit.cli import context, vms
    from tpukit.fleet import records as fleets
    from tpukit.places.tpu_vm import target
    from tpukit.sharing import inventory, shared_vms, waste

    cloud, zones = vms.cloud(), vms.zones()
    nodes = shared_vms.list_zones(cloud, zones)
    with ThreadPoolExecutor(max(1, min(8, len(zones)))) as pool:
        queued = dict(zip(zones, map(list, pool.map(cloud.queued, zones)), strict=True))
    owned = (target.STORE, target.JOB, fleets.FLEET)
    return waste.find(
        *(inventory.listed(context.store()), nodes, queued, _free_since, owned, context.CLOCK.now(), idle)
    )


def _free_since(vm: Vm) -> float | None:
    """Return since when a shared TPU VM has had no job; None if it has one, or if that is not known."""
    from tpukit.cli import context, vms
    from tpukit.jobs.records import JOBS

    if vms.job_on(vm) is not None:
        return None
    if not vm.job:
        return vm.since or vm.created
    try:
        job = context.store().get(JOBS, vm.job).value
    except NotFound:
        return vm.since or vm.created
    except TpukitError:
        return None
    return (job.ended or vm.since) if job.state.ended else None


def _delete(asked: Sequence[Waste], idle: float) -> bool:
    """Delete what is still without use. Return False if something could not be deleted."""
    still = {(one.zone, one.name, one.id) for one in listed(idle)}
    done = True
    for one in asked:
        if (one.zone, one.name, one.id) not in still:
            click.echo(f"{one.name} is in use again, or gone: it was not deleted", err=True)
            continue
        try:
            _delete_one(one)
        except NotFound:
            continue
        except TpukitError as error:
            click.echo(f"tpu: {one.name} could not be deleted: {error}", err=True)
            done = False
            continue
        click.echo(f"deleting {one.what} {one.name} in {one.zone}", err=True)
    return done


def _delete_one(one: Waste) -> None:
    from tpukit.cli import vms

    cloud = vms.cloud()
    if one.what != "TPU VM":
        cloud.delete_queued(one.zone, one.name, one.id)
        return
    node = next((node for node in cloud.nodes(one.zone) if node.name == one.name and node.id == one.id), None)
    if node is None:
        raise NotFound(f"there is no TPU VM {one.name} in {one.zone}")
    made_by = next(
        (each for each in cloud.queued(one.zone) if each.name == node.queued or one.name in each.nodes), None
    )
    if made_by is not None and made_by.nodes in ((), (one.name,)):
        cloud.delete_queued(one.zone, made_by.name, made_by.id)  # deletes its TPU VM too
    else:
        cloud.delete_node(one.zone, one.name, one.id)


def _show(found: Sequence[Waste], now: float) -> None:
    for one in found:
        price = "unknown price" if one.usd is None else f"{one.usd:,.2f} USD/h"
        since = f" for {duration(now - one.since)}" if one.since else ""
        click.echo(f"{one.what:<15}  {one.name:<30}  {one.zone:<16}  {price:>14}  {one.why}{since}")
        click.echo(f"{'':<15}  {one.command}")
    usd = sum(one.usd or 0.0 for one in found)
    click.echo(f"{counted(len(found), 'object')}, {usd:,.2f} USD an hour" if found else "nothing is wasted", err=True)


def _json(one: Waste) -> dict[str, Any]:
    return {
        "what": one.what,
        "name": one.name,
        "zone": one.zone,
        "why": one.why,
        "since": one.since or None,
        "usd_per_hour": one.usd,
        "command": one.command,
        "deletable": one.ends,
    }
