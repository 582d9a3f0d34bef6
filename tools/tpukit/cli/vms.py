"""Lookup of the TPU VMs that commands name, and the cloud client."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from tpukit.core.errors import Invalid, Problem

if TYPE_CHECKING:
    from tpukit.google.tpu_vm import Client
    from tpukit.jobs.records import Job
    from tpukit.jobs.spec import Settings
    from tpukit.sharing.inventory import Row, Vm

SHEET_TAB = "TPUs"


@cache
def settings() -> Settings:
    from tpukit.jobs.spec import settings

    return settings.load()


@cache
def cloud() -> Client:
    from tpukit.google import tpu_vm
    from tpukit.jobs.spec import settings as settings_file

    project = settings().project
    if not project:
        raise Invalid(
            Problem(
                "project", "TPU VMs belong to a Google Cloud project, and none is set", settings_file.hint("project")
            )
        )
    return tpu_vm.Client(project)


def zones() -> list[str]:
    """Return the zones of the inventory and of the settings."""
    from tpukit.cli import context
    from tpukit.sharing import inventory

    named = {vm.zone for vm in inventory.listed(context.store())} | {settings().zone or ""}
    return sorted(named - {""})


def rows(of_zones: Sequence[str] | None = None) -> list[Row]:
    """Return all TPUs, with one list call per zone."""
    from tpukit.cli import context
    from tpukit.places.tpu_vm import target
    from tpukit.sharing import inventory, shared_vms

    listed = shared_vms.list_zones(cloud(), list(zones() if of_zones is None else of_zones))
    known = inventory.listed(context.store())
    return inventory.merged(known, listed, active_jobs({vm.job for vm in known}), own=target.STORE)


def active_jobs(job_ids: set[str]) -> set[str]:
    return {job_id for job_id in job_ids if job_id and is_active(job_id)}


def job_on(vm: Vm) -> Job | None:
    """Return the active job that holds this TPU VM, or was sent to it with `--on` and holds nothing."""
    from tpukit.cli import context
    from tpukit.jobs.records import ACTIVE, JOBS
    from tpukit.kernel.store import everything
    from tpukit.sharing import inventory

    held = inventory.get(context.store(), vm.name)
    for job in (entry.value for entry in everything(context.store(), JOBS, states=ACTIVE)):
        where = job.plan.get("vms") or {}
        if (held and job.id == held.job) or (vm.name in where.get("nodes", ()) and where.get("zone") == vm.zone):
            return job
    return None


def is_active(job_id: str) -> bool | None:
    """Return True for an active job, or None if no such job is recorded."""
    from tpukit.cli import context
    from tpukit.jobs import records

    return records.is_active(context.store(), job_id)


def full_name(word: str) -> str:
    from tpukit.cli import context
    from tpukit.sharing import inventory, tpu_aliases

    known = {vm.name for vm in inventory.listed(context.store())}
    return inventory.resolve(word, tpu_aliases.listed(context.store()), known)


def known(word: str, *, zone: str = "", type_: str = "", spot: bool | None = None, register: bool = True) -> Vm:
    """Return the TPU VM that `word` names, from the inventory; register an unknown one from the parts of its name."""
    from tpukit import catalogue
    from tpukit.cli import context
    from tpukit.jobs.spec import settings as settings_file
    from tpukit.sharing import inventory, tpu_names
    from tpukit.sharing.inventory import Vm

    name, now = full_name(word), context.CLOCK.now()
    there = inventory.get(context.store(), name)
    said = tpu_names.parse_tpu(name)
    where = zone or (there.zone if there else "") or settings().zone or ""
    what = type_ or (there.type if there else "") or (said.type if said else "")
    problems = []
    if not where:
        option = "add --zone us-central2-b, " if has_option("--zone") else ""
        problems.append(Problem(name, "its zone is not known", f"{option}{settings_file.hint('zone')}"))
    if not what:
        hint = "add --type v4-8" if has_option("--type") else f"run `tpu vm apply {name} --type v4-8` to create one"
        problems.append(Problem(name, "no TPU of this name is known, and the name does not say a type", hint))
    if not tpu_names.is_node(name):
        problems.append(Problem("TPU", f"{name!r} cannot be the name of a TPU VM", "use a-z, 0-9 and -"))
    if problems:
        raise Invalid(problems)
    bought = spot if spot is not None else there.spot if there else bool(said and said.spot)
    vm = Vm(name, where, catalogue.find(what).name, now, bought)
    return inventory.register(context.store(), vm, now) if register else there or vm


def has_option(name: str) -> bool:
    """Return True if the running command has this option: a hint must not name another command's."""
    import click

    running = click.get_current_context(silent=True)
    return running is not None and any(name in param.opts for param in running.command.params)


def public_key() -> str:
    """Return `USER:KEY`, which lets this machine log in to hosts."""
    from tpukit.core import paths
    from tpukit.places.tpu_vm import target
    from tpukit.places.tpu_vm.ssh import Ssh

    own = settings()
    ssh = Ssh(paths.data() / "ssh", own.ssh_key)
    try:
        return f"{target.login_user(own)}:{ssh.public_key()}"
    finally:
        ssh.close()


def write_sheet(sheet: str, tab: str = SHEET_TAB, before: Sequence[Sequence[str]] = ()) -> list[list[str]]:
    """Write the inventory into a Google Sheet unless it equals `before`, and return it as a table."""
    from tpukit.google import sheets
    from tpukit.sharing import inventory

    table = [list(inventory.HEADINGS), *(list(row.fields) for row in rows())]
    if table != list(before):
        sheets.replace(sheet, tab, table)
    return table
