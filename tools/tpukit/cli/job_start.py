"""`tpu job start`: run the program of a working directory on a TPU, or continue a job on another TPU."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpukit import places
from tpukit.cli import questions
from tpukit.cli.plan_view import resume_option, set_option
from tpukit.cli.who import user_name, user_option
from tpukit.core.errors import Conflict, Invalid, Problem
from tpukit.core.quantities import counted

if TYPE_CHECKING:
    from tpukit.jobs.plan import Plan
    from tpukit.jobs.records import Job
    from tpukit.jobs.spec import Settings
    from tpukit.sharing.inventory import Vm
    from tpukit.sharing.users import User
    from tpukit.sharing.windows import Window

FILE = "job.yaml"


@click.command("start")
@click.argument("tpu")
@user_option
@click.option("--dir", "directory", type=click.IntRange(min=1), default=1, show_default=True, help="Working directory.")
@set_option
@resume_option
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Mark the job; repeatable.")
@click.option("--rule", default="", help="Rule for lost hardware; `tpu job rules` lists them.")
@click.option("--reapply/--no-reapply", default=None, help="Recreate the TPU if it was preempted (default: ask).")
@click.option("--monitor/--no-monitor", default=None, help="Follow the job (default: your setting monitor_after_run).")
@click.option("--log-stage", is_flag=True, help="Pass config.stage to the program: how often it was resumed.")
@click.option("--notes", default="", help="Text beside the TPU for all to see; _ becomes a space.")
@click.option("--ask-notes", is_flag=True, help="Ask for the text.")
@click.option(
    "--place", default=places.MACHINES, show_default=True, help="Place to run at; local tries it on this machine."
)
@click.option("--yes", is_flag=True, help="Use the TPU even if an active job holds it.")
@click.option("--dry-run", is_flag=True, help="Print what would be done; do nothing.")
def command(
    tpu: str,
    user: str,
    directory: int,
    sets: tuple[str, ...],
    resume: bool,
    tags: tuple[str, ...],
    rule: str,
    reapply: bool | None,
    monitor: bool | None,
    log_stage: bool,
    notes: str,
    ask_notes: bool,
    place: str,
    yes: bool,
    dry_run: bool,
) -> None:
    """Run what is in a working directory on TPU: a name, an alias, or a type such as v4-8 for any that is free.

    The folder's job.yaml says what runs; the TPU decides the slice, and whether it is spot. The job's window,
    USER:NUMBER, is printed on stdout.

    \b
    Examples:
      tpu job start v2-32-6 --user ada --set lr=0.01 --tag try
      tpu run v2-32-6 ada lr=0.01 tag=try        the same
      tpu job start v4-8 --user ada --place local
    """
    from tpukit.cli import context, plan_view
    from tpukit.cli.interrupts import Interrupts
    from tpukit.jobs.use_cases import submission
    from tpukit.sharing import users

    person = users.get(context.store(), user_name(user))
    folder = Path(users.directory(person, directory))
    submission.check_tags("--tag", tags)
    submission.check_place(place)
    vm, instead_of = _tpu(tpu, place, person, reapply, yes, dry_run)
    plan = _plan(folder, vm, place, _sets(vm, place, rule, sets), tags, person)
    plan = submission.settle(context.session(), replace(plan, log_stage=log_stage, resume=resume))
    submission.warn(context.session(), plan)
    if dry_run:
        plan_view.describe(submission.inspect(plan), details=True)
        return
    plan = submission.stage_code(plan)
    if ask_notes:
        notes = questions.text("Notes", "--notes", default="")
    interrupts = Interrupts().start()
    window = send(
        *(plan, vm if place == places.MACHINES else None, person.name),
        directory=directory,
        instead_of=instead_of,
        notes=notes,
    )
    follow = person.settings.monitor_after_run if monitor is None else monitor
    _follow(window, follow, interrupts)


def again_on(job: Job, window: Window, wanted: str, tpu: str, detach: bool) -> None:
    """Send an ended job to another TPU as a new job: from its last checkpoint, or from the beginning."""
    from tpukit.cli import context
    from tpukit.cli.interrupts import Interrupts
    from tpukit.jobs.plan import Plan
    from tpukit.jobs.use_cases import submission
    from tpukit.sharing import users

    if not job.state.ended:
        raise Conflict(f"{job.id} is {job.state}", hint=f"`tpu job stop {window.name}` first")
    person = users.get(context.store(), window.user)
    old = Plan.from_json(job.plan)
    vm, instead_of = _tpu(tpu, old.place, person, reapply=None, yes=False, dry_run=False)
    origin = job.attempt.origin if job.attempt else 0
    workdir = context.places()[old.place].workdir(old, origin)
    spec = old.spec.replace(tpu=type(old.spec.tpu).unchecked(type=vm.type))
    if wanted == "resume" and not workdir.startswith("~"):
        spec = spec.replace(workdir=workdir)
    elif wanted == "resume":
        click.echo(
            "checkpoints of the job are on the hosts of the old TPU: the job starts from the beginning", err=True
        )
    elif old.spec.workdir:
        spec = spec.replace(workdir=f"{old.spec.workdir}/rerun-of-{window.number}-{int(context.CLOCK.now())}")
    settings = _settings(old, vm, old.place)
    plan = replace(old, spec=spec, slice=spec.slice, target=None, settings=settings, resume=wanted == "resume")
    plan = submission.settle(context.session(), _on(plan, vm))
    context.places()[plan.place].check_code(plan)
    submission.warn(context.session(), plan)
    interrupts = Interrupts().start()
    child = send(
        *(plan, vm if old.place == places.MACHINES else None, person.name),
        directory=window.directory,
        parent=window.number,
        instead_of=instead_of,
    )
    _follow(child, not detach, interrupts)


def send(
    plan: Plan,
    vm: Vm | None,
    user: str,
    *,
    directory: int = 1,
    parent: int = 0,
    instead_of: str = "",
    notes: str = "",
) -> Window:
    """Create the window, hold the TPU, and record the job. In this order every job has a window despite interruptions.

    `instead_of`: the active job from which the user agreed to take the TPU.
    """
    from msgspec.structs import replace as changed

    from tpukit.cli import context, vms
    from tpukit.jobs.use_cases import submission
    from tpukit.sharing import inventory, users, windows

    store, now = context.store(), context.CLOCK.now()
    tpu = vm.name if vm else plan.slice.name
    window = windows.make(store, user, plan.id, now, directory=directory, tpu=tpu, parent=parent)
    try:
        if vm:
            inventory.hold(
                *(store, vm.name, user, plan.id, now, vms.is_active), window=window.name, instead_of=instead_of
            )
        sent = submission.record(context.session(), plan, user)
    except Conflict:
        windows.drop(store, window.name)
        raise
    if sent.id != plan.id:  # another submission took the id a moment ago
        window = windows.changed(store, window.name, lambda one: changed(one, job=sent.id))
        if vm:
            inventory.hold(store, vm.name, user, sent.id, now, vms.is_active, window=window.name)
    if vm and notes:
        inventory.note(store, vm.name, notes.replace("_", " "), now)
    users.note(store, user, f"window {window.number}: {sent.id} sent to {tpu}", now)
    return window


def _follow(window: Window, follow: bool, interrupts: object) -> None:
    from tpukit.cli import context, unattended
    from tpukit.cli.follow import Follower
    from tpukit.cli.interrupts import Interrupts

    assert isinstance(interrupts, Interrupts)
    click.echo(window.name)
    follower = Follower(window.job, "ask", interrupts)
    if follow:
        _say_others(window)
        follower.start()
        sys.exit(follower.follow())
    code = follower.hand_over()
    click.echo(f"{window.name} is {window.job}; `tpu check {window.user}` shows it", err=True)
    unattended.say([context.get(window.job)])
    sys.exit(code)


def _say_others(window: Window) -> None:
    from tpukit.cli import context, vms
    from tpukit.sharing import windows

    others = [one for one in windows.of_user(context.store(), window.user) if one.number != window.number]
    if active := vms.active_jobs({one.job for one in others}):
        jobs = counted(len(active), "other job")
        text = f"this terminal follows {window.name}; {jobs} of {window.user}: `tpu monitor {window.user}` follows all"
        click.echo(text, err=True)


def _tpu(word: str, place: str, person: User, reapply: bool | None, yes: bool, dry_run: bool) -> tuple[Vm, str]:
    """Return the TPU that `word` names, ready, and the active job that the user agreed to take it from, if any."""
    from tpukit import catalogue
    from tpukit.cli import context, vms
    from tpukit.sharing import inventory, tpu_names
    from tpukit.sharing.inventory import Vm

    if place != places.MACHINES:  # a place without TPU VMs: the name gives the shape
        said = tpu_names.parse_tpu(vms.full_name(word))
        shape = catalogue.find(said.type if said else word)
        return Vm(word, "", shape.name, 0.0, bool(said and said.spot)), ""
    if _is_type(word):
        chosen = inventory.choose(vms.rows(), catalogue.find(word).name).vm
        return inventory.register(context.store(), chosen, context.CLOCK.now()), ""
    vm = vms.known(word)
    instead_of = vm.job if vm.job and vms.is_active(vm.job) else ""
    if instead_of and not yes:
        whose = "you run" if vm.user == person.name else f"{vm.user} runs"
        question = f"{whose} {vm.job} on {vm.name}"
        if not questions.possible():
            raise Conflict(
                question, hint=f"use another TPU, stop that job, or add --yes; `tpu find {vm.type}` shows all"
            )
        if not questions.confirm(f"{question}. Use it anyway?"):
            raise click.Abort
    if not dry_run:
        _make_ready(vm, reapply)
    return vm, instead_of


def _is_type(word: str) -> bool:
    from tpukit import catalogue
    from tpukit.cli import vms

    if vms.full_name(word) != word:
        return False
    try:
        catalogue.find(word)
    except Invalid:
        return False
    return True


def _make_ready(vm: Vm, reapply: bool | None) -> None:
    from tpukit.cli import vm_act, vms
    from tpukit.sharing import shared_vms

    state = shared_vms.state(vms.cloud(), vm)
    if state == "READY":
        return
    if reapply is None and questions.possible():
        reapply = questions.confirm(f"{vm.name} is {state}. Recreate it?", "--reapply")
    if not reapply:
        raise Conflict(
            f"{vm.name} is {state}", hint=f"`tpu vm reapply {vm.name}` first, or start it with --reapply (-apply)"
        )
    if state in ("NOT_FOUND", "CREATING", "STARTING") or state.startswith("queued: WAIT"):
        vm_act.make(vm, wait=True)
    else:
        vm_act.make_anew(vm, wait=True)


def _sets(vm: Vm, place: str, rule: str, sets: tuple[str, ...]) -> tuple[str, ...]:
    from tpukit.jobs.rules import RULES

    if rule and rule not in RULES:
        raise Invalid(Problem("--rule", f"there is no rule {rule}", f"write one of {', '.join(RULES)}"))
    bought = "spot" if vm.spot else "on-demand"
    return (f"tpu={vm.type}", "slices=1", f"capacity={bought}", *((f"rule={rule}",) if rule else ()), *sets)


def _plan(folder: Path, vm: Vm, place: str, sets: tuple[str, ...], tags: tuple[str, ...], person: User) -> Plan:
    from tpukit.jobs.use_cases import submission

    file = folder / FILE
    if not file.is_file():
        hint = f"write {file}, such as\n  name: train\n  tpu: {vm.type}\n  command: [python, main.py]\n  code: ."
        raise Invalid(Problem(str(folder), f"there is no {FILE}, which describes the program to run", hint))
    plan = submission.make_plan(file, sets, place, tags, person.aliases)
    if not plan.spec.code:
        plan = replace(plan, spec=plan.spec.replace(code=str(folder)))
    return _on(replace(plan, settings=_settings(plan, vm, place)), vm)


def _settings(plan: Plan, vm: Vm, place: str) -> Settings:
    return plan.settings.replace(zone=vm.zone) if place == places.MACHINES else plan.settings


def _on(plan: Plan, vm: Vm) -> Plan:
    from tpukit.cli import context
    from tpukit.jobs.use_cases import submission

    if plan.place != places.MACHINES:
        return plan
    named = submission.on_machines(context.session(), plan, vm.name)
    assert named.vms
    return replace(named, target=replace(named.vms, disk=vm.disk, mount=vm.mount))
