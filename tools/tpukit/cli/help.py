"""`tpu help`: help for a command in its long and its short spelling."""

from __future__ import annotations

import click

from tpukit.cli import spellings


@click.command("help")
@click.argument("words", nargs=-1)
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show help for a command or an alias.

    \b
    Examples:
      tpu help job stop
      tpu help kill         the short spelling of the same
      tpu help tldr         the commands of the first day
    """
    if words == ("tldr",):
        _first_day()
        return
    short = spellings.BY_WORD.get(words[0]) if len(words) == 1 else None
    target = (
        [part for part in short.becomes.split() if "{" not in part and not part.startswith("-")] if short else words
    )
    if short and words[0] not in ("run", "clean"):
        click.echo(_both(short) + "\n")
    root = ctx.find_root()
    if words and words[0] in ("run", "clean") and short:  # a command in both spellings
        _print_help(root, list(words))
        click.echo(f"\n{_both(short)}\n")
    _print_help(root, list(target))


def _print_help(root: click.Context, words: list[str]) -> None:
    group: click.Command = root.command
    context = root
    for word in words:
        inner = group.get_command(context, word) if isinstance(group, click.Group) else None
        if inner is None:
            raise click.UsageError(f"There is no command '{' '.join(words)}'. `tpu --help` lists all.", root)
        context = click.Context(inner, info_name=word, parent=context)
        group = inner
    click.echo(group.get_help(context))


def _both(short: spellings.Spelling) -> str:
    spellings_ = " | ".join(short.words.split())
    named = {key.lstrip("-"): None for key in short.named}
    keys = "".join(f" [{key}=…]" for key in (*short.options, *named))
    more = " [SETTING=VALUE …]" if short.settings else ""
    flags = "".join(f" [{flag}]" for flag in short.flags)
    takes = "".join(f" {name.upper()}" for name in short.takes.split())
    long = short.becomes.replace("{", "").replace("}", "")
    return f"{short.says}\n\n  tpu {spellings_}{takes}{keys}{more}{flags}\n  is short for\n  tpu {long}"


def _first_day() -> None:
    rows = [
        (one.tldr, " ".join(spellings.canonical(one.tldr.split()[1:])), one.says)
        for one in spellings.SPELLINGS
        if one.tldr
    ]
    for short, long, says in rows:
        click.echo(f"{says}\n  {short}\n  tpu {long}")
    click.echo("\n`tpu -h COMMAND` explains one; `tpu --help` lists all.")
