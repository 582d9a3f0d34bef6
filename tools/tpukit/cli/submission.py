"""Submission of a job: from the job file to the plan, its id, its code, and its record."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpukit import places
from tpukit.core.errors import Conflict, Invalid, NotYet, Problem, Transient
from tpukit.core.quantities import counted

if TYPE_CHECKING:
    from tpukit.jobs.plan import Plan
    from tpukit.places.base import Place

PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds between retries to share the code of a job, and to record the job."""

set_option = click.option(
    "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Override any field of the job file; repeatable."
)
resume_option = click.option(
    "--resume", is_flag=True, help="Start from the checkpoints that another job left in the workdir."
)


def make_plan(
    file: Path,
    sets: tuple[str, ...],
    place: str,
    tags: tuple[str, ...] = (),
    aliases: Mapping[str, str] | None = None,
) -> Plan:
    """Return the plan for the job in `file`. `tags` and `aliases` extend those of the job and the settings."""
    from tpukit.jobs import plan, spec
    from tpukit.jobs.spec import settings

    check_place(place)
    own = settings.load()
    job = spec.load(file, sets, {**own.aliases, **(aliases or {})})
    return plan.make(job.replace(tags=tuple(dict.fromkeys((*job.tags, *tags)))), own, place)


def on_machines(plan: Plan, names: str) -> Plan:
    """Return the plan for the machines in `names`, separated by commas. Empty: the place chooses."""
    from tpukit.cli import context
    from tpukit.jobs.plan import VmTarget

    if not names:
        return plan
    if not context.places()[plan.place].capabilities.named_machines:
        raise Invalid(Problem("--on", f"{plan.place} does not let you choose machines", "leave out --on"))
    return replace(plan, vms=VmTarget("", "", "", tuple(name.strip() for name in names.split(","))))


def check_place(place: str) -> None:
    """Raise Invalid for an unknown place. Empty means any place."""
    if place and place not in places.NAMES:
        raise Invalid(Problem("--place", f"there is no place {place!r}", f"write one of {', '.join(places.NAMES)}"))


def check_tags(where: str, tags: tuple[str, ...]) -> None:
    from tpukit.jobs.spec.fields import TAG_FORM

    if wrong := [tag for tag in tags if not TAG_FORM.fits(tag)]:
        raise Invalid([Problem(where, f"{tag!r} is not allowed", TAG_FORM.words) for tag in wrong])


def settle(plan: Plan) -> Plan:
    """Return the plan as it would be sent now, with additions of its place and a free id.

    Raise Invalid if the place would refuse it.
    """
    from tpukit.cli import context

    place = context.places()[plan.place]
    return _with_free_id(place, place.prepare(plan))


def settle_all(plans: Sequence[Plan]) -> tuple[list[Plan], list[tuple[int, Problem]]]:
    """Settle several plans, and return the problems with the number of their plan.

    The ids in use are read once per team.
    """
    from tpukit.cli import context

    settled: list[Plan] = []
    problems: list[tuple[int, Problem]] = []
    taken: dict[str, frozenset[str]] = {}  # ids by team
    for number, plan in enumerate(plans):
        place = context.places()[plan.place]
        try:
            prepared = place.prepare(plan)
            if plan.team not in taken:
                taken[plan.team] = _taken(place, prepared)
            settled.append(_with_free_id(place, prepared, taken[plan.team]))
            taken[plan.team] |= {settled[-1].id}
        except Invalid as error:
            problems += [(number, one) for one in error.problems]
    return settled, problems


def inspect(plan: Plan) -> Plan:
    """Return the plan with its current code, without storing anything. Raise Invalid if the code cannot be staged."""
    from tpukit.jobs import snapshots as stage

    if not plan.spec.code:
        return plan
    code = stage.inspect(Path(plan.spec.code), _own_folders())
    if code.problems:
        raise Invalid(code.problems)
    return replace(plan, snapshot=code.snapshot)


def stage_code(plan: Plan) -> Plan:
    from tpukit.cli import context
    from tpukit.jobs import snapshots as stage

    if not plan.spec.code:
        return plan
    return replace(plan, snapshot=stage.snapshot(Path(plan.spec.code), context.shelf(), _own_folders()))


