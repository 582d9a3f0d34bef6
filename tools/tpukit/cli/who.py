"""The user that a command is for: --user, and the default."""

from __future__ import annotations

from typing import Any

import click

from tpukit.core.errors import Invalid, Problem

user_option = click.option(
    "--user",
    default="",
    envvar="TPUKIT_USER",
    metavar="USER",
    help="User (default: $TPUKIT_USER, the user named like your login, or the only user).",
)


def user_name(given: str) -> str:
    """Return the user that a command is for. Raise Invalid if it is ambiguous."""
    from tpukit.cli import context
    from tpukit.sharing import users
    from tpukit.sharing.users import USERS

    if given:
        return users.get(context.store(), given).name
    known = context.store().keys(USERS)
    if context.owner() in known:
        return context.owner()
    if len(known) == 1:
        return next(iter(known))
    if not known:
        raise Invalid(Problem("USER", "there is no user yet", "`tpu user add NAME` adds one"))
    raise Invalid(
        Problem(
            "USER", "several users exist, and none is named like your login", f"name one of {', '.join(sorted(known))}"
        )
    )


def reserved() -> frozenset[str]:
    """Return the words that commands begin with."""
    from tpukit import cli
    from tpukit.cli import spellings

    return frozenset(cli.COMMANDS) | {word.lstrip("-") for word in spellings.BY_WORD}


def window_name(text: str) -> str:
    """Return `USER:NUMBER` for `USER:NUMBER`, `:NUMBER` or a number alone, or "" for any other text."""
    user, _, number = text.rpartition(":")
    return f"{user_name(user)}:{int(number)}" if number.isdecimal() and len(number) < 19 else ""


def local_time(at: float, user: str) -> Any:
    """Return a moment in the user's time zone."""
    from datetime import UTC, datetime
    from zoneinfo import ZoneInfo

    from tpukit.cli import context
    from tpukit.sharing import settings, users

    zone = settings.zone(users.get(context.store(), user).settings.time_zone)
    return datetime.fromtimestamp(at, UTC).astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M:%S")
