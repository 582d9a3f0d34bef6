"""Run the agent: `python -m tpubox.kubelet --help`."""

from __future__ import annotations

import logging
import signal
from pathlib import Path

import click

from tpukit.core.clock import SystemClock


@click.command()
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder of its state.")
@click.option("--kubeconfig", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--port", type=int, required=True, help="Port of its API on loopback; 0: any.")
@click.option("--token-file", type=click.Path(path_type=Path, exists=True), required=True, help="Token of that API.")
@click.option(
    "--keys",
    type=click.Path(path_type=Path, exists=True),
    required=True,
    help="Folder with tls.crt, tls.key and ca.crt.",
)
@click.option(
    "--buckets", type=click.Path(path_type=Path), help="Folder with a folder for each bucket that pods mount."
)
@click.option("--google", default="", metavar="URL", help="Address of the Google emulator, for programs in pods.")
@click.option(
    "--google-token-file",
    type=click.Path(path_type=Path, exists=True),
    help="Token of these programs for the emulator.",
)
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="Environment of all pods; overridden by their own.")
@click.option("--visible", multiple=True, type=click.Path(path_type=Path), help="A folder that no volume may hide.")
@click.option("--hidden", multiple=True, type=click.Path(path_type=Path), help="Files that no pod may read.")
def main(
    folder: Path,
    kubeconfig: Path,
    port: int,
    token_file: Path,
    keys: Path,
    buckets: Path | None,
    google: str,
    google_token_file: Path | None,
    env: tuple[str, ...],
    visible: tuple[Path, ...],
    hidden: tuple[Path, ...],
) -> None:
    """Run the node agent of a sandbox, which runs the pods of its nodes as processes of this machine."""
    from tpubox.box import memory_limits
    from tpubox.kubelet.agent import Agent, Options
    from tpukit.kube import Cluster

    memory_limits.keep()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    cluster = Cluster(kubeconfig)
    options = Options(
        folder=folder.absolute(),
        port=port,
        token=token_file.read_text(encoding="ascii").strip(),
        keys=keys,
        server=cluster.server,
        buckets=(buckets or folder / "buckets").absolute(),
        google=google,
        google_token=google_token_file.read_text(encoding="ascii").strip() if google_token_file else "",
        env=dict(text.partition("=")[::2] for text in env),
        visible=tuple(path.absolute() for path in visible),
        hidden=tuple(path.absolute() for path in hidden),
    )
    agent = Agent(cluster, options, SystemClock())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.stop())
    agent.run()


if __name__ == "__main__":
    main()
