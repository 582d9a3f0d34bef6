"""`tpu job`: look at jobs, stop them, run them again."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpukit.cli import job_look
from tpukit.cli.job_look import json_option
from tpukit.cli.run import Follower, ask_to_stop, check_place, check_tags, hand_over, make_plan, set_option

if TYPE_CHECKING:
    from tpukit.store import Job

MOST = 50
"""Jobs that are listed unless all are asked for."""


@click.group("job", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Look at jobs, stop them, run them again. Without a subcommand: list them.

    \b
    Examples:
      tpu job                         the newest jobs
      tpu job show pretrain           what happened to it, and why
      tpu job logs pretrain -f        what its hosts print
      tpu job resume pretrain         another attempt from the last checkpoint
      tpu job render job.yaml         the manifests that GKE would get
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_)


command.add_command(job_look.show)
command.add_command(job_look.logs)


@command.command("list")
@click.option("--all", "everything", is_flag=True, help=f"All of them, not the newest {MOST}.")
@click.option("--active", is_flag=True, help="Only jobs that have not ended.")
@click.option("--tag", default="", help="Only jobs with this tag.")
@click.option("--place", default="", help="Only jobs of this place; gke also asks the cluster for those of others.")
@json_option
def list_(
    everything: bool = False, active: bool = False, tag: str = "", place: str = "", as_json: bool = False
) -> None:
    """List jobs, newest first.

    Where jobs were sent to a cluster, or KUBECONFIG names one, JobSets that others sent there follow.
    """
    from tpukit import report
    from tpukit.cli import here

    check_place(place)
    listed = here.store().jobs(active=active, limit=0 if everything or tag or active or place else MOST + 1)
    found = [job for job in listed if (not tag or tag in job.tags) and place in ("", job.place)]
    theirs: list[Job] = []
    asked = place == "gke" or (not place and "KUBECONFIG" in os.environ) or any(job.place == "gke" for job in found)
    if asked:
        from tpukit.cli import others

        found, theirs = others.with_cluster(found)
        theirs = [] if tag else [job for job in theirs if not active or not job.state.ended]
    found = sorted(found, key=lambda job: -job.created)
    cut = not everything and len(found) > MOST
    found = found[:MOST] if cut else found
    if as_json:
        here.print_json([report.job_json(job) for job in found + theirs])
        return
    if not found and not theirs:
        click.echo("no jobs yet; `tpu run FILE` sends one", err=True)
        return
    from tpukit.report import tables

    now = here.CLOCK.now()
    if found:
        tables.console().print(tables.jobs(found, now))
    if cut:
        click.echo(f"the newest {MOST}; --all shows the rest", err=True)
    if theirs:
        if found:
            click.echo()
        click.echo("sent by others (read-only; `tpu job adopt JOB` takes one over):", err=True)
        tables.console().print(tables.jobs(theirs, now))


@command.command()
@click.argument("job")
@click.option("--wait/--no-wait", default=True, help="Return when nothing of it runs any more.", show_default=True)
def stop(job: str, wait: bool) -> None:
    """Stop a job. Hosts get their grace time to save; nothing of it is left running."""
    from tpukit.cli import here
    from tpukit.store import Job

    jobs = here.store()
    record = job_look.find(jobs, job)
    if not isinstance(record, Job):
        from tpukit.cli import others

        others.stop(record)
        return
    if record.state.ended:
        click.echo(f"{record.id} has ended already: {record.state}", err=True)
        return
    ask_to_stop(jobs, record.id)
    loop = here.loop(jobs)
    while wait and loop.tick([record.id]):
        here.CLOCK.sleep(0.1)
    click.echo(f"{record.id} {jobs.get(record.id).state if wait else 'will be stopped'}", err=True)


@command.command()
@click.argument("job")
@click.option("--detach", is_flag=True, help="Return at once; `tpu serve` drives it.")
def resume(job: str, detach: bool) -> None:
    """Run an ended job again, from its last checkpoint."""
    _again(job, "resume", detach)


@command.command()
@click.argument("job")
@click.option("--detach", is_flag=True, help="Return at once; `tpu serve` drives it.")
def rerun(job: str, detach: bool) -> None:
    """Run an ended job again, from the beginning."""
    _again(job, "rerun", detach)


def _again(name: str, wanted: str, detach: bool) -> None:
    from dataclasses import replace

    from tpukit.cli import here
    from tpukit.errors import Conflict
    from tpukit.reasons import State
    from tpukit.store import Job

    jobs = here.store()
    meant = job_look.find(jobs, name)
    if not isinstance(meant, Job):
        from tpukit.cli import others

        others.again(meant)
        return

    def ask(job: Job) -> Job:
        if not job.state.ended:
            raise Conflict(f"{job.id} is {job.state}", hint=f"`tpu job stop {job.id}` first")
        return replace(job, state=State.PENDING, wanted=wanted, reason=None, message="", ended=0.0)

    record = jobs.change(meant.id, ask, note=f"{wanted} asked for by {here.owner()}", at=here.CLOCK.now())
    click.echo(record.id)
    if not detach:
        sys.exit(Follower(jobs, record.id, "ask").follow())
    hand_over(jobs, record.id)


@command.command()
@click.argument("job")
def adopt(job: str) -> None:
    """Take over a JobSet that others sent, by name or TEAM/NAME: it may then be stopped and sent again from here."""
    from tpukit.cli import here, others
    from tpukit.errors import NotFound
    from tpukit.places.gke import others as on_cluster

    one = others.find(job, NotFound(f"there is no job {job} on a cluster", hint="`tpu job list --place gke`"))
    on_cluster.adopt(others.cluster(), one, here.owner())
    click.echo(f"{one.id} is yours: `tpu job stop {one.id}` stops it", err=True)


@command.command()
@click.argument("job")
@click.argument("tags", nargs=-1, required=True)
@click.option("--remove", is_flag=True, help="Take the tags off.")
def tag(job: str, tags: tuple[str, ...], remove: bool) -> None:
    """Mark a job with TAGS."""
    from dataclasses import replace

    from tpukit.cli import here

    check_tags("TAGS", tags)
    jobs = here.store()
    record = jobs.change(
        here.find(jobs, job).id,
        lambda job: replace(
            job,
            tags=tuple(old for old in job.tags if old not in tags) + (() if remove else tuple(dict.fromkeys(tags))),
        ),
    )
    click.echo(f"{record.id}: {' '.join(record.tags) or 'no tags'}", err=True)


@command.command()
@click.argument("file", type=click.Path(path_type=Path))
@set_option
@click.option("--place", default="gke", show_default=True, help="The place to render for.")
def render(file: Path, sets: tuple[str, ...], place: str) -> None:
    """Print exactly what would be sent for the job in FILE. Nothing is created."""
    from tpukit import render as rendering

    click.echo(rendering.text(make_plan(file, sets, place)), nl=False)


@command.command()
def schema() -> None:
    """Print the JSON Schema of job files, for editors.

    \b
    Point an editor at it with a first line such as
      # yaml-language-server: $schema=job.schema.json
    """
    from tpukit.spec import json_schema

    click.echo(json.dumps(json_schema(), indent=2))
