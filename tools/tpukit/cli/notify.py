"""`tpu notify`: show the rules for notices, and send a test notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tpukit.serve.notices.decide import Idle
    from tpukit.serve.notices.delivery import Notices


@click.command("notify")
@click.option("--test", metavar="RULE", help="Send a test notice by this rule now.")
def command(test: str | None) -> None:
    """Show who is notified when a job ends, waits too long or is idle. `tpu serve` sends the notices.

    The rules are in notices.yaml beside your settings, which only you may read. Without teams and owners, a rule is for
    all jobs. A webhook gets JSON with a `text`, as Slack expects; a command gets the text on its stdin.

    \b
    Example of a file:
      - name: research
        webhook: https://hooks.slack.com/services/...
        teams: [research]
        ended: [failed]
        waits: 2h
        idle: 30m
      - name: ada
        command: [mail, -s, "{subject}", ada@example.com]
        owners: [ada]
        ended: [completed, failed, cancelled]

    \b
    Examples:
      tpu notify
      tpu notify --test ada
    """
    from tpukit.core.errors import NotFound
    from tpukit.core.quantities import duration
    from tpukit.serve.notices import rules, sending
    from tpukit.serve.notices.decide import Notice

    found = rules.read(file())
    if test is not None:
        rule = next((one for one in found if one.name == test), None)
        if rule is None:
            hint = f"write one of {', '.join(one.name for one in found)}" if found else f"write rules into {file()}"
            raise NotFound(f"there is no rule {test}", hint=hint)
        text = "This is a test of the notices of tpukit."
        sending.send(rule, Notice(f"{rule.name}.test", rule.name, "test", text))
        click.echo(f"sent by rule {rule.name}", err=True)
        return
    if not found:
        click.echo(f"no rules: write them into {file()}; `tpu notify --help` has an example", err=True)
    for rule in found:
        when = [f"ended: {', '.join(rule.ended)}"] if rule.ended else []
        when += [f"waits {duration(rule.waits)}"] if rule.waits else []
        when += [f"idle {duration(rule.idle)}"] if rule.idle else []
        to = "webhook" if rule.webhook else rule.command[0]
        who = ", ".join((*rule.teams, *rule.owners)) or "all"
        click.echo(f"{rule.name}  {to}  {who}  {'; '.join(when)}")


def file() -> Path:
    from tpukit.jobs.spec import settings

    return settings.path().with_name("notices.yaml")


def notices(say: Callable[[str], None]) -> Notices:
    """Return the notices that `tpu serve` sends."""
    from tpukit.cli import context
    from tpukit.serve.notices.delivery import Notices

    return Notices(context.store(), context.CLOCK, file(), _idle, say)


def _idle() -> list[Idle]:
    """Return the shared TPU VMs without a job."""
    from tpukit.cli import context
    from tpukit.jobs.records import ACTIVE, JOBS
    from tpukit.kernel.store import everything
    from tpukit.serve.notices.decide import Idle
    from tpukit.serve.page import slices
    from tpukit.sharing.inventory import VMS

    users = {entry.value.name: entry.value.user for entry in everything(context.store(), VMS)}
    active = [entry.value for entry in everything(context.store(), JOBS, states=ACTIVE)] if users else []
    found = slices.of_everything(context.store(), active) if users else []
    return [
        Idle(one.name, users.get(one.name, ""), one.since, one.usd) for one in found if one.state == "idle" and one.name
    ]
