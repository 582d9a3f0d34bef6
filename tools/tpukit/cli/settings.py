"""`tpu settings`: show and change the settings for all jobs of this user on this machine."""

from __future__ import annotations

import os
from typing import Any

import click


@click.command("settings")
@click.argument("key", required=False)
@click.argument("value", required=False)
@click.option("--unset", is_flag=True, help="Remove KEY from the file, so that its default holds.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(key: str | None, value: str | None, unset: bool, as_json: bool) -> None:
    """Show the settings: the file, and every key with its value, source and meaning. With KEY and VALUE: set one.

    \b
    Examples:
      tpu settings                              all of them
      tpu settings project                      one
      tpu settings project my-project-1         set one
      tpu settings --unset project              back to its default
    """
    from tpukit.core.errors import Invalid, Problem
    from tpukit.jobs.spec import settings

    if key is not None and key not in settings.Settings.fields:
        raise Invalid(Problem("KEY", *settings.unknown(key)))
    if unset and (key is None or value is not None):
        raise click.UsageError("--unset takes a KEY and no VALUE")
    if key is not None and unset:
        settings.remove(key)
        click.echo(f"{key} is not in {settings.path()}", err=True)
    elif key is not None and value is not None:
        settings.save({key: settings.read_value(key, value)})
        click.echo(f"{settings.path()} has the line `{settings.written(key, value)}`", err=True)
    else:
        _show([key] if key else list(settings.Settings.fields), as_json)


def _show(keys: list[str], as_json: bool) -> None:
    from tpukit.cli import context
    from tpukit.jobs.spec import settings

    rows = [_row(key) for key in keys]
    if as_json:
        context.print_json({"file": str(settings.path()), "settings": rows})
        return
    if len(rows) > 1:
        there = "" if settings.path().exists() else " (does not exist yet)"
        click.echo(f"{settings.path()}{there}\n")
    for row in rows:
        shown = "-" if row["value"] in (None, [], {}) else _plain(row["value"])
        click.echo(f"{row['key']:16} {shown}")
        click.echo(f"{'':16} {row['meaning']}")
        click.echo(f"{'':16} from: {row['source']}; example: {_plain(row['example'])}")
    if len(rows) > 1:
        click.echo("\n`tpu settings KEY VALUE` sets one; settings of a job manager user: `tpu user settings`")


def _row(key: str) -> dict[str, Any]:
    from tpukit.jobs.spec import settings

    field = settings.Settings.fields[key]
    value, source = settings.load().to_json().get(key), settings.source(key)
    if key == "store" and os.environ.get("TPUKIT_STORE"):
        value, source = os.environ["TPUKIT_STORE"], "$TPUKIT_STORE"
    return {
        "key": key,
        "value": value,
        "source": source,
        "meaning": field.description,
        "example": field.examples[0],
    }


def _plain(value: Any) -> str:
    from tpukit.jobs.spec.words import flow

    return flow(value)
