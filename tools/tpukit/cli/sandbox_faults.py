"""`tpu sandbox faults`: fault injection."""

from __future__ import annotations

from typing import Any

import click

from tpukit.core.errors import Invalid

_name = click.option(
    "--name", default="default", show_default=True, envvar="TPUKIT_SANDBOX", help="Name of the sandbox."
)


@click.group("faults", invoke_without_command=True)
@_name
@click.option("--json", "as_json", is_flag=True, help="Print an object instead of a table.")
@click.pass_context
def command(context: click.Context, name: str, as_json: bool) -> None:
    """List the injected faults of Google's APIs and hosts, and how often each occurred.

    \b
    Examples:
      tpu sandbox faults add stockout --match us-central2-b --times 2
      tpu sandbox faults add refuse --match 'POST container' --status 429 --chance 0.3
      tpu sandbox faults add rate --match 'GET tpu' --limit 10      ten requests a minute, and no more
      tpu sandbox faults add hang --match 'GET container' --times 1 no answer for a minute, then the connection is cut
      tpu sandbox faults add slow --match CREATE_NODE_POOL --seconds 30
      tpu sandbox faults host preempt pool-0             preempt a spot slice; it is back after 30 s
      tpu sandbox faults host lose pool-0-host --step 40 when a host of it reports step 40
      tpu sandbox faults vm preempt my-tpu --grace 5     preempt a TPU VM: notice, SIGTERM, 5 s, power off
      tpu sandbox faults vm unreachable my-tpu --worker 1   that host is unreachable; `restore` ends it
      tpu sandbox faults clear
    """
    if context.invoked_subcommand is not None:
        return
    from tpubox.box import fault_commands, folder
    from tpubox.box.emulator import agent

    place = folder.find(name)
    ordered, pools = fault_commands.table(place), agent(place).pools()
    if as_json:
        from tpukit.cli.context import print_json

        print_json({"google": ordered, "pools": list(pools.values())})
        return
    for fault in ordered:
        said = " ".join(f"{key}={value}" for key, value in fault.items() if key not in ("name", "kind") and value)
        click.echo(f"{fault['name']}: {fault['kind']} {said}")
    for pool, record in pools.items():
        if record.get("presence") != "here":
            click.echo(f"{pool}: {record.get('presence')}")
    if not ordered:
        click.echo("Google's APIs have no fault; `tpu sandbox faults --help` shows how to add one", err=True)


@command.command("add")
@click.argument("kind")
@click.option("--match", help="Regular expression for the requests or TPU VMs to affect (default: all).")
@click.option("--times", type=click.IntRange(min=0), help="Number of times the fault occurs (0: no limit).")
@click.option("--chance", type=click.FloatRange(0, 1), help="Probability of the fault at each occasion.")
@click.option("--status", type=click.IntRange(400, 599), help="HTTP status of `refuse`.")
@click.option("--message", help="Message of the refusal.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    help="Duration of `slow`, `hang`, `rate` and `preempt`; the pause that `refuse` asks for.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Requests of `rate`, in so many seconds.")
@click.option("--as", "fault_name", help="A name for it; one of the same name is replaced.")
@_name
def add(name: str, kind: str, fault_name: str | None, **words: Any) -> None:
    """Inject a fault into Google's APIs or TPU VMs.

    APIs: refuse, rate, lost, cut, hang, slow, fail, broken, stockout, quota, gce-quota. TPU VMs, --seconds after they
    are ready: preempt, repair, maintenance, unhealthy, crash, freeze, unreachable.
    """
    from tpubox.box import fault_commands, folder

    given = {key: value for key, value in {**words, "name": fault_name}.items() if value is not None}
    click.echo(fault_commands.add(folder.find(name), kind, **given))


@command.command("clear")
@click.argument("fault", default="")
@_name
def clear(name: str, fault: str) -> None:
    """Remove a fault of Google's APIs, or all of them."""
    from tpubox.box import fault_commands, folder

    fault_commands.clear(folder.find(name), fault)


@command.command("host")
@click.argument("action", type=click.Choice(["preempt", "drain", "hang", "lose", "restore"]))
@click.argument("target")
@click.option("--grace", type=click.FloatRange(min=0), help="preempt: grace period of pods, in seconds (default: 25).")
@click.option("--back", type=click.FloatRange(min=0), help="preempt, lose: seconds until the node is back.")
@click.option(
    "--step", type=click.IntRange(min=0), help="Inject when a host of the pool reports this step (default: now)."
)
@_name
def host(name: str, action: str, target: str, **words: Any) -> None:
    """Inject a fault into a pool or one of its hosts. `restore` ends it."""
    from tpubox.box import folder
    from tpubox.box.emulator import agent

    given = {key: value for key, value in words.items() if value is not None}
    try:
        getattr(agent(folder.find(name)), action)(target, **given)
    except TypeError as error:
        said = ", ".join(f"--{key}" for key in given)
        raise Invalid(
            f"{action} does not take {said} together", hint="`--help` shows which options each fault takes"
        ) from error


@command.command("vm")
@click.argument(
    "action",
    type=click.Choice(
        ["preempt", "repair", "maintenance", "unhealthy", "crash", "freeze", "unreachable", "restore"],
    ),
)
@click.argument("node")
@click.option(
    "--worker",
    type=click.IntRange(min=0),
    help="Number of one host (default: all; preempt and repair always take all).",
)
@click.option("--grace", type=click.FloatRange(0, 30), help="preempt, maintenance: seconds that programs have (30).")
@click.option("--after", type=click.FloatRange(min=0), help="preempt: seconds until the API reports it.")
@click.option("--notice", type=click.FloatRange(min=0), help="maintenance: seconds of notice.")
@click.option("--seconds", type=click.FloatRange(min=0), help="repair, maintenance: seconds until the TPU VM is back.")
@click.option("--health", help="unhealthy: UNHEALTHY_TENSORFLOW, UNHEALTHY_MAINTENANCE or TIMEOUT.")
@click.option("--symptom", help="unhealthy: HBM_OUT_OF_MEMORY, MESH_BUILD_FAIL, …")
@click.option("--details", help="unhealthy: description in the API.")
@_name
def vm(name: str, action: str, node: str, **words: Any) -> None:
    """Inject a fault into a TPU VM, and print its state and health.

    \b
    preempt      the metadata server reports it; SIGTERM, grace, power off; the node stays, PREEMPTED
    repair       hosts are gone, the node is REPAIRING, and boots
    maintenance  announced, then hosts are shut down and boot again
    unhealthy    the API reports it; hosts keep running
    crash        hosts lose power for a moment and boot
    freeze       everything on a host stands still; connections are taken and not answered
    unreachable  requests to a host get no response; its programs run on
    restore      ends what lasts: freeze, unreachable, unhealthy
    """
    from tpubox.box import fault_commands, folder

    given = {key: value for key, value in words.items() if value is not None}
    now = fault_commands.strike_vm(folder.find(name), action, node, **given)
    click.echo(f"{node}: {now.get('state', 'gone')} {now.get('health', '')}")
