"""Preparation of a fleet's bucket from its specification, before workers begin."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tpukit.core import paths
from tpukit.core.errors import Invalid, NotFound, Problem
from tpukit.fleet import dataset, streams
from tpukit.fleet import wanted as plans
from tpukit.fleet.ownership import Identity
from tpukit.fleet.records import Work
from tpukit.fleet.streams import Streams
from tpukit.fleet.wanted import Plan
from tpukit.jobs.spec.fleet import FleetSpec


def check(spec: FleetSpec, *, needs_dataset: bool, needs_program: bool) -> str:
    """Return the root of its bucket; refuse a fleet that cannot be deployed, listing all problems."""
    problems = []
    if not spec.gcs_bucket:
        problems.append(Problem("--gcs-bucket", "no bucket is given for the dataset and the output", "name one"))
    if needs_dataset and not spec.dataset:
        hint = "pass --dataset data.jsonl, or --skip-dataset"
        problems.append(Problem("--dataset", "no dataset is given", hint))
    if needs_program and not spec.program:
        problems.append(
            Problem(
                "--program",
                "no program is given for the workers",
                "pass --program FILE.py:FUNCTION, such as extract.py:make",
            )
        )
    if problems:
        raise Invalid(problems)
    return plans.root_of(spec.gcs_bucket or "")


def plan(spec: FleetSpec, me: Identity) -> Plan:
    spot, elsewhere = spec.capacity == "spot", not spec.stay
    where = (spec.name, list(spec.zones), spec.workers_per_zone, spec.tpu_type)
    made = Plan(*where, spot, elsewhere, float(spec.move_after), unattended=float(spec.unattended))
    return replace(made, owner=me.owner, store=me.store)


def upload(spec: FleetSpec, root: str) -> Streams:
    """Split the dataset and upload it to the bucket."""
    count = spec.streams or len(spec.zones) * spec.workers_per_zone
    folder = paths.data() / "fleets" / spec.name / "streams"
    made, _ = streams.split([Path(file) for file in spec.dataset], folder, count, limit=spec.max_samples)
    _check_run(root, {"dataset": made.digest})  # before the workers' input is replaced
    dataset.upload(folder, made, f"{root}/datasets")
    return made


def with_work(spec: FleetSpec, root: str, me: Identity) -> Plan:
    """Return the plan with the workers' program; save both the plan and the code in the bucket."""
    made = plan_with_work(spec, root, me)
    work = made.work
    assert work is not None
    same = {"shard_samples": work.shard_samples, "program": work.program, "options": work.options}
    _check_run(root, same)
    plans.save(made, root)
    return made


def plan_with_work(spec: FleetSpec, root: str, me: Identity) -> Plan:
    """Return the plan with the workers' program; save the code in the bucket."""
    return replace(plan(spec, me), work=_work(spec, root))


def _check_run(root: str, mine: Mapping[str, Any]) -> None:
    """Refuse an output folder with shards of another run, as every worker would."""
    output = f"{root}/activations"
    try:
        run = json.loads(dataset.read(f"{output}/run.json"))
    except (NotFound, FileNotFoundError):
        return
    except ValueError as error:
        hint = "name another folder in the bucket: --gcs-bucket BUCKET/FOLDER"
        raise Invalid(Problem("", f"{output}/run.json cannot be read: {error}", hint)) from error
    differ = [name for name, value in mine.items() if run.get(name) != value]
    if differ:
        words = ", ".join(f"{name} was {run.get(name)!r}, and is {mine[name]!r} now" for name in differ)
        hint = "name another bucket, or a folder in it: --gcs-bucket BUCKET/FOLDER"
        raise Invalid(Problem("", f"{output} has shards of another run: {words}", hint))


def _work(spec: FleetSpec, root: str) -> Work:
    file, _, function = (spec.program or "").rpartition(":")
    folder = Path(file).parent if file.endswith(".py") else None
    digest, content = dataset.pack(folder)
    archive = f"{root}/fleets/{spec.name}/code/{digest}.tar.gz"
    dataset.save(archive, content, "application/gzip")
    return Work(
        f"{root}/datasets",
        f"{root}/activations",
        f"{Path(file).name if folder else file}:{function}",
        dict(spec.options),
        shard_samples=spec.shard_samples,
        patience=float(spec.patience),
        claim_seconds=float(spec.claim),
        code=digest,
        archive=archive,
        requirements=spec.requirements or "",
    )
