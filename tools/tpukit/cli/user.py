"""`tpu user`: users of shared TPU VMs, their working directories and settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpukit.cli import questions
from tpukit.cli.who import local_time, reserved, user_name, user_option

if TYPE_CHECKING:
    from tpukit.kernel.store import Event
    from tpukit.sharing.users import User

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_number = click.argument("number", type=click.IntRange(min=0))


@click.group("user", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Manage users of shared TPU VMs: working directories, settings, and new events.

    \b
    Examples:
      tpu user add ada
      tpu user set-dir 1 --user ada         this folder is working directory 1
      tpu job start v2-32-6 --user ada      run what is in working directory 1
      tpu user set time_zone Europe/Berlin --user ada
      tpu user log --user ada               events since you last asked
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_)


@command.command()
@click.argument("name", required=False, default="")
def add(name: str) -> None:
    """Add a user. Without NAME, ask for it."""
    from tpukit.cli import context
    from tpukit.sharing import users

    name = name or questions.text("Name", "NAME")
    user = users.add(context.store(), name, reserved(), context.CLOCK.now())
    click.echo(f"{user.name} is a user; in the folder of your code, `tpu user set-dir 1 --user {name}`", err=True)


@command.command("list")
@_json
def list_(as_json: bool = False) -> None:
    """List users."""
    from tpukit.cli import context
    from tpukit.sharing import users

    known = users.listed(context.store())
    if as_json:
        context.print_json([_json_of(user) for user in known])
    elif not known:
        click.echo("no users yet; `tpu user add NAME` adds one", err=True)
    for user in [] if as_json else known:
        click.echo(user.name)


@command.command()
@click.argument("name")
def remove(name: str) -> None:
    """Remove a user who has no windows."""
    from tpukit.cli import context
    from tpukit.core.errors import Conflict
    from tpukit.sharing import users, windows

    if windows.of_user(context.store(), name):
        raise Conflict(f"{name} has windows", hint=f"stop their jobs, then run `tpu job clear --user {name}`")
    users.remove(context.store(), name)


@command.command("set-dir")
@_number
@click.argument("folder", type=click.Path(path_type=Path), default=".")
@user_option
def set_dir(number: int, folder: Path, user: str) -> None:
    """Make FOLDER (default: this one) working directory NUMBER."""
    from tpukit.cli import context
    from tpukit.core.errors import Invalid, Problem
    from tpukit.sharing import users

    path = folder.absolute()
    if not path.is_dir():
        raise Invalid(Problem("FOLDER", f"{folder} is not a folder", "name the folder of your code"))
    _dirs(users.set_directory(context.store(), user_name(user), number, str(path.resolve()), context.CLOCK.now()))


@command.command()
@user_option
@_json
def dirs(user: str, as_json: bool) -> None:
    """List working directories."""
    from tpukit.cli import context
    from tpukit.sharing import users

    one = users.get(context.store(), user_name(user))
    if as_json:
        context.print_json(one.directories)
        return
    _dirs(one)


@command.command("delete-dir")
@_number
@user_option
def delete_dir(number: int, user: str) -> None:
    """Forget working directory NUMBER. The folder stays."""
    from tpukit.cli import context
    from tpukit.sharing import users

    _dirs(users.delete_directory(context.store(), user_name(user), number, context.CLOCK.now()))


@command.command("swap-dirs")
@_number
@click.argument("second", type=click.IntRange(min=0))
@user_option
def swap_dirs(number: int, second: int, user: str) -> None:
    """Swap two working directories."""
    from tpukit.cli import context
    from tpukit.sharing import users

    _dirs(users.swap_directories(context.store(), user_name(user), number, second, context.CLOCK.now()))


@command.command("set")
@click.argument("key")
@click.argument("value")
@user_option
def set_(key: str, value: str, user: str) -> None:
    """Change a setting; `tpu user settings` lists them."""
    from tpukit.cli import context
    from tpukit.sharing import users

    users.set_setting(context.store(), user_name(user), key, value, context.CLOCK.now())


@command.command()
@user_option
@_json
def settings(user: str, as_json: bool) -> None:
    """Show settings."""
    import msgspec

    from tpukit.cli import context
    from tpukit.sharing import settings, users

    values = msgspec.to_builtins(users.get(context.store(), user_name(user)).settings)
    if as_json:
        context.print_json(values)
        return
    for key, value in values.items():
        click.echo(f"{key:18} {value!s:8} {settings.MEANINGS[key]}")


@command.command()
@user_option
def reset(user: str) -> None:
    """Reset all settings to their defaults."""
    from tpukit.cli import context
    from tpukit.sharing import users

    users.reset_settings(context.store(), user_name(user), context.CLOCK.now())


@command.command("set-window")
@_number
@user_option
def set_window(number: int, user: str) -> None:
    """Count windows from NUMBER: the next job gets the first free number from there."""
    from tpukit.cli import context
    from tpukit.sharing import users

    users.set_last_window(context.store(), user_name(user), number, context.CLOCK.now())


@command.command()
@click.option("--all", "everything", is_flag=True, help="Show all events, from the first.")
@user_option
@_json
def log(everything: bool, user: str, as_json: bool) -> None:
    """Show new events of you and your jobs."""
    from tpukit.cli import context
    from tpukit.jobs import report
    from tpukit.sharing import users

    name = user_name(user)
    events = users.news(context.store(), name, _of_jobs(name), context.CLOCK.now(), unread=not everything)
    if as_json:
        context.print_json([report.event_json(event) for event in events])
        return
    for event in events:
        click.echo(f"{local_time(event.at, name)}  {event.text}")
    if not events:
        click.echo("nothing new", err=True)


def _of_jobs(name: str) -> list[Event]:
    from tpukit.cli import context
    from tpukit.jobs.records import JOBS
    from tpukit.kernel.store import Event
    from tpukit.sharing import windows

    return [
        Event(event.at, f"{window.name} ({window.job}): {event.text}")
        for window in windows.of_user(context.store(), name)
        if window.job
        for event in context.store().events(JOBS, window.job)
    ]


def _dirs(user: User) -> None:
    for number, folder in sorted(user.directories.items(), key=lambda one: int(one[0])):
        click.echo(f"{number:>4} {folder}")
    if not user.directories:
        click.echo(
            f"{user.name} has no working directories; add one with `tpu user set-dir 1 --user {user.name}`", err=True
        )


def _json_of(user: User) -> object:
    import msgspec

    return msgspec.to_builtins(user)
