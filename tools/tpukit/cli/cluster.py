"""`tpu cluster`: the training environment on Google Cloud, from an empty project to its queues and back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import click

from tpukit.cli import cluster_verify, questions
from tpukit.core.errors import Invalid, Problem, TpukitError

if TYPE_CHECKING:
    from rich.console import Console

    from tpukit.cluster.hints import Completion
    from tpukit.cluster.spec import ClusterSpec
    from tpukit.cluster.ways import Ask, Way

Function = TypeVar("Function", bound=Callable[..., Any])
Others = ParamSpec("Others")
WAYS = ("local", "cloud-build", "infra-manager")


@dataclass(frozen=True, slots=True)
class Chosen:
    """The options that several commands have: the cluster, and how Terraform reaches it."""

    file: Path | None = None
    sets: tuple[str, ...] = ()
    any_zone: bool = False
    context: str = ""
    dry_run: bool = False
    via: str = "local"
    source: Path | None = None
    state: str = "gcs"
    modules: Path | None = None
    evict: bool = False


def spec_options(function: Function) -> Function:
    for option in (
        click.argument("file", type=click.Path(path_type=Path), required=False),
        click.option(
            "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set a variable; overrides the file. Repeatable."
        ),
        click.option("--any-zone", is_flag=True, help="Accept a zone that is not known to have the TPUs."),
        click.option(
            "--context", default="", help="Context of the kubeconfig (default: gcloud's name for the cluster)."
        ),
        click.option("--dry-run", is_flag=True, help="Print the command lines without running them."),
    ):
        function = option(function)
    return function


def state_options(function: Function) -> Function:
    for option in (
        click.option(
            "--state",
            type=click.Choice(["gcs", "local"]),
            default="gcs",
            show_default=True,
            help="Backend of Terraform's state; use local for rehearsals only.",
        ),
        click.option("--modules", type=click.Path(path_type=Path), help="Terraform files to use instead of ours."),
    ):
        function = option(function)
    return function


def way_options(function: Function) -> Function:
    for option in (
        click.option(
            "--via", type=click.Choice(WAYS), default="local", show_default=True, help="Program that runs Terraform."
        ),
        click.option("--source", type=click.Path(path_type=Path), help="Checkout of tpukit that the build uses."),
    ):
        function = option(function)
    return state_options(function)


def completed(function: Callable[Concatenate[Chosen, Others], None]) -> Callable[..., None]:
    """Pass the shared options to the command as one value.

    Errors of the command are rewritten so that the command lines they name can be run as they are.
    """

    @wraps(function)
    def run(*args: Others.args, **options: Others.kwargs) -> None:
        shared = options.keys() & {one.name for one in fields(Chosen)}
        chosen = Chosen(**{name: options.pop(name) for name in shared})  # type: ignore[arg-type]
        try:
            function(chosen, *args, **options)
        except TpukitError as error:
            raise _completion(chosen).error(error) from error

    return run


yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
evict_option = click.option("--evict", is_flag=True, help="Delete pools even if they run jobs.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group("cluster")
def command() -> None:
    """Create, change, inspect and delete the training environment on Google Cloud.

    FILE is a cluster file; cluster.yaml in this folder if there is one. Its keys are the variables of the Terraform
    modules, and --set takes the same.

    \b
    Examples:
      tpu cluster up                               everything, or what is missing
      tpu cluster bootstrap                        APIs, state bucket, accounts: once for each project
      tpu cluster plan --set tpu_type=v4-32        what would be done
      tpu cluster apply                            plan, ask, apply with progress
      tpu cluster apply --set num_tpu_pools=0      release the slices and keep the rest
      tpu cluster credentials && tpu cluster addons
      tpu cluster apply --via cloud-build --dry-run
      tpu cluster verify                           measure chips, networks, bucket, images, logs
      tpu cluster destroy
    """


command.add_command(cluster_verify.verify)


@command.command()
@spec_options
@state_options
@evict_option
@yes_option
@click.option(
    "--member", "members", multiple=True, metavar="WHO", help="Account that may send jobs: user:EMAIL or group:EMAIL."
)
@completed
def up(chosen: Chosen, yes: bool, members: tuple[str, ...]) -> None:
    """Create all that a cluster needs to take jobs: bootstrap, apply, credentials, addons, a team, settings.

    Shows what would be created and what it costs, and asks. Every step can be repeated: after an interruption the same
    command continues, and it does nothing where nothing is missing.
    """
    from tpukit.cluster import up as going_up
    from tpukit.core.clock import SystemClock

    spec = _spec(chosen)
    made = going_up.Up(
        spec,
        _way(chosen, spec, wait=True),
        chosen.context or spec.context,
        members=members,
        ask=(lambda question: True) if yes else _ask,
        clock=SystemClock(),
        say=_say,
        agreed=yes,
    )
    if chosen.dry_run:
        _print(going_up.lines(made))
        return
    made.run()
    commands = "".join(f"\n  {line}" for line in made.next())
    _say(f"Cluster {spec.cluster_name} is ready for jobs. Next:{commands}")


@command.command()
@spec_options
@completed
def bootstrap(chosen: Chosen) -> None:
    """Prepare a project: APIs, the state bucket, the accounts that builds run as. Safe to repeat."""
    from tpukit.cluster import bootstrap as boot
    from tpukit.core.clock import SystemClock

    spec = _spec(chosen)
    if chosen.dry_run:
        _print(boot.lines(spec))
        return
    boot.run(spec, SystemClock(), _say)
    _say(
        "An account that sends builds needs roles/iam.serviceAccountUser on "
        f"{boot.BUILD_ACCOUNT} and {boot.MANAGER_ACCOUNT}."
    )


@command.command()
@spec_options
@way_options
@json_option
@completed
def plan(chosen: Chosen, as_json: bool) -> None:
    """Show what would change, and known faults of the installed JobSet and Kueue. Nothing is changed."""
    from tpukit.cluster import status as looking

    spec = _spec(chosen)
    context = chosen.context or spec.context
    way = _way(chosen, spec, stderr=as_json)
    if chosen.dry_run:
        _print([*way.lines("plan"), *looking.addon_questions(context)])
        return
    planned = way.plan()
    for line in looking.addon_warnings(context):
        _say(f"{line}\n  `tpu cluster addons` installs the release that was tested")
    if as_json:
        from dataclasses import asdict

        from tpukit.cli.context import print_json

        print_json([asdict(change) for change in planned])


@command.command()
@spec_options
@way_options
@evict_option
@yes_option
@completed
def apply(chosen: Chosen, yes: bool) -> None:
    """Apply the cluster file: show the plan, ask, and apply exactly that plan.

    One Ctrl-C cancels cleanly; a second kills.
    """
    spec = _spec(chosen)
    ask = (lambda question: True) if yes else _ask
    if _change("apply", chosen, spec, ask) and chosen.via != "cloud-build":
        next_ = "Next: `tpu cluster credentials`, then `tpu cluster addons` for JobSet, Kueue and the queues."
        _say(_completion(chosen).text(next_))


@command.command()
@spec_options
@way_options
@evict_option
@click.option("--yes", is_flag=True, help="Do not ask; needs --name.")
@click.option("--name", help="Name of the cluster, to confirm the deletion without a question.")
@completed
def destroy(chosen: Chosen, yes: bool, name: str | None) -> None:
    """Delete the environment and everything in it. The state bucket stays.

    Asks for the name of the cluster to be typed.
    """
    spec = _spec(chosen)
    if (name is not None and name != spec.cluster_name) or (yes and name is None):
        what = (
            "the cluster is deleted only if --yes and its name are both given"
            if name is None
            else f"the file says {spec.cluster_name}"
        )
        raise Invalid(Problem("--name", what, f"pass --name {spec.cluster_name} to confirm the deletion"))
    made = {} if chosen.dry_run else _settings_made(chosen, spec)
    if _change("destroy", chosen, spec, (lambda question: True) if name else _ask_for(spec.cluster_name)):
        _forget_settings(spec, made, chosen.context)


def _settings_made(chosen: Chosen, spec: ClusterSpec) -> dict[str, str]:
    """Return the settings that came from the cluster's outputs, if the user's settings point to this cluster."""
    from tpukit.cluster import outputs
    from tpukit.jobs.spec import settings

    if settings.load().context != (chosen.context or spec.context):
        return {}
    try:
        return outputs.settings_from(_way(chosen, spec).outputs())
    except TpukitError:  # an environment that was created in part has no outputs
        return {}


def _forget_settings(spec: ClusterSpec, made: dict[str, str], context: str) -> None:
    from tpukit.cluster import outputs
    from tpukit.jobs.spec import settings

    stale = outputs.stale_settings(settings.load(), made, context or spec.context)
    for name in stale:
        settings.remove(name)
    if stale:
        _say(f"removed from {settings.path()}: {', '.join(stale)}, which led to {spec.cluster_name}")


def _change(verb: str, chosen: Chosen, spec: ClusterSpec, ask: Ask) -> bool:
    way = _way(chosen, spec)
    if chosen.dry_run:
        _print(way.lines(verb))
        return False
    act = way.apply if verb == "apply" else way.destroy
    done = act(ask)
    if done:
        _say(f"{spec.cluster_name}: {verb} is done")
    return done


@command.command()
@spec_options
@way_options
@json_option
@completed
def status(chosen: Chosen, as_json: bool) -> None:
    """Show what exists: resources in the state, the cluster, its pools and what they run, the add-ons."""
    from tpukit.cluster import status as looking

    spec = _spec(chosen)
    context = chosen.context or spec.context
    way = _way(chosen, spec)
    if chosen.dry_run:
        _print([*way.lines("status"), *looking.lines(spec, context)])
        return
    found = looking.read(spec, context, way.resources)
    if as_json:
        from tpukit.cli.context import print_json

        print_json(found)
    else:
        _show(found)


@command.command()
@spec_options
@completed
def addons(chosen: Chosen) -> None:
    """Install JobSet, Kueue and the queues, and wait for them. Safe to repeat."""
    from tpukit.cluster import addons as adding
    from tpukit.core.clock import SystemClock

    spec = _spec(chosen)
    context = chosen.context or spec.context
    if chosen.dry_run:
        _print(adding.lines(spec, context))
        return
    adding.run(spec, context, SystemClock(), _say)


@command.command()
@spec_options
@completed
def credentials(chosen: Chosen) -> None:
    """Configure kubectl for the cluster, through its DNS endpoint."""
    from tpukit.cluster import gcloud

    spec = _spec(chosen)
    order = gcloud.get_credentials(spec)
    if chosen.dry_run:
        _print([str(order)])
        return
    gcloud.follow(order, "getting credentials", _say)
    _say(f"kubectl --context={spec.context} get nodes")


def _spec(chosen: Chosen) -> ClusterSpec:
    from tpukit.cluster import spec

    file = chosen.file or (Path(spec.FILE) if Path(spec.FILE).is_file() else None)
    if file is None and not chosen.sets:
        hint = "name a cluster file, or write --set project_id=… and so on"
        raise Invalid(Problem(spec.FILE, "this folder has no such file", hint))
    return spec.load(file, (*chosen.sets, *(("any_zone=true",) if chosen.any_zone else ())))


def _way(chosen: Chosen, spec: ClusterSpec, *, wait: bool = False, stderr: bool = True) -> Way:
    from tpukit.cluster import ways
    from tpukit.core.clock import SystemClock

    via, state = chosen.via, chosen.state
    if state == "local" and via != "local":
        raise Invalid(Problem("--state", f"{via} keeps no Terraform state on this machine", "leave out this option"))
    options = ways.Options(via, state, chosen.modules, chosen.source, chosen.context, chosen.evict, wait)
    return ways.make(spec, options, SystemClock(), _console(stderr=stderr), click.echo)


def _console(*, stderr: bool = False) -> Console:
    from tpukit.jobs.report import tables

    return tables.console(stderr=stderr)


def _ask(question: str) -> bool:
    if not sys.stdin.isatty():
        raise Invalid(
            Problem("--yes", "confirmation is required, and stdin is not a terminal", "pass --yes to confirm")
        )
    return questions.confirm(question)


def _ask_for(name: str) -> Ask:
    def ask(question: str) -> bool:
        if not sys.stdin.isatty():
            hint = f"pass --name {name} to confirm the deletion"
            raise Invalid(Problem("--name", "confirmation is required, and stdin is not a terminal", hint))
        typed = questions.typed(question, name)
        if not typed:
            _say("nothing was deleted")
        return typed

    return ask


def _completion(chosen: Chosen) -> Completion:
    """Return the user's arguments that select the cluster, for use in suggested commands."""
    from tpukit.cluster import terraform
    from tpukit.cluster.hints import Completion
    from tpukit.cluster.workspace import Workspace

    words = [str(chosen.file)] if chosen.file else []
    words += [word for one in chosen.sets for word in ("--set", one)]
    words += ["--any-zone"] if chosen.any_zone else []
    words += [f"--context={chosen.context}"] if chosen.context else []
    try:
        spec = _spec(chosen)
    except TpukitError:  # the command reports this error itself
        return Completion(words)
    local = chosen.via == "local"
    folder = Workspace.of(spec, chosen.modules or Path(), chosen.state).folder if local else None
    return Completion(words, folder, terraform.program())


