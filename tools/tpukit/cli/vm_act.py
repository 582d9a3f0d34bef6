"""Actions of `tpu vm` on TPU VMs: apply, reapply, delete, restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tpukit.cli import questions

if TYPE_CHECKING:
    from tpukit.sharing.inventory import Vm

SECONDS = 1800.0
_tpu = click.argument("tpu")
_yes = click.option("--yes", is_flag=True, help="Do not ask.")
_wait = click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until the operation has ended.")
_zone = click.option("--zone", default="", help="Zone (default: the setting zone).")
_type = click.option("--type", "type_", default="", help="Type, such as v4-8 (default: taken from the name).")
_spot = click.option("--spot/--on-demand", default=None, help="Capacity (default: taken from the name).")


@click.command()
@_tpu
@_zone
@_type
@_spot
@_wait
def apply(tpu: str, zone: str, type_: str, spot: bool | None, wait: bool) -> None:
    """Create a TPU, waiting in Google's queue for capacity. Does nothing if it exists."""
    from tpukit.cli import vms

    make(vms.known(tpu, zone=zone, type_=type_, spot=spot), wait)


@click.command()
@_tpu
@_wait
@_yes
def reapply(tpu: str, wait: bool, yes: bool) -> None:
    """Delete a TPU and recreate it. Data on its hosts' disks is lost."""
    from tpukit.cli import vms

    vm = vms.known(tpu)
    _ask(vm, "Delete and recreate it?", yes)
    make_anew(vm, wait)


@click.command()
@_tpu
@_wait
@_yes
def delete(tpu: str, wait: bool, yes: bool) -> None:
    """Delete a TPU, and its request in Google's queue. It leaves the inventory."""
    from tpukit.cli import context, vms
    from tpukit.sharing import inventory, shared_vms

    vm = vms.known(tpu, register=False)
    _ask(vm, "Delete it?", yes)
    there = shared_vms.delete(vms.cloud(), vm)
    if wait:
        shared_vms.wait(
            context.CLOCK, SECONDS, lambda: shared_vms.gone(vms.cloud(), vm), f"{vm.name} to be deleted", say
        )
    inventory.forget(context.store(), vm.name)
    click.echo(f"{vm.name} {'deleted' if there else 'did not exist'}", err=True)


@click.command()
@_tpu
@_yes
def restart(tpu: str, yes: bool) -> None:
    """Restart a TPU of one host. Google cannot restart larger ones; `tpu vm reapply` recreates them."""
    from tpukit.cli import context, vms
    from tpukit.sharing import shared_vms

    vm = vms.known(tpu, register=False)
    _ask(vm, "Restart it?", yes)
    shared_vms.restart(vms.cloud(), vm, context.CLOCK, SECONDS, say)
    click.echo(f"{vm.name} READY", err=True)


def make(vm: Vm, wait: bool) -> None:
    from tpukit import catalogue
    from tpukit.cli import context, vms
    from tpukit.places.tpu_vm import target
    from tpukit.sharing import shared_vms

    own = vms.settings()
    asked = shared_vms.apply(
        vms.cloud(),
        vm,
        runtime=target.runtime_of(catalogue.find(vm.type), own),
        metadata={"ssh-keys": vms.public_key()},
        queued=own.queued,
        external_ips=own.external_ips,
        labels={target.SHARED_STORE: target.store_label(context.sender())},
    )
    click.echo(f"{vm.name} {'requested' if asked else 'exists, or is being created'}: {_state(vm)}", err=True)
    if wait:
        shared_vms.wait(
            context.CLOCK, SECONDS, lambda: shared_vms.ready(vms.cloud(), vm), f"{vm.name} to be created", say
        )
        click.echo(f"{vm.name} READY", err=True)


def say(text: str) -> None:
    click.echo(text, err=True)


def make_anew(vm: Vm, wait: bool) -> None:
    from tpukit.cli import context, vms
    from tpukit.sharing import shared_vms

    shared_vms.delete(vms.cloud(), vm)
    shared_vms.wait(context.CLOCK, SECONDS, lambda: shared_vms.gone(vms.cloud(), vm), f"{vm.name} to be deleted", say)
    make(vm, wait)


def _state(vm: Vm) -> str:
    from tpukit.cli import vms
    from tpukit.sharing import shared_vms

    return shared_vms.state(vms.cloud(), vm)


def _ask(vm: Vm, question: str, yes: bool) -> None:
    """Ask for confirmation, naming the job that would be lost. With `--yes`, refuse if a job runs."""
    from tpukit.cli import vms
    from tpukit.core.errors import Conflict

    job = vms.job_on(vm)
    holder = f"{job.owner} runs {job.id} on {vm.name}" if job else ""
    if yes:
        if job:
            raise Conflict(holder, hint=f"`tpu job stop {job.id}` first")
        return
    questions.require(f"{holder + '. ' if holder else ''}{vm.name}: {question}")
