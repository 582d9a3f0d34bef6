"""`tpu fleet`: TPU VMs over zones that work through one dataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tpukit.errors import Invalid

if TYPE_CHECKING:
    from tpukit.fleet.plan import Plan
    from tpukit.fleet.records import Work, Worker

F = TypeVar("F", bound=Callable[..., Any])
_name = click.option("--name", default="tpu", show_default=True, help="Name of the fleet, a label of its TPU VMs.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_bucket = click.option("--gcs-bucket", help="Bucket with datasets/ and activations/.")
_interval = click.option("--monitor-interval", type=float, default=60.0, show_default=True, help="Seconds.")


def _where(function: F) -> F:
    """What says which TPU VMs."""
    options = [
        click.option("--zones", help="Zones with commas between them."),
        click.option("--workers-per-zone", type=int, default=1, show_default=True),
        click.option("--tpu-type", default="v3-8", show_default=True, help="A slice of one host."),
        click.option("--on-demand", is_flag=True, help="TPU VMs that are not taken back, at a higher price."),
        click.option("--stay", is_flag=True, help="Wait for hardware in its zone rather than move to another."),
        _name,
    ]
    for option in reversed(options):
        function = option(function)
    return function


@click.group("fleet")
def command() -> None:
    """TPU VMs over zones that work through one dataset, each on streams of its own.

    \b
    Examples:
      tpu fleet create --zones us-central1-a,us-central1-b --workers-per-zone 4 --tpu-type v3-8
      tpu fleet deploy --zones us-central1-a --workers-per-zone 2 --gcs-bucket B --max-samples 100 \\
          --dataset data.jsonl --program extract.py:make --create-tpus --monitor
      tpu fleet monitor --gcs-bucket B           go on from any machine
      tpu fleet verify --gcs-bucket B            is every shard there, once, and right?
      tpu fleet delete
    """


@command.command()
@_where
def create(**words: Any) -> None:
    """Make the TPU VMs of a fleet, and wait until they are ready. What else it has is left alone."""
    from tpukit.cli import fleet_driving

    plan = _plan(words)
    _want(plan, only=False)
    workers = fleet_driving.drive(plan.name, _are_ready)
    _finish(workers, "ready")


@command.command()
@click.option("--zones", help="Only in these zones; all if left out.")
@click.option("--workers-per-zone", type=int, default=0, help="Only so many of each zone, from 0.")
@_name
def delete(zones: str | None, workers_per_zone: int, name: str) -> None:
    """Delete the TPU VMs of a fleet. What it made stays in the bucket."""
    from tpukit.cli import context, fleet_driving, vms
    from tpukit.fleet import driver

    store, meant = context.store(), zones.split(",") if zones else None
    known = driver.of(store, name)
    there = driver.located(vms.cloud(), name, meant or _zones(known))

    def stays(worker: Worker) -> bool:
        outside = meant is not None and worker.zones[0] not in meant
        return outside or bool(workers_per_zone and worker.number >= workers_per_zone)

    remaining = [worker for worker in known if stays(worker)]
    slots = {worker.slot for worker in remaining}
    driver.want(store, name, remaining, {slot: zone for slot, zone in there.items() if slot not in slots}, _now())
    fleet_driving.drive(name, lambda workers: all(one.wanted != "gone" for one in workers))
    click.echo(f"{name}: {len(remaining)} TPU VMs are left", err=True)


@command.command()
@click.option("--zones", help="Only in these zones.")
@_name
@_json
def status(zones: str | None, name: str, as_json: bool) -> None:
    """What each worker does, as it is now. Nothing is changed."""
    from tpukit.cli import context, fleet_driving
    from tpukit.report import tables

    meant = zones.split(",") if zones else None
    workers = [one for one in _observed(name) if meant is None or one.zone in meant]
    totals = fleet_driving.totals(workers)
    if as_json:
        context.print_json(fleet_driving.as_json(workers, *totals))
    elif workers:
        tables.console().print(fleet_driving.dashboard(workers, *totals))
    else:
        click.echo(f"{name} has no TPU VMs; `tpu fleet create` makes some", err=True)


@command.command("list")
@_json
def list_(as_json: bool) -> None:
    """All TPU VMs of all fleets."""
    from tpukit.cli import context, vms
    from tpukit.fleet.records import FLEET, WORKERS
    from tpukit.manager import machines
    from tpukit.store import everything

    known = [entry.value for entry in everything(context.store(), WORKERS)]
    listed = machines.list_zones(vms.cloud(), sorted({zone for one in known for zone in one.zones} | set(_zones([]))))
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
@click.option("--zones", help="Accepted as a check: the zones of the fleet.")
@click.option("--workers-per-zone", type=int, default=0)
@_name
def recreate_preempted(zones: str | None, workers_per_zone: int, name: str) -> None:
    """Delete and make again what was taken back, and launch what it worked on. The rest is left alone."""
    from tpukit.cli import context, fleet_driving
    from tpukit.fleet import driver

    if not driver.of(context.store(), name):
        if not zones:
            raise Invalid(f"nothing is known of {name} on this machine", hint="name --zones and --workers-per-zone")
        plan = _plan({"zones": zones, "workers_per_zone": workers_per_zone or 1, "tpu_type": "v3-8", "name": name})
        _want(plan, only=False)
    _finish(fleet_driving.drive(name, _are_ready), "ready")


@command.command()
@_where
@click.option("--gcs-bucket", required=True, help="Bucket for datasets/ and activations/.")
@click.option("--dataset", multiple=True, type=click.Path(path_type=Path), help="JSONL, may be .gz; may be repeated.")
@click.option("--streams", type=int, default=0, help="Streams of the dataset; as many as workers if left out.")
@click.option("--max-samples", type=int, default=0, help="Of each stream, for a test.")
@click.option("--program", help="FILE.py:NAME; its folder is sent along.")
@click.option("--option", multiple=True, metavar="NAME=VALUE", help="For the program; may be repeated.")
@click.option("--model", help="Short for --option model=...")
@click.option("--requirements", help="File in the program's folder that each host installs.")
@click.option("--shard-samples", type=int, default=1000, show_default=True)
@click.option("--patience", type=float, default=1800.0, show_default=True, help="Seconds a program may not move.")
@click.option("--claim-seconds", type=float, default=60.0, hidden=True)
@click.option("--create-tpus", is_flag=True, help="Make the TPU VMs that are not there.")
@click.option("--skip-dataset", is_flag=True, help="The dataset is in the bucket already.")
@click.option("--skip-launch", is_flag=True, help="Prepare, and start nothing.")
@click.option("--monitor", is_flag=True, help="Stay, show progress, and bring back what is lost.")
@_interval
def deploy(**words: Any) -> None:
    """Split and upload a dataset, make TPU VMs, and let them work through it. Those that the fleet has beside them are
    deleted.
    """
    from tpukit.cli import fleet_driving

    plan = _plan(words)
    _check_there(plan, words["create_tpus"])
    if not words["skip_dataset"]:
        _upload(plan, words)
    if words["skip_launch"]:
        if words["create_tpus"]:
            _want(plan, only=False)
            fleet_driving.drive(plan.name, _are_ready)
        return
    plan = _with_work(plan, _work(plan.name, words), words["gcs_bucket"])
    _want(plan)
    if words["monitor"]:
        _monitor(plan.name, words["monitor_interval"])
        return
    workers = fleet_driving.drive(plan.name, lambda all_: all(one.attempt or one.state != "active" for one in all_))
    _finish(workers, "launched; `tpu fleet monitor` brings back what is lost")


@command.command()
@_bucket
@_interval
@_name
def monitor(gcs_bucket: str | None, monitor_interval: float, name: str) -> None:
    """Show progress and bring back what is lost, until nothing is left to do. Any number of times, from any machine."""
    from tpukit.cli import context
    from tpukit.fleet import driver
    from tpukit.fleet import plan as plans

    if gcs_bucket:
        _want(plans.load(name, gcs_bucket))
    elif not driver.of(context.store(), name):
        raise Invalid(f"nothing is known of {name} on this machine", hint="name the bucket of the fleet: --gcs-bucket")
    _monitor(name, monitor_interval)


@command.command()
@_bucket
@_name
@click.option("--fast", is_flag=True, help="Compare sizes alone; contents are not read.")
@_json
def verify(gcs_bucket: str | None, name: str, fast: bool, as_json: bool) -> int:
    """Whether every shard of every stream is there once, with the content that was recorded."""
    from tpukit.cli import context
    from tpukit.fleet import plan as plans
    from tpukit.fleet.verify import verify as check

    if not gcs_bucket:
        raise Invalid("name the bucket of the fleet: --gcs-bucket")
    root = plans.root_of(gcs_bucket)
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
@_name
def logs(tpu: str, name: str) -> None:
    """What the program of a worker has printed."""
    import base64

    from tpukit.cli import context, fleet_driving
    from tpukit.errors import NotFound
    from tpukit.fleet import driver

    worker = next((one for one in driver.of(context.store(), name) if one.tpu == tpu), None)
    if worker is None:
        raise NotFound(f"{name} has no worker {tpu}", hint="`tpu fleet status` shows them")
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


def _plan(words: dict[str, Any]) -> Plan:
    from tpukit import catalogue
    from tpukit.fleet.plan import Plan

    shape = catalogue.find(words["tpu_type"])
    if shape.hosts > 1:
        raise Invalid(
            f"--tpu-type: {shape.name} has {shape.hosts} hosts, and a worker is one", hint="write v3-8 or v4-8"
        )
    zones = [zone for zone in (words["zones"] or "").split(",") if zone]
    spot, elsewhere = not words.get("on_demand"), not words.get("stay")
    made = Plan(words["name"], zones, words["workers_per_zone"], shape.name, spot, elsewhere)
    made.workers(0.0)  # refuses what cannot be
    return made


def _want(plan: Plan, *, only: bool = True) -> None:
    from tpukit.cli import context, vms
    from tpukit.fleet import driver

    known = driver.of(context.store(), plan.name)
    there = driver.located(vms.cloud(), plan.name, sorted({*plan.zones, *(one.zone for one in known)}))
    driver.want(context.store(), plan.name, plan.workers(_now()), there, _now(), only=only)


def _check_there(plan: Plan, create_tpus: bool) -> None:
    from tpukit.cli import vms
    from tpukit.fleet import driver

    if create_tpus:
        return
    there = driver.located(vms.cloud(), plan.name, plan.zones)
    missing = [one.tpu for one in plan.workers(0.0) if one.slot not in there]
    if missing:
        hint = "--create-tpus makes them, or `tpu fleet create`"
        raise Invalid(f"{', '.join(missing[:5])}{' and more' * (len(missing) > 5)} are not there", hint=hint)


def _upload(plan: Plan, words: dict[str, Any]) -> None:
    from tpukit import paths
    from tpukit.fleet import dataset, streams
    from tpukit.fleet import plan as plans

    if not words["dataset"]:
        raise Invalid("there is no dataset to split", hint="name files: --dataset data.jsonl, or say --skip-dataset")
    count = words["streams"] or len(plan.zones) * plan.workers_per_zone
    folder = paths.data() / "fleets" / plan.name / "streams"
    made, _ = streams.split(words["dataset"], folder, count, limit=words["max_samples"])
    dataset.upload(folder, made, f"{plans.root_of(words['gcs_bucket'])}/datasets")
    click.echo(f"{plan.name}: {made.samples} samples in {count} streams are uploaded", err=True)


def _work(fleet: str, words: dict[str, Any]) -> Work:
    from tpukit.fleet import dataset
    from tpukit.fleet import plan as plans
    from tpukit.fleet.records import Work

    if not words["program"]:
        raise Invalid("what should the workers do?", hint="name a function: --program extract.py:make")
    file, _, function = words["program"].rpartition(":")
    if bad := [pair for pair in words["option"] if "=" not in pair]:
        raise Invalid(f"--option {bad[0]}: write NAME=VALUE")
    folder = Path(file).parent if file.endswith(".py") else None
    if folder is not None and not Path(file).is_file():
        raise Invalid(f"--program: there is no file {file}")
    root = plans.root_of(words["gcs_bucket"])
    digest, content = dataset.pack(folder)
    archive = f"{root}/fleets/{fleet}/code/{digest}.tar.gz"
    dataset.save(archive, content, "application/gzip")
    options = dict(pair.split("=", 1) for pair in words["option"])
    return Work(
        f"{root}/datasets",
        f"{root}/activations",
        f"{Path(file).name if folder else file}:{function}",
        {**options, **({"model": words["model"]} if words["model"] else {})},
        shard_samples=words["shard_samples"],
        patience=words["patience"],
        claim_seconds=words["claim_seconds"],
        code=digest,
        archive=archive,
        requirements=words["requirements"] or "",
    )


def _with_work(plan: Plan, work: Work, bucket: str) -> Plan:
    from msgspec.structs import replace

    from tpukit.fleet import plan as plans

    made = replace(plan, work=work)
    plans.save(made, bucket)
    return made


def _monitor(name: str, interval: float) -> None:
    from tpukit.cli import fleet_driving

    workers = fleet_driving.drive(name, _are_over, interval=interval, live=True)
    _finish(workers, "done; `tpu fleet verify` checks the output, `tpu fleet delete` gives the TPU VMs back")


def _observed(name: str) -> list[Worker]:
    """The records, brought up to what is there now; nothing is written."""
    from tpukit.cli import context, fleet_driving
    from tpukit.fleet import dataset, driver
    from tpukit.fleet.decide import decide
    from tpukit.fleet.observe import observe

    workers = driver.of(context.store(), name)
    if not workers:
        return []
    acting, shown = fleet_driving.acting(), []
    try:
        for zone in sorted({one.zone for one in workers}):
            of_zone = {one.key: one for one in workers if one.zone == zone}
            seen = observe(acting.client, acting.reach, of_zone, dataset.count_shards)
            shown += [_shown(one, decide(one, seen[key], _now()).value) for key, one in of_zone.items()]
    finally:
        acting.reach.channel.close()
    return shown


def _shown(before: Worker, after: Worker) -> Worker:
    from msgspec.structs import replace

    facts = {"tpu_state": after.tpu_state, "samples": after.samples, "shards": after.shards, "message": after.message}
    return replace(before, **facts)


def _are_ready(workers: Sequence[Worker]) -> bool:
    return all(one.wanted != "gone" and (one.tpu_state == "READY" or one.state == "failed") for one in workers)


def _are_over(workers: Sequence[Worker]) -> bool:
    return all(one.state != "active" for one in workers)


def _finish(workers: Sequence[Worker], words: str) -> None:
    failed = [one for one in workers if one.state == "failed"]
    click.echo(f"{len(workers) - len(failed)} workers are {words}", err=True)
    if failed:
        raise Invalid(f"{failed[0].tpu}: {failed[0].message}")


def _zones(workers: Sequence[Worker]) -> list[str]:
    from tpukit.cli import vms

    return sorted({zone for one in workers for zone in one.zones} | ({vms.settings().zone or ""} - {""}))


def _now() -> float:
    from tpukit.cli import context

    return context.CLOCK.now()
