"""`tpu page`: open the page of the `tpu serve` on this machine."""

from __future__ import annotations

import http.client
import re
import webbrowser
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tpukit.serve.forecasts import Forecasts
    from tpukit.serve.page.site import Site

ASK_SECONDS = 20.0


@click.command("page")
@click.option("--no-open", is_flag=True, help="Print the link and open no browser.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port, where no `tpu serve` runs (default: free)."
)
def command(no_open: bool, port: int) -> None:
    """Open the page in a browser: running and waiting jobs, and their costs.

    The page is that of the `tpu serve` of this machine. Where none runs, this command serves the page until Ctrl-C, and
    drives no jobs. The printed link works once, within a minute.

    \b
    Examples:
      tpu page
      tpu page --no-open             for a browser elsewhere: ssh -L 9465:localhost:9465 HOST
    """
    from tpukit.core import paths
    from tpukit.serve.page import page_server, sessions

    left = sessions.read(paths.state() / page_server.FILE)
    address = _link(*left) if left else ""
    own = None
    if not address:
        own = page_server.start(site(driven=False), paths.state(), port)
        address = own.link()
    click.echo(address)
    if not no_open:
        webbrowser.open(address)
    if own:
        click.echo(
            "no `tpu serve` runs here: this command serves the page and drives no jobs; Ctrl-C ends it", err=True
        )
        from tpukit.cli.leaving import Leaving

        Leaving().wait()
        own.stop()


def site(*, driven: bool, forecasts: Forecasts | None = None) -> Site:
    """Return the data sources for the page of this process."""
    from tpukit.cli import context
    from tpukit.serve.forecasts import Forecasts
    from tpukit.serve.page.site import Site

    store, clock = context.store(), context.CLOCK
    return Site(store, context.places(), clock, context.owner(), driven, forecasts or Forecasts(store, clock))


def _link(port: int, token: str) -> str:
    """Return a link from the running page, or "" if it is unreachable."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ASK_SECONDS)
    try:
        headers = {"Authorization": f"Bearer {token}", "Content-Length": "0"}
        connection.request("POST", "/link", headers=headers)
        answer = connection.getresponse()
        code = answer.read(200).decode("ascii", "replace")
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        connection.close()
    return f"http://127.0.0.1:{port}/enter?code={code}" if re.fullmatch(r"[-\w]{20,100}", code) else ""
