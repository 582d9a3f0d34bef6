"""`tpu vm`: manage shared TPU VMs: list holders, create, delete, repair."""

from __future__ import annotations

import click

from tpukit.cli import vm_act, vm_doctor
from tpukit.cli.vms import SHEET_TAB
from tpukit.cli.who import user_name, user_option
from tpukit.core.quantities import counted

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_tpu = click.argument("tpu")


@click.group("vm", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Manage shared TPU VMs. Name a TPU in full, by an alias, or without the prefix that all names share.

    \b
    Examples:
      tpu vm                                all TPUs and their holders
      tpu vm find v34 --on-demand           of generations v3 and v4, not spot
      tpu vm apply team-v4-8-spot-1         create it; the name says what: a spot v4-8
      tpu vm solve v4-8-p1                  diagnose and repair it
      tpu vm release v4-8-p1 --user ada
      tpu vm list --csv > tpus.csv
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_)


@command.command("list")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, for a spreadsheet.")
@_json
def list_(as_csv: bool = False, as_json: bool = False) -> None:
    """List TPUs and who holds them."""
    _show((), as_csv, as_json)


@command.command()
@click.argument("types", nargs=-1)
@click.option("--spot", is_flag=True, help="Show only spot TPUs.")
@click.option("--on-demand", is_flag=True, help="Show only TPUs that are not spot.")
@click.option("--free", is_flag=True, help="Show only TPUs that are ready and free.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@_json
def find(types: tuple[str, ...], spot: bool, on_demand: bool, free: bool, as_csv: bool, as_json: bool) -> None:
    """List TPUs of TYPES: v4-32 is a type, v5e a generation, v34 two generations, v* all."""
    _show(types, as_csv, as_json, spot=spot, on_demand=on_demand, free=free)


@command.command()
@_tpu
@user_option
def release(tpu: str, user: str) -> None:
    """Release a TPU. With --user: only if no active job of another user holds it."""
    from tpukit.cli import context, vms
    from tpukit.sharing import inventory

    owner = user_name(user) if user else ""
    name = vms.full_name(tpu)
    vm = inventory.release(context.store(), name, context.CLOCK.now(), user=owner, active=vms.is_active)
    click.echo(f"{vm.name} is free", err=True)


@command.command()
@_tpu
@click.argument("text")
def note(tpu: str, text: str) -> None:
    """Attach a note to a TPU, visible to all users."""
    from tpukit.cli import context, vms
    from tpukit.sharing import inventory

    inventory.note(context.store(), vms.known(tpu).name, text, context.CLOCK.now())


@command.command()
@click.argument("sheet")
@click.option("--tab", default=SHEET_TAB, show_default=True, help="Tab of the sheet; created if missing.")
def mirror(sheet: str, tab: str) -> None:
    """Write the inventory into a Google Sheet, by the id in its address. Changes in the sheet have no effect.

    With the setting inventory_sheet, `tpu serve` updates the sheet after each change.

    You need write access to the sheet, with credentials that have the scope of spreadsheets:
    `gcloud auth application-default login --scopes=https://www.googleapis.com/auth/spreadsheets,https://www.googleapis.com/auth/cloud-platform`
    """
    from tpukit.cli import vms

    table = vms.write_sheet(sheet, tab)
    click.echo(f"{counted(len(table) - 1, 'TPU')} written to {tab}", err=True)


@command.command("check-status")
@_tpu
def check_status(tpu: str) -> None:
    """Print the state of a TPU: READY, PREEMPTED, CREATING and others."""
    from tpukit.cli import vms
    from tpukit.sharing import shared_vms

    vm = vms.known(tpu, register=False)
    click.echo(shared_vms.state(vms.cloud(), vm))


@command.command()
@_tpu
@_json
def describe(tpu: str, as_json: bool) -> None:
    """Show a TPU: its state, hosts, holder and events."""
    from tpukit.cli import context, vms
    from tpukit.jobs import report
    from tpukit.sharing.inventory import HEADINGS, VMS

    vm = vms.known(tpu, register=False)
    row = next((one for one in vms.rows([vm.zone]) if one.vm.name == vm.name), None)
    events = context.store().events(VMS, vm.name)
    fields = dict(zip(HEADINGS, row.fields, strict=True)) if row else {"name": vm.name, "state": "NOT_FOUND"}
    node = row.node if row else None
    hosts = [host.address for host in node.hosts] if node else []
    if as_json:
        context.print_json({**fields, "hosts": hosts, "events": [report.event_json(event) for event in events]})
        return
    for name, value in fields.items():
        if value:
            click.echo(f"{name:10} {value}")
    if node and node.health:
        click.echo(f"{'health':10} {node.health} {node.says}".rstrip())
    for number, address in enumerate(hosts):
        click.echo(f"host {number:<5} {address}")
    for event in events[-10:]:
        click.echo(f"{report.clock_time(event.at)}  {event.text}")


for one in (vm_act.apply, vm_act.reapply, vm_act.delete, vm_act.restart, vm_doctor.mount_disk, vm_doctor.solve):
    command.add_command(one)


def _show(types: tuple[str, ...], as_csv: bool, as_json: bool, **which: bool) -> None:
    from tpukit.cli import context, unattended, vms
    from tpukit.cli.job_check import jobs_by_id
    from tpukit.sharing import inventory

    free = which.pop("free", False)
    rows = vms.rows()
    inventory.check_patterns(types, rows)
    shown = inventory.matching(rows, types, **which)
    shown = [row for row in shown if row.free or not free]
    if as_csv:
        click.echo(inventory.to_csv(shown), nl=False)
        return
    if as_json:
        context.print_json([dict(zip(inventory.HEADINGS, row.fields, strict=True)) for row in shown])
        return
    if not shown:
        click.echo("no such TPUs; `tpu vm apply NAME` creates one", err=True)
        return
    from tpukit.jobs.report import tables
    from tpukit.jobs.report.layout import FittedTable, TableField, plain

    texts = [row.vm.notes for row in shown]
    free_word = ["free" if row.free else row.user or "-" for row in shown]
    fields = [
        TableField("tpu", [plain(row.vm.name) for row in shown], ("tpu", [plain(row.short) for row in shown])),
        TableField("type", [plain(row.vm.type) for row in shown], drop=3),
        TableField("spot", ["spot" if row.vm.spot else "" for row in shown], drop=2),
        TableField("zone", [plain(row.vm.zone) for row in shown], drop=1),
        TableField("state", [plain(row.state) for row in shown]),
        TableField("user", [plain(one) for one in free_word]),
        TableField("job", [plain(row.vm.job) if row.held else "" for row in shown], drop=4),
    ]
    tables.console().print(FittedTable(fields, heading="notes", texts=[plain(text) for text in texts]))
    held = [row.vm.job for row in shown if row.held]
    unattended.say(list(jobs_by_id(held).values()))
