"""`tpu fleet`: TPU VMs over zones that work through one dataset."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpukit.cli import fleet_flags as flags
from tpukit.errors import Invalid, TpukitError

if TYPE_CHECKING:
    from tpukit.fleet.records import Worker
    from tpukit.fleet.wanted import Plan


@click.group("fleet")
def command() -> None:
    """TPU VMs over zones that work through one dataset, each on streams of its own.

    \b
    Examples:
      tpu fleet create --zones us-central1-a,us-central1-b --workers-per-zone 4 --tpu-type v3-8
      tpu fleet deploy --zones us-central1-a --workers-per-zone 2 --gcs-bucket B --max-samples 100 \\
          --dataset data.jsonl --program extract.py:make --create-tpus --monitor
      tpu fleet deploy fleet.yaml --create-tpus  the same from a file; flags win over it
      tpu fleet monitor --gcs-bucket B           go on from any machine
      tpu fleet verify --gcs-bucket B            is every shard there, once, and right?
      tpu fleet delete
    """


@command.command()
@flags.where
def create(file: Path | None, **words: Any) -> None:
    """Make the TPU VMs of a fleet, and wait until they are ready. What else it has is left alone."""
    from tpukit.fleet import deploy as deploying

    plan = deploying.plan(flags.spec_of(file, words))
    _want(plan, only=False)
    _finish(_drive_anew(plan.name, _are_ready), "ready")


@command.command()
@flags.file_
@click.option("--zones", help="Only in these zones; all if left out.")
@click.option("--workers-per-zone", type=click.IntRange(min=1), help="Only so many of each zone, from 0.")
@flags.name_
def delete(file: Path | None, zones: str | None, workers_per_zone: int | None, name: str | None) -> None:
    """Delete the TPU VMs of a fleet. What it made stays in the bucket."""
    from tpukit.cli import context, fleet_driving, vms
    from tpukit.fleet import driver
    from tpukit.fleet.observe import located
    from tpukit.fleet.records import home_of

    target, chosen, store = flags.target_of(file, name), flags.split_zones(zones), context.store()

    def meant(slot: str) -> bool:
        zone, number = home_of(slot) or ("", 0)
        return (not chosen or zone in chosen) and (workers_per_zone is None or number < workers_per_zone)

    known = driver.of(store, target.name)
    there = located(vms.cloud(), target.name, flags.zones_of(known, *chosen, *target.zones))
    driver.discard(store, target.name, there, _now(), meant)
    fleet_driving.drive(target.name, lambda workers: all(one.wanted != "gone" for one in workers))
    click.echo(f"{target.name}: {len(driver.of(store, target.name))} TPU VMs are left", err=True)


@command.command()
@flags.file_
@click.option("--zones", help="Only in these zones.")
@flags.bucket_
@flags.name_
@flags.json_
def status(file: Path | None, zones: str | None, gcs_bucket: str | None, name: str | None, as_json: bool) -> None:
    """What each worker does, as it is now. Nothing is changed."""
    from tpukit.cli import context, fleet_screen, vms
    from tpukit.fleet import driver
    from tpukit.fleet.status import status as now
    from tpukit.report import tables

    target, chosen = flags.target_of(file, name, gcs_bucket), flags.split_zones(zones)
    known, plan = driver.of(context.store(), target.name), target.plan()
    every = flags.zones_of(known, *chosen, *target.zones, *(plan.zones if plan else ()))
    listed = now(vms.cloud(), target.name, known, every, plan.work if plan else None)
    workers = [one for one in listed if not chosen or one.zone in chosen]
    if as_json:
        context.print_json(fleet_screen.as_json(workers, fleet_screen.progress(workers)))
    elif workers:
        tables.console().print(fleet_screen.dashboard(workers, fleet_screen.progress(workers)))
    else:
        click.echo(f"{target.name} has no TPU VMs in {', '.join(chosen or every)}", err=True)


@command.command("list")
@click.option("--zones", help="In these zones too.")
@flags.json_
def list_(zones: str | None, as_json: bool) -> None:
    """All TPU VMs of all fleets."""
    from tpukit.cli import context, vms
    from tpukit.fleet.records import FLEET, WORKERS
    from tpukit.manager import shared_vms
    from tpukit.store import everything

    known = [entry.value for entry in everything(context.store(), WORKERS)]
    listed = shared_vms.list_zones(vms.cloud(), flags.zones_of(known, *flags.split_zones(zones)))
    rows = [
        {"tpu": node.name, "zone": zone, "fleet": node.labels[FLEET], "state": node.state}
        for zone, nodes in listed.items()
        for node in nodes
        if FLEET in node.labels
    ]
    if as_json:
        context.print_json(rows)
        return
    for row in rows:
        click.echo("  ".join(row.values()))


@command.command("recreate-preempted")
@flags.where
def recreate_preempted(file: Path | None, **words: Any) -> None:
    """Delete and make again what was taken back, and launch what it worked on. The rest is left alone."""
    from tpukit.cli import context
    from tpukit.fleet import deploy as deploying
    from tpukit.fleet import driver

    name = flags.target_of(file, words["name"]).name
    if not driver.of(context.store(), name):
        _want(deploying.plan(flags.spec_of(file, words)), only=False)
    _finish(_drive_anew(name, _are_ready), "ready")


@command.command()
@flags.where
@flags.work
@click.option("--create-tpus", is_flag=True, help="Make the TPU VMs that are not there.")
@click.option("--skip-dataset", is_flag=True, help="The dataset is in the bucket already.")
@click.option("--skip-launch", is_flag=True, help="Prepare, and start nothing.")
@click.option("--monitor", is_flag=True, help="Stay, show progress, and bring back what is lost.")
@flags.interval_
def deploy(
    file: Path | None,
    create_tpus: bool,
    skip_dataset: bool,
    skip_launch: bool,
    monitor: bool,
    monitor_interval: float,
    **words: Any,
) -> None:
    """Split and upload a dataset, make TPU VMs, and let them work through it. Those that the fleet has beside them are
    deleted.
    """
    from tpukit.fleet import deploy as deploying

    spec = flags.spec_of(file, words)
    root = deploying.check(spec, needs_dataset=not skip_dataset, needs_program=not skip_launch)
    plan = deploying.plan(spec)
    if not create_tpus and not skip_launch:
        _check_there(plan)
    if not skip_dataset:
        made = deploying.upload(spec, root)
        click.echo(f"{plan.name}: {made.samples} samples in {len(made.streams)} streams are uploaded", err=True)
    if skip_launch:
        if create_tpus:
            _want(plan, only=False)
            _finish(_drive_anew(plan.name, _are_ready), "ready")
        return
    plan = deploying.with_work(spec, root)
    _want(plan, again=True)
    if monitor:
        _monitor(plan.name, monitor_interval)
        return
    workers = _drive_anew(plan.name, _are_launched)
    _finish(workers, "launched; `tpu fleet monitor` brings back what is lost")


@command.command()
@flags.file_
@flags.bucket_
@flags.interval_
@flags.name_
def monitor(file: Path | None, gcs_bucket: str | None, monitor_interval: float, name: str | None) -> None:
    """Show progress and bring back what is lost, until nothing is left to do. Any number of times, from any machine.

    With a bucket its plan counts, as it was deployed last: TPU VMs of the fleet that are not in it are deleted.
    """
    from tpukit.cli import context
    from tpukit.fleet import driver
    from tpukit.fleet import wanted as plans

    target = flags.target_of(file, name, gcs_bucket)
    if target.bucket:
        _want(plans.load(target.name, target.bucket))
    elif not driver.of(context.store(), target.name):
        words = f"nothing is known of {target.name} on this machine"
        raise Invalid(words, hint="name the bucket of the fleet: --gcs-bucket")
    _monitor(target.name, monitor_interval)


@command.command()
@flags.file_
@flags.bucket_
@click.option("--fast", is_flag=True, help="Compare sizes alone; contents are not read.")
@flags.json_
def verify(file: Path | None, gcs_bucket: str | None, fast: bool, as_json: bool) -> int:
    """Whether every shard of every stream is there once, with the content that was recorded."""
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
        words = "all is there" if not verdict.problems else f"{len(verdict.problems)} problems"
        click.echo(f"{words}: {verdict.samples} samples in {verdict.shards} shards, {verdict.bytes} bytes")
    return 1 if verdict.problems else 0


@command.command()
@click.argument("tpu")
@flags.name_
def logs(tpu: str, name: str | None) -> None:
    """What the program of a worker has printed."""
    import base64

    from tpukit.cli import context, fleet_driving
    from tpukit.errors import NotFound
    from tpukit.fleet import driver

    fleet = name or flags.DEFAULT_NAME
    worker = next((one for one in driver.of(context.store(), fleet) if tpu in (one.tpu, one.slot)), None)
    if worker is None:
        raise NotFound(f"{fleet} has no worker {tpu}", hint="`tpu fleet status` shows them")
    acting = fleet_driving.acting()
    try:
        login, position = acting.login(worker), 0
        while True:
            piece = acting.reach.log(worker, login, position)
            content = base64.b64decode(piece["bytes"])
            click.echo(content, nl=False)
            position += len(content)
            if not content or position >= piece["size"]:
                return
    finally:
        acting.reach.channel.close()


@command.command()
def schema() -> None:
    """Print the JSON Schema of fleet files, for editors."""
    from tpukit.spec import json_schema
    from tpukit.spec.fleet import FleetSpec

    click.echo(json.dumps(json_schema(FleetSpec, "tpukit fleet"), indent=2))


def _want(plan: Plan, *, only: bool = True, again: bool = False) -> None:
    from tpukit.cli import context, vms
    from tpukit.fleet import driver
    from tpukit.fleet.observe import located

    known = driver.of(context.store(), plan.name)
    there = located(vms.cloud(), plan.name, sorted({*plan.zones, *(one.zone for one in known)}))
    driver.want(context.store(), plan.name, plan.workers(_now()), there, _now(), only=only, again=again)


def _check_there(plan: Plan) -> None:
    from tpukit.cli import vms
    from tpukit.fleet.observe import located

    there = located(vms.cloud(), plan.name, plan.zones)
    missing = [one.tpu for one in plan.workers(0.0) if one.slot not in there]
    if missing:
        hint = "--create-tpus makes them, or `tpu fleet create`"
        raise Invalid(f"{', '.join(missing[:5])}{' and more' * (len(missing) > 5)} are not there", hint=hint)


def _drive_anew(name: str, over: Callable[[Sequence[Worker]], bool]) -> list[Worker]:
    """Until it is over by what is seen from now on."""
    from tpukit.cli import context, fleet_driving
    from tpukit.fleet import driver

    driver.forget_seen(context.store(), name)
    return fleet_driving.drive(name, over)


def _monitor(name: str, interval: float) -> None:
    from tpukit.cli import fleet_driving

    workers = fleet_driving.drive(name, _are_over, interval=interval, live=True)
    _finish(workers, "done; `tpu fleet verify` checks the output, `tpu fleet delete` gives the TPU VMs back")


def _are_ready(workers: Sequence[Worker]) -> bool:
    return all(one.wanted != "gone" and (one.tpu_state == "READY" or one.state == "failed") for one in workers)


def _are_launched(workers: Sequence[Worker]) -> bool:
    """Those that are to go are gone, too."""
    running = [one.state != "active" or (one.attempt > 0 and one.ran == one.attempt) for one in workers]
    return all(running) and all(one.wanted != "gone" for one in workers)


def _are_over(workers: Sequence[Worker]) -> bool:
    return all(one.state != "active" for one in workers)


def _finish(workers: Sequence[Worker], words: str) -> None:
    failed = [one for one in workers if one.state == "failed"]
    click.echo(f"{len(workers) - len(failed)} workers are {words}", err=True)
    if failed:
        raise TpukitError(f"{failed[0].tpu}: {failed[0].message}")


def _now() -> float:
    from tpukit.cli import context

    return context.CLOCK.now()
