"""`tpu completion`: completion scripts for shells, and completion of job ids."""

from __future__ import annotations

from contextlib import suppress

import click

MOST = 100


def job_ids(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return ids of jobs in the store that start with `incomplete`. Errors are ignored during completion."""
    with suppress(Exception):
        from tpukit.cli import context
        from tpukit.jobs.records import JOBS

        return sorted(context.store().keys(JOBS, incomplete))[:MOST]
    return []


job_argument = click.argument("job", shell_complete=job_ids)


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script that completes commands, options and ids of jobs in a shell.

    \b
    Examples:
      tpu completion bash > ~/.local/share/bash-completion/completions/tpu
      tpu completion zsh > ~/.zfunc/_tpu          with ~/.zfunc in fpath
      tpu completion fish > ~/.config/fish/completions/tpu.fish
    """
    from click.shell_completion import get_completion_class

    from tpukit import cli

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(cli.command, {}, "tpu", "_TPU_COMPLETE").source())
