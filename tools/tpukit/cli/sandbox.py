"""`tpu sandbox`: a TPU cloud on this machine."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from tpukit.cli import sandbox_faults
from tpukit.core.clock import SYSTEM
from tpukit.core.errors import Invalid, NotFound, Problem

if TYPE_CHECKING:
    from tpubox.box.lifecycle import Status
    from tpukit.jobs.render.pool_kinds import PoolKind

_name = click.option(
    "--name",
    default="default",
    show_default=True,
    envvar="TPUKIT_SANDBOX",
    help="Name of the sandbox; several may run side by side.",
)


@click.group("sandbox", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Run a TPU cloud on this machine: real Kubernetes, JobSet and Kueue; Google's APIs and chips are simulated.

    \b
    Examples:
      tpu sandbox up                     start it, or restart what was killed
      tpu sandbox up --slices v4-16=2    with two slices to send jobs to
      tpu sandbox up --slices v4-16:spot=2   for jobs with capacity: spot
      tpu sandbox shell                  a shell in which kubectl, terraform and tpu talk to it
      tpu sandbox shell kubectl get pods -A
      tpu sandbox shell gcloud compute tpus tpu-vm ssh NAME --worker=all --command=hostname --zone=us-central2-b
      tpu sandbox status --json          components, ports, memory, versions
      tpu sandbox down                   stop it and remove all of it
    """
    if context.invoked_subcommand is None:
        from tpubox.box import folder

        for name in folder.names():
            click.echo(name)
        if not folder.names():
            click.echo("there is no sandbox; `tpu sandbox up` creates one", err=True)


@command.command("up")
@_name
@click.option(
    "--project", "projects", multiple=True, help="Name of a Google Cloud project in it (default: tpu-project)."
)
@click.option(
    "--seconds", multiple=True, metavar="[TYPE=]SECONDS", help="Seconds that Google's operations take (default: 1)."
)
@click.option("--api", "apis", multiple=True, metavar="NAME", help="API that is enabled from the start; * enables all.")
@click.option("--seed", type=int, help="Seed of the random faults.")
@click.option("--addons", is_flag=True, help="Install JobSet and Kueue; --slices does so too.")
@click.option(
    "--operations",
    type=click.IntRange(min=1),
    help="Concurrent operations that GKE allows in one cluster (default: 5).",
)
@click.option("--slices", multiple=True, metavar="TPU=COUNT", help="Slices to add, with a queue and a bucket.")
def up(
    name: str,
    projects: tuple[str, ...],
    seconds: tuple[str, ...],
    apis: tuple[str, ...],
    seed: int | None,
    addons: bool,
    operations: int | None,
    slices: tuple[str, ...],
) -> None:
    """Start a sandbox, or restart what was killed. The first time, its programs are built (minutes).

    With --slices, jobs can be sent to it at once, as team tpu-training, with the bucket my-runs. Without, it is an
    empty project, as Google gives one, with its APIs disabled: `tpu cluster bootstrap` enables them, and Terraform or
    `tpu cluster` makes the rest, JobSet and Kueue included.
    """
    from tpubox.box import lifecycle

    wanted = _slices(slices)
    google = [f"--project={project}" for project in projects] + [f"--seconds={text}" for text in seconds]
    google += [f"--api={api}" for api in apis]
    if seed is not None:
        google.append(f"--seed={seed}")
    if operations is not None:
        google.append(f"--operations={operations}")

    began = SYSTEM.monotonic()
    with _Progress() as progress:
        place = lifecycle.up(name, progress.say, google=tuple(google) or None, addons=addons or bool(wanted))
        if wanted:
            from tpubox.box.furnish import furnish

            progress.say("creating slices, queues and a bucket")
            furnish(place, wanted)
    click.echo(f"sandbox {name} is ready after {SYSTEM.monotonic() - began:.1f} s", err=True)
    click.echo(f"  export KUBECONFIG={place.kubeconfig}")
    click.echo(f"  or `tpu sandbox shell{_option(name)}`, in which all of Google's tools talk to it too", err=True)
    click.echo(f"  `tpu sandbox down{_option(name)}` stops it and removes all of it", err=True)


@command.command("down")
@_name
def down(name: str) -> None:
    """Stop a sandbox and remove all of it: processes, state, logs."""
    from tpubox.box import lifecycle

    lifecycle.down(name)
    click.echo(f"sandbox {name} was removed", err=True)