def _say(text: str) -> None:
    click.echo(text, err=True)


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def _show(found: dict[str, Any]) -> None:
    from rich.text import Text

    from tpukit.jobs.report.layout import FittedTable, TableField

    console = _console()
    for part in ("resources", "cluster", "addons"):
        console.print(Text.assemble((f"{part:10}", "dim"), _words(found[part])), soft_wrap=True)
    pools = found["pools"]
    if "problem" in pools:
        console.print(Text.assemble(("pools     ", "dim"), _words(pools)), soft_wrap=True)
        return
    rows = list(pools.items())
    fields = [
        TableField("pool", [name for name, _ in rows]),
        TableField("slice", [pool["wanted"] or "-" for _, pool in rows], drop=2),
        TableField("topology", [pool["topology"] or "-" for _, pool in rows], drop=1),
        TableField("ready", [f"{pool['ready']} of {pool['hosts']}" for _, pool in rows]),
    ]
    console.print(FittedTable(fields, heading="jobs", texts=[", ".join(pool["jobs"]) or "-" for _, pool in rows]))


def _words(part: Any) -> str:
    if not part:
        return "none"
    if "problem" in part:
        return f"unknown: {part['problem']}"
    return ", ".join(f"{key} {value or 'none'}" for key, value in part.items() if not isinstance(value, list))
