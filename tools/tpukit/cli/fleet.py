"""`tpu fleet`: TPU VMs over zones that work through one dataset."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpukit.cli import fleet_flags as flags
from tpukit.cli import fleet_logs, fleet_owner
from tpukit.core.errors import Invalid, NotFound, TpukitError
from tpukit.core.quantities import counted

if TYPE_CHECKING:
    from tpukit.fleet.listing import Located
    from tpukit.fleet.records import Worker
    from tpukit.fleet.wanted import Plan


# Accept flags with underscores too, as shell scripts write them.
@click.group("fleet", context_settings={"token_normalize_func": lambda token: token.replace("_", "-")})
def command() -> None:
    """Process one dataset on TPU VMs across zones, each with its own streams.

    \b
    Examples:
      tpu fleet create --zones us-central1-a,us-central1-b --workers-per-zone 4 --tpu-type v3-8
      tpu fleet deploy --zones us-central1-a --workers-per-zone 2 --gcs-bucket B --max-samples 100 \\
          --dataset data.jsonl --program extract.py:make --create-tpus --monitor
      tpu fleet deploy fleet.yaml --create-tpus  the same from a file; flags win over it
      tpu fleet monitor --gcs-bucket B           continue it; --adopt: from another machine or store
      tpu fleet verify --gcs-bucket B            is every shard there, once, and right?
      tpu fleet delete
    """


@command.command()
@flags.where
def create(file: Path | None, adopt: bool, **words: Any) -> None:
    """Create the TPU VMs of a fleet, and wait until they are ready. Its other TPU VMs stay."""
    from tpukit.fleet import deploy as deploying

    plan = deploying.plan(flags.spec_of(file, words), fleet_owner.me())
    _say_limit(plan)
    _want(plan, only=False, adopt=adopt)
    _finish(_drive_anew(plan.name, _are_ready), "ready")


@command.command()
@flags.file_
@click.option("--zones", help="Only in these zones (default: all).")
@click.option(
    "--workers-per-zone", type=click.IntRange(min=1), help="Only this many TPU VMs of each zone, from number 0."
)
@flags.adopt_
@flags.yes_
@flags.name_
def delete(
    file: Path | None, zones: str | None, workers_per_zone: int | None, adopt: bool, yes: bool, name: str | None
) -> None:
    """Delete the TPU VMs of a fleet. Its output stays in the bucket."""
    from tpukit.cli import context, fleet_driving
    from tpukit.fleet import driver
    from tpukit.fleet.records import home_of

    target, chosen, store = flags.target_of(file, name), flags.split_zones(zones), context.store()

    def meant(slot: str) -> bool:
        zone, number = home_of(slot) or ("", 0)
        return (not chosen or zone in chosen) and (workers_per_zone is None or number < workers_per_zone)

    known = driver.of(store, target.name)
    there = fleet_owner.look(target.name, flags.zones_of(known, *chosen, *target.zones))
    slots = sorted({slot for slot in ({one.slot for one in known} | set(there.pieces)) if meant(slot)})
    if slots:
        marks = fleet_owner.check(target.name, there, adopt=adopt)
        question = f"Delete {counted(len(slots), 'TPU VM')} of fleet `{target.name}` ({fleet_owner.names(slots)})?"
        fleet_owner.confirm(question, yes=yes)
        driver.discard(store, target.name, there, _now(), meant, me=fleet_owner.me(), adopted=marks)
    fleet_driving.drive(target.name, lambda workers: all(one.wanted != "gone" for one in workers))
    left = counted(len(driver.of(store, target.name)), "TPU VM is", "TPU VMs are")
    click.echo(f"{target.name}: {left} left", err=True)


@command.command()
@flags.file_
@click.option("--zones", help="Only in these zones.")
@flags.bucket_
@flags.name_
@flags.json_
def status(file: Path | None, zones: str | None, gcs_bucket: str | None, name: str | None, as_json: bool) -> None:
    """Show what each worker does. Nothing is changed."""
    from tpukit.cli import context, fleet_screen, vms
    from tpukit.fleet import driver
    from tpukit.fleet import wanted as plans
    from tpukit.fleet.status import status as now
    from tpukit.jobs.report import tables

    target, chosen = flags.target_of(file, name, gcs_bucket), flags.split_zones(zones)
    known, plan = driver.of(context.store(), target.name), target.plan()
    every = flags.zones_of(known, *chosen, *target.zones, *(plan.zones if plan else ()))
    listed = now(vms.cloud(), target.name, known, every, plan.work if plan else None)
    workers = [one for one in listed if not chosen or one.zone in chosen]
    made = fleet_screen.progress(workers, f"{plans.root_of(target.bucket)}/activations" if target.bucket else "")
    for problem in made.problems:
        click.echo(f"{target.name}: {problem}", err=True)
    if as_json:
        context.print_json(fleet_screen.as_json(workers, made))
    elif workers:
        tables.console().print(fleet_screen.dashboard(workers, made))
    else:
        click.echo(f"{target.name} has no TPU VMs in {', '.join(chosen or every)}{_earlier(name)}", err=True)


@command.command("list")
@click.option("--zones", help="Also list these zones.")
@flags.json_
def list_(zones: str | None, as_json: bool) -> None:
    """List all TPU VMs of all fleets, with their owners."""
    from tpukit.cli import context, vms
    from tpukit.fleet import listing
    from tpukit.fleet.records import FLEET, OWNER, WORKERS
    from tpukit.kernel.store import everything

    known = [entry.value for entry in everything(context.store(), WORKERS)]
    listed = listing.read_all(vms.cloud(), flags.zones_of(known, *flags.split_zones(zones)))
    for zone in listed.values():
        if zone.error is not None:
            click.echo(f"{zone.name} cannot be listed: {zone.error}", err=True)
    nodes = [(zone.name, piece.node) for zone in listed.values() for piece in zone.pieces.values() if piece.node]
    rows = [
        {
            "tpu": node.name,
            "zone": zone,
            "fleet": node.labels[FLEET],
            "state": node.state,
            "owner": node.labels.get(OWNER, "-"),
        }
        for zone, node in nodes
        if FLEET in node.labels
    ]
    if as_json:
        context.print_json(rows)
        return
    for row in rows:
        click.echo("  ".join(row.values()))


@command.command("recreate-preempted")
@flags.where
def recreate_preempted(file: Path | None, adopt: bool, **words: Any) -> None:
    """Recreate preempted TPU VMs and launch their work again. The other TPU VMs stay."""
    from tpukit.cli import context
    from tpukit.fleet import deploy as deploying
    from tpukit.fleet import driver

    name = flags.target_of(file, words["name"]).name
    known = driver.of(context.store(), name)
    if known:
        fleet_owner.check(name, fleet_owner.look(name, flags.zones_of(known)), adopt=adopt)
    else:
        _want(deploying.plan(flags.spec_of(file, words), fleet_owner.me()), only=False, adopt=adopt)
    _finish(_drive_anew(name, _are_ready), "ready")


@command.command()
@flags.where
@flags.work
@click.option("--create-tpus", is_flag=True, help="Create the TPU VMs that are missing.")
@click.option("--skip-dataset", is_flag=True, help="Use the dataset already in the bucket; split and upload nothing.")
@click.option("--skip-launch", is_flag=True, help="Upload and create everything, but launch no program.")
@click.option("--monitor", is_flag=True, help="Keep running: show progress, and recreate lost TPU VMs.")
@flags.yes_
@flags.interval_
def deploy(
    file: Path | None,
    adopt: bool,
    yes: bool,
    create_tpus: bool,
    skip_dataset: bool,
    skip_launch: bool,
    monitor: bool,
    monitor_interval: float,
    **words: Any,
) -> None:
    """Split and upload a dataset, create TPU VMs, and process it on them.

    Other TPU VMs of the fleet are deleted, after a question.
    """
    from tpukit.fleet import deploy as deploying
    from tpukit.fleet import wanted as plans

    spec = flags.spec_of(file, words)
    root = deploying.check(spec, needs_dataset=not skip_dataset, needs_program=not skip_launch)
    plan = deploying.plan(spec, fleet_owner.me())
    _say_limit(plan)
    there = _there(plan)
    try:
        before = plans.load(plan.name, root)
    except NotFound:
        before = None
    marks = fleet_owner.check(plan.name, there, adopt=adopt, plan=before)
    if not create_tpus and not skip_launch:
        _check_there(plan, there)
    if not skip_launch:
        _confirm_changes(deploying.plan_with_work(spec, root, fleet_owner.me()), there, yes=yes)
    if not skip_dataset:
        made = deploying.upload(spec, root)
        amounts = f"{counted(made.samples, 'sample')} in {counted(len(made.streams), 'stream')}"
        click.echo(f"{plan.name}: {amounts} uploaded", err=True)
    if skip_launch:
        if create_tpus:
            _want(plan, only=False, adopt=adopt)
            _finish(_drive_anew(plan.name, _are_ready), "ready")
        return
    plan = deploying.with_work(spec, root, fleet_owner.me())
    _want(plan, again=True, adopted=marks)
    if monitor:
        _monitor(plan.name, monitor_interval)
        return
    workers = _drive_anew(plan.name, _are_launched)
    _finish(workers, "launched; `tpu fleet monitor` recreates lost TPU VMs")


@command.command()
@flags.file_
@flags.bucket_
@flags.interval_
@flags.adopt_
@flags.yes_
@flags.name_
def monitor(
    file: Path | None, gcs_bucket: str | None, monitor_interval: float, adopt: bool, yes: bool, name: str | None
) -> None:
    """Show progress and recreate lost TPU VMs until all work is done. Can be stopped and started at any time.

    With a bucket, the plan in it counts as it was deployed last: TPU VMs of the fleet that are not in it are deleted,
    after a question.
    """
    from msgspec.structs import replace

    from tpukit.cli import context
    from tpukit.fleet import driver
    from tpukit.fleet import wanted as plans

    target = flags.target_of(file, name, gcs_bucket)
    known = driver.of(context.store(), target.name)
    if target.bucket:
        plan = plans.load(target.name, target.bucket)
        there = _there(plan)
        marks = fleet_owner.check(target.name, there, adopt=adopt, plan=plan)
        me = fleet_owner.me()
        plan = replace(plan, owner=me.owner, store=me.store)
        _confirm_changes(plan, there, yes=yes)
        _want(plan, adopted=marks)
    elif known:
        fleet_owner.check(target.name, fleet_owner.look(target.name, flags.zones_of(known)), adopt=adopt)
    else:
        words = f"this machine has no record of fleet `{target.name}`{_earlier(name)}"
        raise Invalid(words, hint="name the bucket of the fleet: --gcs-bucket")
    _monitor(target.name, monitor_interval)


@command.command()
@flags.file_
@flags.bucket_
@click.option("--fast", is_flag=True, help="Compare sizes alone; contents are not read.")
@flags.json_
def verify(file: Path | None, gcs_bucket: str | None, fast: bool, as_json: bool) -> int:
    """Check that every shard of every stream is there once, with the content that was recorded."""
    from tpukit.cli import context
    from tpukit.fleet import wanted as plans
    from tpukit.fleet.verify import verify as check

    bucket = flags.target_of(file, None, gcs_bucket).bucket
    if not bucket:
        raise Invalid("name the bucket of the fleet: --gcs-bucket")
    root = plans.root_of(bucket)
    verdict = check(f"{root}/datasets", f"{root}/activations", contents=not fast)
    if as_json:
        about = {"shards": verdict.shards, "samples": verdict.samples, "bytes": verdict.bytes}
        context.print_json({**about, "problems": list(verdict.problems)})
    else:
        for problem in verdict.problems:
            click.echo(problem)
        words = counted(len(verdict.problems), "problem") if verdict.problems else "complete"
        amounts = f"{counted(verdict.samples, 'sample')} in {counted(verdict.shards, 'shard')}"
        click.echo(f"{words}: {amounts}, {verdict.bytes} bytes")
    return 1 if verdict.problems else 0


command.add_command(fleet_logs.logs)


@command.command()
def schema() -> None:
    """Print the JSON Schema of fleet files, for editors."""
    from tpukit.jobs.spec import json_schema
    from tpukit.jobs.spec.fleet import FleetSpec

    click.echo(json.dumps(json_schema(FleetSpec, "tpukit fleet"), indent=2))


def _want(
    plan: Plan, *, only: bool = True, again: bool = False, adopt: bool = False, adopted: Sequence[str] | None = None
) -> None:
    """Write the plan into the records.

    `adopted`: marks from an earlier ownership check; without them the check runs here.
    """
    from msgspec.structs import replace

    from tpukit.cli import context
    from tpukit.fleet import driver

    there = _there(plan)
    marks = fleet_owner.check(plan.name, there, adopt=adopt) if adopted is None else list(adopted)
    workers = [replace(one, adopted=marks) for one in plan.workers(_now())]
    driver.want(context.store(), plan.name, workers, there, _now(), only=only, again=again)


def _there(plan: Plan) -> Located:
    from tpukit.cli import context
    from tpukit.fleet import driver

    known = driver.of(context.store(), plan.name)
    return fleet_owner.look(plan.name, sorted({*plan.zones, *(zone for one in known for zone in one.everywhere)}))


def _check_there(plan: Plan, there: Located) -> None:
    missing = [one.tpu for one in plan.workers(0.0) if one.slot not in there.pieces]
    if missing:
        hint = "--create-tpus creates them, and so does `tpu fleet create`"
        raise Invalid(f"{fleet_owner.names(missing)} do not exist", hint=hint)


def _confirm_changes(plan: Plan, there: Located, *, yes: bool) -> None:
    from tpukit.cli import context
    from tpukit.fleet import driver

    changes = fleet_owner.changes(driver.of(context.store(), plan.name), plan, there)
    if changes:
        fleet_owner.confirm(f"Fleet `{plan.name}` is there: {'; '.join(changes)}. Continue?", yes=yes)


def _say_limit(plan: Plan) -> None:
    """Print before creation whether TPU VMs end by themselves."""
    from tpukit.jobs.spec import durations

    if plan.unattended:
        words = f"TPU VMs delete themselves after {durations.write(int(plan.unattended))} without a driver"
        click.echo(f"{plan.name}: {words} (--unattended)", err=True)
    else:
        click.echo(f"{plan.name}: TPU VMs stay until you delete them, with or without a driver", err=True)


def _earlier(name: str | None) -> str:
    """Return a hint if no name was given and this store has a fleet with the default name of an earlier version."""
    from tpukit.cli import context
    from tpukit.fleet import driver

    if name is None and driver.of(context.store(), flags.EARLIER_NAME):
        return f"; `--name {flags.EARLIER_NAME}` is the fleet that an earlier version made"
    return ""


def _drive_anew(name: str, over: Callable[[Sequence[Worker]], bool]) -> list[Worker]:
    """Drive the fleet until `over`, judged only by observations from now on."""
    from tpukit.cli import context, fleet_driving
    from tpukit.fleet import driver

    driver.forget_seen(context.store(), name)
    return fleet_driving.drive(name, over)


def _monitor(name: str, interval: float) -> None:
    from tpukit.cli import fleet_driving

    workers = fleet_driving.drive(name, _are_over, interval=interval, live=True)
    _finish(workers, "done; `tpu fleet verify` checks the output, `tpu fleet delete` deletes the TPU VMs")


def _are_ready(workers: Sequence[Worker]) -> bool:
    return all(one.wanted != "gone" and (one.tpu_state == "READY" or one.state == "failed") for one in workers)


def _are_launched(workers: Sequence[Worker]) -> bool:
    """Return True if all programs are launched and all workers to remove are removed."""
    running = [one.state != "active" or (one.attempt > 0 and one.ran == one.attempt) for one in workers]
    return all(running) and all(one.wanted != "gone" for one in workers)


def _are_over(workers: Sequence[Worker]) -> bool:
    return all(one.state != "active" for one in workers)


def _finish(workers: Sequence[Worker], words: str) -> None:
    failed = [one for one in workers if one.state == "failed"]
    if len(failed) < len(workers) or not failed:
        click.echo(f"{counted(len(workers) - len(failed), 'worker is', 'workers are')} {words}", err=True)
    if failed:
        reasons = sorted({one.message for one in failed})
        count = "All workers" if len(failed) == len(workers) else f"{len(failed)} of {len(workers)} workers"
        shown = f"{failed[0].tpu}: {failed[0].message}" if len(failed) == 1 else "; ".join(reasons[:3])
        raise TpukitError(f"{count} failed. {shown}" if len(failed) > 1 else shown)


def _now() -> float:
    from tpukit.cli import context

    return context.CLOCK.now()
