"""`tpu serve`: the loop for jobs that nobody follows."""

from __future__ import annotations

import os
import signal

import click


@click.command("serve")
@click.option("--parallel", type=click.IntRange(min=1), help="Jobs that run at once; half the cores unless told.")
@click.option("--tick", type=click.FloatRange(min=0.05), default=0.5, show_default=True, help="Seconds between looks.")
@click.option("--until-idle", is_flag=True, help="Leave when no job is left to drive.")
def command(parallel: int | None, tick: float, until_idle: bool) -> None:
    """Drive jobs that were sent with --detach, and those whose terminal was closed.

    It may be killed at any moment: hosts run on, and the next `tpu serve` carries on where this one stopped. Two at
    once share the work.
    """
    from tpukit.cli import here

    loop = here.loop(
        here.store(),
        parallel=parallel or max(1, (os.cpu_count() or 2) // 2),
        report=here.say,
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    click.echo("serving; Ctrl-C leaves, jobs run on", err=True)
    try:
        loop.sweep()
        while loop.tick() or not until_idle:
            here.CLOCK.sleep(tick)
    except KeyboardInterrupt:
        click.echo("left; jobs run on, start `tpu serve` again to drive them", err=True)
