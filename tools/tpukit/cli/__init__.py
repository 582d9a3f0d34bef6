"""The command `tpu`. One file per noun; a command builds a spec or a query and stops there.

Commands are loaded when they are called: `tpu --help` imports click and nothing heavier.
"""

from __future__ import annotations

import importlib
import sys

import click

from tpukit import __version__
from tpukit.errors import TpukitError

COMMANDS = {
    "run": ("tpukit.cli.run", "Send a job and follow it."),
    "job": ("tpukit.cli.job", "Look at jobs, stop them, run them again."),
    "serve": ("tpukit.cli.serve", "Drive the jobs that were sent with --detach."),
    "team": ("tpukit.cli.team", "Teams: what each may use, and what runs and waits in its queue."),
    "store": ("tpukit.cli.store", "Where jobs are remembered, and how to move them."),
    "cluster": ("tpukit.cli.cluster", "Make and remove the training environment on Google Cloud."),
    "sandbox": ("tpukit.cli.sandbox", "A TPU cloud on this machine, to try everything against."),
    "catalogue": ("tpukit.cli.catalogue", "List TPU slices and what they are made of."),
}


class _Lazy(click.Group):
    """A group that knows its commands by name and imports one only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", prog_name="tpu", message="%(prog)s %(version)s")
def command() -> None:
    """Multislice JAX training that survives preemption, on this machine first and then on Google Cloud.

    \b
    Examples:
      tpu run examples/02-pretrain/job.yaml      train on simulated slices, here
      tpu run job.yaml --set slices=4 --detach   send it and go; `tpu serve` drives it
      tpu job                                    what runs, what ended and why
      tpu job render job.yaml                    the manifests that GKE would get
      tpu catalogue v5e                          which slices there are
    """


def main() -> None:
    """Entry point: errors become a sentence on stderr and an exit code (1 failed, 2 misused)."""
    try:
        command(prog_name="tpu")
    except TpukitError as error:
        click.echo(f"tpu: {error}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # Whoever read our output has seen enough (`tpu job list | head`).
        sys.stderr.close()
        sys.exit(0)
