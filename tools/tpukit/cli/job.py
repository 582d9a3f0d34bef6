"""`tpu job`: list jobs, stop them, run them again."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tpukit import places
from tpukit.cli import (
    job_act,
    job_check,
    job_exec,
    job_list,
    job_logs,
    job_monitor,
    job_start,
    job_stop,
    job_view,
    job_windows,
)
from tpukit.cli.completion import job_argument
from tpukit.cli.plan_view import set_option


@click.group("job", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Show, stop and rerun jobs. Without a subcommand: list them.

    \b
    Examples:
      tpu job                         the newest jobs
      tpu job show pretrain           its attempts, hosts and events
      tpu job logs pretrain -f        what its hosts print
      tpu job exec pretrain 0-0       a shell on its first host
      tpu job resume pretrain         another attempt from the last checkpoint
      tpu job render job.yaml         the manifests that GKE would get
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(job_list.command)


for one in (
    job_list.command,
    job_view.show,
    job_logs.logs,
    job_exec.exec_,
    job_stop.stop,
    job_stop.wait,
    job_act.resume,
    job_act.rerun,
    job_act.forget,
    job_act.adopt,
    job_start.command,
    job_check.check,
    job_monitor.command,
    job_windows.clear,
    job_windows.ack,
    job_windows.rules,
    job_windows.update_log,
    job_windows.finish,
):
    command.add_command(one)


@command.command()
@job_argument
@click.argument("tags", nargs=-1, required=True)
@click.option("--remove", is_flag=True, help="Remove the tags instead of adding them.")
def tag(job: str, tags: tuple[str, ...], remove: bool) -> None:
    """Mark a job with TAGS."""
    from msgspec.structs import replace

    from tpukit.cli import context
    from tpukit.jobs.records import JOBS
    from tpukit.jobs.use_cases.submission import check_tags
    from tpukit.kernel.store import change

    check_tags("TAGS", tags)
    record = change(
        context.store(),
        JOBS,
        context.find(job).id,
        lambda job: replace(
            job,
            tags=tuple(old for old in job.tags if old not in tags) + (() if remove else tuple(dict.fromkeys(tags))),
        ),
    ).value
    click.echo(f"{record.id}: {' '.join(record.tags) or 'no tags'}", err=True)


@command.command()
@click.argument("file", type=click.Path(path_type=Path))
@set_option
@click.option("--place", default=places.RENDERED, show_default=True, help="The place to render for.")
def render(file: Path, sets: tuple[str, ...], place: str) -> None:
    """Print exactly what would be sent for the job in FILE, under a stand-in id. Nothing is created."""
    from tpukit.cli import fit
    from tpukit.jobs import render as rendering
    from tpukit.jobs.use_cases.submission import make_plan

    plan = make_plan(file, sets, place)
    click.echo(rendering.text(plan), nl=False)
    if said := fit.last(plan):
        click.echo(said, err=True)


@command.command()
def schema() -> None:
    """Print the JSON Schema of job files, for editors.

    \b
    Point an editor at it with a first line such as
      # yaml-language-server: $schema=job.schema.json
    """
    from tpukit.jobs.spec import json_schema

    click.echo(json.dumps(json_schema(), indent=2))
