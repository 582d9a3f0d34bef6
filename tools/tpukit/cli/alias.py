"""`tpu alias`: short names for settings of programs and for TPUs."""

from __future__ import annotations

import click

from tpukit.cli.who import reserved, user_name, user_option

_tpu = click.option("--tpu", "of_tpu", is_flag=True, help="Alias of a TPU, shared by all users.")


@click.group("alias", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Manage short names: of program settings for one user, of TPUs (--tpu) for all users.

    \b
    Examples:
      tpu alias add lr config.training.learning_rate --user ada
      tpu alias add --tpu v2-32-6 kmh-tpuvm-v2-32-6
      tpu alias list --user ada
      tpu alias delete lr --user ada
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_)


@command.command()
@click.argument("name")
@click.argument("target", metavar="SETTING|TPU")
@_tpu
@user_option
def add(name: str, target: str, of_tpu: bool, user: str) -> None:
    """Add or change a short name."""
    from tpukit.cli import context
    from tpukit.sharing import tpu_aliases, users

    now = context.CLOCK.now()
    if of_tpu:
        tpu_aliases.add(context.store(), name, target, reserved(), now)
    else:
        users.set_alias(context.store(), user_name(user), name, target, reserved(), now)


@command.command("list")
@_tpu
@user_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(of_tpu: bool = False, user: str = "", as_json: bool = False) -> None:
    """List short names."""
    from tpukit.cli import context
    from tpukit.sharing import tpu_aliases, users

    store = context.store()
    names = tpu_aliases.listed(store) if of_tpu else users.get(store, user_name(user)).aliases
    if as_json:
        context.print_json(names)
        return
    width = max(map(len, names), default=0)
    for name, target in sorted(names.items()):
        click.echo(f"{name:{width}}  {target}")


@command.command()
@click.argument("name")
@_tpu
@user_option
def delete(name: str, of_tpu: bool, user: str) -> None:
    """Delete a short name."""
    from tpukit.cli import context
    from tpukit.sharing import tpu_aliases, users

    if of_tpu:
        tpu_aliases.delete(context.store(), name)
    else:
        users.delete_alias(context.store(), user_name(user), name, context.CLOCK.now())
