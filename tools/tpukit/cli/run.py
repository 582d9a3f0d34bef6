"""`tpu run`: send a job and follow it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpukit.errors import Conflict, Invalid, Problem

if TYPE_CHECKING:
    from tpukit.places.base import HostView
    from tpukit.plan import Plan
    from tpukit.rehearsal import Loss
    from tpukit.store.sqlite import SqliteStore

TICK_SECONDS = 0.2
HAND_OVER_SECONDS = 60.0
"""How long a detached job may take to be taken by its cluster: hosts of its last attempt leave first."""
PLACES = ("local", "gke", "tpu-vm")

set_option = click.option(
    "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Override any field of the job file; repeatable."
)


@click.command("run")
@click.argument("file", type=click.Path(path_type=Path))
@set_option
@click.option("--place", default="local", show_default=True, help="Where to run: local (this machine) or gke.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Mark the job; repeatable.")
@click.option("--detach", is_flag=True, help="Send it and return; `tpu serve` drives it.")
@click.option("--lose", metavar="SLICE-HOST@STEP", help="Rehearse: kill this host when it reaches this step.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option(
    "--on-interrupt",
    type=click.Choice(["ask", "stop", "detach"]),
    default="ask",
    show_default=True,
    help="What Ctrl-C does. Without a terminal to ask at, it detaches.",
)
def command(
    file: Path,
    sets: tuple[str, ...],
    place: str,
    tags: tuple[str, ...],
    detach: bool,
    lose: str | None,
    dry_run: bool,
    on_interrupt: str,
) -> None:
    """Send the job in FILE and follow it to its end.

    The job's id is printed on stdout, progress on stderr. Exits 0 when the job completed, 1 when it failed or was
    stopped, 2 when FILE is wrong, 130 when you detached with Ctrl-C.

    \b
    Examples:
      tpu run job.yaml
      tpu run job.yaml --set slices=4 --set lr=0.01 --tag sweep-3
      tpu run job.yaml --detach && tpu serve
      tpu run job.yaml --lose 1-0@30             does it survive the loss of a host?
      tpu run job.yaml --place gke               on the cluster that kubectl would use
    """
    from tpukit import rehearsal
    from tpukit.cli import here

    check_tags("--tag", tags)
    plan = make_plan(file, sets, place, tags)
    if lose and detach:
        raise Invalid(Problem("--lose", "only a job that is followed can be rehearsed", "leave --detach out"))
    if lose and place != "local":
        hint = "leave --lose out; in a sandbox, `tpu sandbox faults` loses hosts"
        raise Invalid(Problem("--lose", "hosts are lost on purpose on this machine alone", hint))
    loss = rehearsal.parse(lose, plan.spec.slices, plan.slice.hosts) if lose else None
    if place == "gke":
        plan = replace(plan, cluster=here.gke().clusters.current())
        here.gke().check(plan)
    elif place != "local":
        raise Conflict(f"this version cannot send to {place}", hint="write --place local or --place gke")
    if dry_run:
        describe(plan)
        return
    jobs = here.store()
    plan = send(jobs, plan)
    click.echo(plan.id)
    if detach:
        hand_over(jobs, plan.id)
        click.echo(f"{plan.id} was sent; `tpu serve` drives it, `tpu job show {plan.id}` shows it", err=True)
        return
    follower = Follower(jobs, plan.id, on_interrupt, loss)
    follower.start()
    describe(plan)
    sys.exit(follower.follow())


def make_plan(file: Path, sets: tuple[str, ...], place: str, tags: tuple[str, ...] = ()) -> Plan:
    """The plan for the job in `file`, with `tags` beside its own."""
    from tpukit import plan, spec
    from tpukit.spec import settings

    check_place(place)
    own = settings.load()
    job = spec.load(file, sets, own.aliases)
    return plan.make(job.replace(tags=tuple(dict.fromkeys((*job.tags, *tags)))), own, place)


def check_place(place: str) -> None:
    """Empty: any."""
    if place and place not in PLACES:
        raise Invalid(Problem("--place", f"there is no place {place!r}", f"write one of {', '.join(PLACES)}"))


def check_tags(where: str, tags: tuple[str, ...]) -> None:
    from tpukit.spec.fields import TAG_FORM

    if wrong := [tag for tag in tags if not TAG_FORM.fits(tag)]:
        raise Invalid([Problem(where, f"{tag!r} is not allowed", TAG_FORM.words) for tag in wrong])


def send(jobs: SqliteStore, plan: Plan) -> Plan:
    """Stage the code and write the job down: the plan as it is kept, with its code and its own id.

    From here on the job will be driven, by us or by whoever comes.
    """
    from tpukit import plan as planning
    from tpukit import stage
    from tpukit.cli import here
    from tpukit.store import Job

    spec = plan.spec
    snapshot = stage.snapshot(Path(spec.code), here.local().shelf) if spec.code else None
    elsewhere = here.gke().taken(plan) if plan.place == "gke" else frozenset()
    while True:
        plan = planning.make(
            spec,
            plan.settings,
            plan.place,
            snapshot=snapshot,
            cluster=plan.cluster,
            taken=jobs.taken(spec.name) | elsewhere,
        )
        job = Job(
            plan.id, plan.place, plan.team, here.owner(), here.CLOCK.now(), plan=plan.to_json(), tags=tuple(spec.tags)
        )
        try:
            jobs.add(job)
        except Conflict:  # somebody took the id a moment ago
            continue
        return plan


def describe(plan: Plan) -> None:
    """The plan, before anything is done."""
    spec, shape = plan.spec, plan.slice
    slices = "1 slice" if spec.slices == 1 else f"{spec.slices} slices"
    click.echo(
        f"{plan.id}: {slices} of {shape.name} ({shape.topology}), {plan.hosts} hosts, {plan.chips} chips, "
        f"place {plan.place}, rule {spec.rule}",
        err=True,
    )
    for note in (*plan.notes, *_old_jax(plan)):
        click.echo(f"  {note}", err=True)


def _old_jax(plan: Plan) -> list[str]:
    """Before 0.12, steps dispatched without waiting deadlock on simulated slices, with no message and for ever."""
    from importlib import metadata

    try:
        version = metadata.version("jax")
    except metadata.PackageNotFoundError:
        return []
    if plan.place != "local" or tuple(int(part) for part in version.split(".")[:2]) >= (0, 12):
        return []
    advice = "use Python 3.12 or newer, or tpukit.host, which waits for each step"
    return [f"jax {version} can hang on simulated slices; {advice}"]


class Follower:
    """Drives one job and shows it until it ends or the person leaves."""

    def __init__(self, jobs: SqliteStore, job_id: str, on_interrupt: str, loss: Loss | None = None) -> None:
        from tpukit.cli import here

        self._loss = loss
        self._jobs, self._id, self._on_interrupt = jobs, job_id, on_interrupt
        self._clock, self._places = here.CLOCK, here.places()
        self._loop = here.loop(jobs)

    def start(self) -> None:
        """Take the first step. Hosts need seconds to start: they do so while we load what to show them with."""
        self._loop.tick([self._id])

    def follow(self) -> int:
        from tpukit.report.live import Screen

        screen = Screen(self._jobs, self._places, self._id)
        while True:
            try:
                with _hangup_detaches(), screen:
                    while self._loop.tick([self._id]):
                        self._lose(screen.update(self._clock.now()))
                        self._clock.sleep(TICK_SECONDS)
                    screen.update(self._clock.now())
                return 0 if self._jobs.get(self._id).state == "completed" else 1
            except KeyboardInterrupt:
                choice = self._ask()
                if choice == "detach":
                    return self._detach()
                if choice == "stop":
                    self._on_interrupt = "detach"  # a second Ctrl-C does not want to wait
                    ask_to_stop(self._jobs, self._id)
            except _Hangup:
                return self._detach()

    def _lose(self, hosts: Sequence[HostView]) -> None:
        victim = self._loss.victim(hosts) if self._loss else None
        if victim:
            self._loss = None  # once
            os.kill(victim.pid, signal.SIGKILL)
            note = f"{victim.name} killed on purpose at step {victim.step} (--lose)"
            self._jobs.change(self._id, lambda job: job, note=note, at=self._clock.now())

    def _ask(self) -> str:
        if self._on_interrupt != "ask":
            return self._on_interrupt
        if not sys.stdin.isatty():
            return "detach"
        try:
            answer = click.prompt(
                "\nStop the job, detach from it, or go on?",
                type=click.Choice(["stop", "detach", "go on"]),
                default="go on",
                err=True,
            )
        except (click.Abort, KeyboardInterrupt, EOFError):
            return "detach"
        return str(answer)

    def _detach(self) -> int:
        click.echo(f"detached: {self._id} goes on. `tpu serve` drives it, `tpu job stop {self._id}` stops it", err=True)
        return 130


def hand_over(jobs: SqliteStore, job_id: str) -> None:
    """See to it that a cluster has the job: it then goes on by itself. On this machine somebody has to drive it."""
    from tpukit.cli import here
    from tpukit.places.base import Handle
    from tpukit.reasons import State

    loop, due = here.loop(jobs), here.CLOCK.now() + HAND_OVER_SECONDS
    while jobs.get(job_id).place != "local" and loop.tick([job_id]) and here.CLOCK.now() < due:
        job = jobs.get(job_id)
        if job.attempt and here.places()[job.place].observe([Handle.of(job)])[0].state is not State.PENDING:
            return
        here.CLOCK.sleep(TICK_SECONDS)


def ask_to_stop(jobs: SqliteStore, job_id: str) -> None:
    from tpukit.cli import here

    jobs.change(
        job_id,
        lambda job: job if job.state.ended else replace(job, wanted="stop"),
        note=f"stop asked for by {here.owner()}",
        at=here.CLOCK.now(),
    )


class _Hangup(Exception):
    """The terminal is gone, or somebody wants this process to leave: the job goes on without it."""


@contextmanager
def _hangup_detaches() -> Iterator[None]:
    def leave(number: int, frame: object) -> None:
        raise _Hangup

    heard = [number for number in (signal.SIGHUP, signal.SIGTERM) if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, leave) for number in heard}  # what nohup had ignored stays ignored
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
