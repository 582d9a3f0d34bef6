"""Options of commands that plan a job, and the plan as they print it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tpukit.core.quantities import counted

if TYPE_CHECKING:
    from tpukit.jobs.plan import Plan

set_option = click.option(
    "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Override any field of the job file; repeatable."
)
resume_option = click.option(
    "--resume", is_flag=True, help="Start from the checkpoints that another job left in the workdir."
)


def describe(plan: Plan, *, details: bool = False) -> None:
    """Print a plan. `details`: also where and what it runs, as a dry run shows."""
    import shlex

    from tpukit.cli import context

    spec, shape = plan.spec, plan.slice
    amounts = (counted(spec.slices, "slice"), counted(plan.hosts, "host"), counted(plan.chips, "chip"))
    click.echo(
        f"{plan.id}: {amounts[0]} of {shape.name} ({shape.topology}), {amounts[1]}, {amounts[2]}, "
        f"place {plan.place}, rule {spec.rule}",
        err=True,
    )
    lines = [f"code {plan.snapshot}"] if plan.snapshot else []
    if details and plan.vms and plan.vms.nodes:
        lines.append(f"on {', '.join(plan.vms.nodes)} in {plan.vms.zone or plan.settings.zone}")
    if details:
        lines += [
            f"capacity {spec.capacity}",
            f"command {shlex.join(plan.command_of(0))}",
            f"workdir {context.places()[plan.place].workdir(plan, 0)}",
        ]
    for line in (*lines, *context.places()[plan.place].notes(plan)):
        click.echo(f"  {line}", err=True)