def record(plan: Plan, owner: str = "") -> Plan:
    """Record the job, and return the plan with its id. From here on any driver may drive it.

    Retries after a lost response still create one job: the record names the submission.
    """
    from msgspec.structs import replace as changed

    from tpukit.cli import context
    from tpukit.jobs.records import JOBS, Job
    from tpukit.kernel.store import Event

    _check_size(plan)
    _share_code(plan)
    now, owner, submission = context.CLOCK.now(), owner or context.owner(), secrets.token_hex(16)
    plan = replace(plan, owner=owner, sent=now)
    pauses = iter(PAUSES)
    while True:
        job = Job(plan.id, plan.place, plan.team, owner, now, plan.to_json(), tuple(plan.spec.tags))
        job = changed(job, submission=submission)
        try:
            context.claim(plan.id)
            context.store().create(JOBS, plan.id, job, events=[Event(now, f"sent to {plan.place} by {owner}")])
        except Conflict:
            there = _submission_of(plan.id)
            if there is None:
                raise
            if there != submission:
                context.unclaim(plan.id)
                plan = _with_free_id(context.places()[plan.place], plan)  # another submission has the id
                _share_code(plan)
                continue
        except Transient as error:
            pause = next(pauses, None)
            if pause is None:
                hint = f"it may have been recorded: `tpu job show {plan.id}` shows it when the store is reachable again"
                raise Transient(
                    f"{plan.id} was sent, but the store did not confirm it: {error.message}", hint=hint
                ) from error
            context.CLOCK.sleep(pause)
            continue
        return plan


def _share_code(plan: Plan) -> None:
    """Upload the code for drivers on other machines. Once the job is recorded, this machine may be lost."""
    from tpukit.cli import context

    for pause in (*PAUSES, None):
        try:
            why = context.places()[plan.place].share_code(plan)
            break
        except (Transient, NotYet):
            if pause is None:
                raise
            context.CLOCK.sleep(pause)
    if why:
        words = (
            f"the code of {plan.id} stays on this machine, so only a driver on this machine can start the job: {why}"
        )
        click.echo(f"warning: {words}", err=True)


def _submission_of(job_id: str) -> str | None:
    """Return the submission text in the record of this job, or None if there is no such job."""
    from tpukit.cli import context
    from tpukit.core.errors import NotFound
    from tpukit.jobs.records import JOBS

    try:
        return context.store().get(JOBS, job_id).value.submission
    except NotFound:
        return None
    except Conflict:
        return ""  # a newer version wrote it


def _check_size(plan: Plan) -> None:
    """Raise Invalid if the plan leaves no room for the record's history."""
    import msgspec

    from tpukit.jobs.records import PLAN_BYTES

    if (size := len(msgspec.json.encode(plan.to_json()))) > PLAN_BYTES:
        what = f"the job takes {size:,} bytes, and {PLAN_BYTES:,} are allowed"
        raise Invalid(
            Problem("", what, "put large values into files of `code` or into a bucket, and refer to them by name")
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


def warn(plan: Plan) -> None:
    """Warn about risks of losing work, before the job is sent."""
    from tpukit.cli import context
    from tpukit.jobs.report import risks

    place = context.places()[plan.place]
    for text in risks.of(plan, place.workdir(plan, 0), this_machine=place.capabilities.uses_this_machine):
        click.echo(f"warning: {text}", err=True)


def _taken(place: Place, plan: Plan) -> frozenset[str]:
    from tpukit.cli import context
    from tpukit.jobs.records import JOBS

    return context.store().keys(JOBS) | place.taken(plan)


def _with_free_id(place: Place, plan: Plan, taken: frozenset[str] | None = None) -> Plan:
    from tpukit.jobs import plan as planning

    plan = planning.with_fresh_id(plan, _taken(place, plan) if taken is None else taken)
    if problems := place.check(plan):
        raise Invalid(problems)
    return plan if plan.resume or not plan.spec.workdir else _in_free_workdir(place, plan)


def _in_free_workdir(place: Place, plan: Plan) -> Plan:
    """Return the plan if its workdir holds no output of another job, else raise Invalid.

    The workdir of an ended job of this store that left no output is free too.
    """
    from tpukit.core.errors import TpukitError
    from tpukit.places.workdirs import Workdirs

    try:
        here = place.capabilities.uses_this_machine
        held = Workdirs().held(plan, place.workdir(plan, 0), this_machine=here)
    except (TpukitError, OSError) as error:
        said = getattr(error, "message", str(error))
        click.echo(f"could not check whether {plan.workdir} holds another job's output: {said}", err=True)
        return plan
    if held is None:
        return plan
    if held.output or not _has_ended(held.job):
        raise Invalid(held.problem)
    return replace(plan, resume=True)


def _has_ended(job_id: str) -> bool:
    from tpukit.cli import context
    from tpukit.core.errors import NotFound
    from tpukit.jobs.records import JOBS

    try:
        return context.store().get(JOBS, job_id).value.state.ended
    except (NotFound, Conflict):  # a job of another store, or a record of a newer version
        return False


def _own_folders() -> tuple[Path, ...]:
    from tpukit.core import paths

    return paths.data(), paths.state()
