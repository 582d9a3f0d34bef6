"""Ownership of fleets, and confirmation before part of one is deleted or changed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from tpukit.cli import questions
from tpukit.core.errors import Invalid, Problem

if TYPE_CHECKING:
    from tpukit.fleet.listing import Located
    from tpukit.fleet.ownership import Identity
    from tpukit.fleet.records import Worker
    from tpukit.fleet.wanted import Plan


def me() -> Identity:
    from tpukit.cli import context
    from tpukit.fleet.ownership import Identity, name_of
    from tpukit.places.tpu_vm import target

    return Identity(name_of(context.owner()), target.store_label(context.sender()))


def look(name: str, zones: Sequence[str]) -> Located:
    """List the resources of the fleet, and report zones that could not be listed."""
    from tpukit.cli import vms
    from tpukit.fleet.listing import located

    there = located(vms.cloud(), name, zones)
    for zone, why in there.hidden.items():
        click.echo(f"{name}: {zone} cannot be listed: {why}", err=True)
    return there


def check(
    name: str, there: Located, *, adopt: bool, plan: Plan | None = None, known: Sequence[Worker] | None = None
) -> list[str]:
    """Refuse a fleet of another owner or store; with `adopt`, return the marks to take over."""
    from tpukit.cli import context
    from tpukit.fleet import ownership, wishes

    workers = wishes.of(context.store(), name) if known is None else known
    found = ownership.foreign(name, me(), workers, there, plan)
    if not adopt:
        ownership.refuse(name, found)
    for words in found.values():
        click.echo(f"{words} This command takes it over.", err=True)
    for key, why in wishes.unreadable(context.store(), name).items():
        click.echo(f"{name}: the record {key} cannot be read and is left alone: {why}", err=True)
    marks = list(found)
    if marks:
        wishes.adopt(context.store(), name, me(), marks)
    return marks


def is_terminal() -> bool:
    return sys.stdin.isatty()


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is lost. Without a terminal, require `--yes`."""
    if yes:
        return
    if not is_terminal():
        raise Invalid(
            Problem("--yes", question, "confirmation is required, and stdin is not a terminal: pass --yes to confirm")
        )
    questions.require(question)


def names(workers: Sequence[str], most: int = 5) -> str:
    """Return names in a sentence: a, b and 3 more."""
    shown = ", ".join(workers[:most])
    return f"{shown} and {len(workers) - most} more" if len(workers) > most else shown


def changes(known: Sequence[Worker], plan: Plan, there: Located) -> list[str]:
    """Return, in sentences, the changes that a plan makes to a working fleet."""
    working = [one for one in known if one.state == "active" and one.wanted == "work" and one.work]
    said = []
    outputs = sorted({one.work.output for one in working if one.work})
    if plan.work and any(output != plan.work.output for output in outputs):
        said.append(f"its output moves from {names(outputs)} to {plan.work.output}")
    elif plan.work and any(one.work and _about(one.work) != _about(plan.work) for one in working):
        said.append("its program or its options change")
    kept = {one.slot for one in plan.workers(0.0)}
    lost = sorted(({one.slot for one in known} | set(there.pieces)) - kept)
    if lost:
        said.append(f"the TPU VMs of {names(lost)} are deleted")
    return said


def _about(work: object) -> tuple[object, ...]:
    return tuple(getattr(work, name) for name in ("data", "output", "program", "options", "shard_samples", "code"))
