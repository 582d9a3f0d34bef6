"""`tpu job exec`: a command, or a shell, on a host of a running job."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

import click

from tpukit.cli.completion import job_argument

if TYPE_CHECKING:
    from tpukit.places.base import Executes

SHELL = ("sh", "-c", "exec $(command -v bash || echo sh)")


@click.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@job_argument
@click.argument("host")
@click.argument("command", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
def exec_(job: str, host: str, command: tuple[str, ...]) -> None:
    """Run COMMAND on HOST of a running job, or a shell without one. Exits with the exit code of the command.

    HOST is a name, or SLICE-HOST such as 0-1. On gke the command runs in the container of the job, on TPU VMs over SSH
    in the home folder of the login, on this machine beside the program.

    \b
    Examples:
      tpu job exec pretrain 0-0                       a shell on the first host
      tpu job exec pretrain 1-0 -- df -h /tmp
      tpu job exec pretrain 0-0 -- ps aux
    """
    from tpukit.cli import context
    from tpukit.core.errors import Conflict, Invalid, Problem
    from tpukit.jobs.use_cases.logs import host_name
    from tpukit.places.base import Handle

    command = command[1:] if command[:1] == ("--",) else command
    record = context.find(job)
    place = context.places()[record.place]
    if not place.capabilities.executes:
        raise Invalid(Problem("exec", f"{record.place} runs no commands on hosts", "use the tools of that place"))
    if record.state.ended or not record.attempts:
        raise Conflict(f"{record.id} is {record.state}", hint="`tpu job exec` works only while the job runs")
    handle = Handle.of(record)
    name = host_name(handle, host)
    terminal = not command and sys.stdin.isatty() and sys.stdout.isatty()
    sys.exit(cast("Executes", place).execute(handle, name, command or SHELL, terminal=terminal))
