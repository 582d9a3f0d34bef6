"""The command `tpu`. One file per noun; a command builds a spec or a query and stops there.

Commands are loaded on first use: `tpu --help` imports click and nothing heavier.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from contextlib import suppress

import click

from tpukit import __version__
from tpukit.cli import spellings
from tpukit.core.errors import TpukitError

INTERRUPTED = 130  # exit code of shells
COMMANDS = {
    "run": ("tpukit.cli.run", "Send a job and follow it."),
    "job": ("tpukit.cli.job", "List, inspect, stop and rerun jobs."),
    "cost": ("tpukit.cli.cost", "Show what jobs cost, and the causes of their time."),
    "drill": (
        "tpukit.cli.drill",
        "Test that a job survives failures: inject each one and compare with an unbroken run.",
    ),
    "fit": ("tpukit.cli.fit", "Compile a job for its TPUs on this machine, and estimate memory, speed and cost."),
    "vm": ("tpukit.cli.vm", "Manage shared TPU VMs: list holders, create, delete, repair."),
    "fleet": ("tpukit.cli.fleet", "Run one dataset through TPU VMs in many zones."),
    "user": ("tpukit.cli.user", "Manage users of shared TPU VMs: working directories, settings, events."),
    "alias": ("tpukit.cli.alias", "Manage short names for settings of programs and for TPUs."),
    "settings": ("tpukit.cli.settings", "Show and change the settings for all jobs."),
    "serve": ("tpukit.cli.serve", "Drive the jobs that no terminal follows."),
    "page": ("tpukit.cli.page", "Open a page in the browser: running and waiting jobs, and their costs."),
    "queue": ("tpukit.cli.queue", "Run Python code sent by applications and return the result."),
    "team": ("tpukit.cli.team", "Manage teams: quotas, members, and the jobs in each queue."),
    "store": ("tpukit.cli.store", "Show where jobs are stored, and move them to another store."),
    "notify": ("tpukit.cli.notify", "Show who is notified about jobs, and send a test notice."),
    "cluster": ("tpukit.cli.cluster", "Create and delete the training environment on Google Cloud."),
    "image": ("tpukit.cli.image", "Build the container image that jobs run in."),
    "provisioner": ("tpukit.cli.provisioner", "Create node pools for waiting JobSets, and delete them."),
    "sandbox": ("tpukit.cli.sandbox", "Run a simulated TPU cloud on this machine."),
    "clean": ("tpukit.cli.clean", "Remove files of old jobs from this machine."),
    "catalogue": ("tpukit.cli.catalogue", "List TPU slices with their hosts, chips and prices."),
    "completion": ("tpukit.cli.completion", "Print the script that completes commands and jobs in a shell."),
    "help": ("tpukit.cli.help", "Show help for a command or an alias; `tpu help tldr` for a start."),
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

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _ReaderLeft from error
        except KeyboardInterrupt as error:
            raise _Interrupted from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", prog_name="tpu", message="%(prog)s %(version)s")
def command() -> None:
    """Run multislice JAX training that survives preemption, on this machine first and then on Google Cloud.

    \b
    Examples:
      tpu run examples/02-pretrain/job.yaml      train on simulated slices, here
      tpu run job.yaml --set slices=4 --detach   send it and return; `tpu serve` drives it
      tpu job                                    what runs, what ended and why
      tpu job render job.yaml                    the manifests that GKE would get
      tpu catalogue v5e                          which slices there are
    """


class _ReaderLeft(Exception):
    """Replacement for BrokenPipeError, which click would turn into exit code 1."""


class _Interrupted(Exception):
    """Replacement for KeyboardInterrupt, which click would turn into the message "Aborted!"."""


def main() -> None:
    """Run the command, with errors as a sentence on stderr and an exit code (1 failed, 2 misused, 130 interrupted)."""
    from tpukit.cli import output

    # `run` handles signals itself, before it creates anything.
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN and sys.argv[1:2] != ["run"]:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code = _call()
    except (_ReaderLeft, BrokenPipeError):
        output.silence(sys.stdout)
        code = 0
    except (_Interrupted, KeyboardInterrupt):
        code = INTERRUPTED
    except TpukitError as error:
        _complain(str(error))
        code = error.exit_code
    except OSError as error:
        _complain(output.sentence(error))
        code = 1
    # From here on, Ctrl-C would only interrupt the shutdown of Python.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if failed := output.flush():
        _complain(output.sentence(failed))
        code = code or 1
    if code == INTERRUPTED:
        os._exit(code)  # do not wait for threads that hang in an unreachable service
    sys.exit(code)


def _call() -> int:
    try:
        # https://no-color.org: set to anything but the empty string. Rich honours it by itself, click does not.
        color = False if os.environ.get("NO_COLOR") else None
        words = spellings.canonical(sys.argv[1:])
        answer = command.main(words, prog_name="tpu", standalone_mode=False, color=color)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except click.Abort:  # a question without an answer
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return answer if isinstance(answer, int) else 0


def _complain(text: str) -> None:
    with suppress(OSError):
        click.echo(f"tpu: {text}", err=True)