@command.command("status")
@_name
@click.option("--json", "as_json", is_flag=True, help="Print an object instead of a table.")
def status(name: str, as_json: bool) -> None:
    """Show the components of a sandbox with their ports, memory and logs. Exits 1 if one does not run."""
    from tpubox.box import lifecycle

    found = lifecycle.status(name)
    if as_json:
        from tpukit.cli.context import print_json

        print_json(_as_json(found))
    else:
        _print(found)
    if not found.running:
        click.echo(f"some components do not run; `tpu sandbox up{_option(name)}` starts what is missing", err=True)
        sys.exit(1)


@command.command("shell", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@_name
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def shell(name: str, words: tuple[str, ...]) -> None:
    """Open a shell, or run WORDS, with KUBECONFIG, PATH and Google's endpoints set to a sandbox.

    Options after the first word belong to the command that it names.
    """
    from tpubox.box import environment as box_environment
    from tpubox.box import folder

    argv = words or (os.environ.get("SHELL") or "/bin/sh",)
    env = os.environ | box_environment.variables(folder.find(name))
    if not words:
        click.echo(f"this shell talks to sandbox {name}; exit leaves it", err=True)
    try:
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        raise NotFound(f"{argv[0]}: {error.strerror}") from error


command.add_command(sandbox_faults.command)


def _slices(words: tuple[str, ...]) -> dict[PoolKind, int]:
    """Parse `v4-16=2` or `v4-16:spot=2`. Report all invalid words at once."""
    from tpukit.jobs.render import pool_kinds

    found: dict[PoolKind, int] = {}
    problems: list[Problem] = []
    for word in words:
        tpu, _, count = word.rpartition("=")
        if not (count.isascii() and count.isdigit() and 0 < int(count) <= 64):
            problems.append(
                Problem("--slices", f"{word!r} is not a TPU and a number of slices", "write --slices v4-16=2")
            )
            continue
        try:
            shape, way = pool_kinds.parse(tpu, "--slices")
        except Invalid as error:
            problems += error.problems
            continue
        if way == "reservation":
            problems.append(Problem("--slices", f"{word!r} names no reservation", f"write {tpu}:NAME={count}"))
        found[pool_kinds.PoolKind(shape, way or pool_kinds.ON_DEMAND)] = int(count)
    if problems:
        raise Invalid(problems)
    return found


def _option(name: str) -> str:
    return "" if name == "default" else f" --name {name}"


def _print(found: Status) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("component", "state", "since", "log"):
        table.add_column(heading, no_wrap=True)
    for heading in ("restarts", "MiB", "ports"):
        table.add_column(heading, no_wrap=True, justify="right")
    for one in found.components:
        since = datetime.fromtimestamp(one.began).strftime("%H:%M:%S")
        figures = (str(one.restarts), f"{one.memory / 2**20:.0f}", " ".join(map(str, one.ports)))
        table.add_row(one.name, "running" if one.running else "ended", since, str(one.log), *figures)
    console = Console() if Console().is_terminal else Console(width=240)
    console.print(table)
    versions = ", ".join(f"{what} {version}" for what, version in found.versions.items())
    click.echo(f"{found.memory / 2**20:.0f} MiB in all. {versions}.", err=True)


def _as_json(found: Status) -> dict[str, Any]:
    return {
        "name": found.name,
        "running": found.running,
        "folder": str(found.folder.path),
        "server": found.folder.server,
        "kubeconfig": str(found.folder.kubeconfig),
        "memory_bytes": found.memory,
        "versions": found.versions,
        "components": [
            {
                "name": one.name,
                "running": one.running,
                "pid": one.pid,
                "ports": list(one.ports),
                "memory_bytes": one.memory,
                "began": one.began,
                "restarts": one.restarts,
                "log": str(one.log),
            }
            for one in found.components
        ],
    }


class _Progress:
    """Progress on stderr: one changing line in a terminal, an occasional line elsewhere."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._last = ("", 0.0)

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal:
            click.echo("\r\033[K", nl=False, err=True)

    def say(self, text: str) -> None:
        if self._terminal:
            click.echo(f"\r\033[K{text}", nl=False, err=True)
            return
        what, now = text.rsplit(",", 1)[0], SYSTEM.monotonic()
        if what != self._last[0] or now - self._last[1] > 30.0:
            click.echo(text, err=True)
            self._last = (what, now)
