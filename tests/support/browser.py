"""A real browser that needs nothing of this machine: headless Chromium from npm, in the cache folder.

    python tests/support/browser.py

It downloads 68 MB and takes 260 MB on disk. The package includes the libraries that Chromium requires.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PACKAGE = "@sparticuz/chromium@147.0.0"


class NotThere(Exception):
    pass


def program(*, build: bool = False) -> Path:
    """Return the path of its executable, next to the folder of its libraries."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(root) / "tpukit" / "chromium" / PACKAGE.rpartition("@")[2]
    found = folder / "chromium"
    if found.exists():
        return found
    if not build:
        raise NotThere(f"there is no browser: {sys.executable} {Path(__file__).resolve()} fetches one (68 MB)")
    if platform.machine() != "x86_64" or not (npm := shutil.which("npm")):
        raise NotThere(f"{PACKAGE} is for x86_64 and is fetched by npm: install Node.js, on such a machine")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two checkouts may install it at the same time
        if not found.exists():
            print("fetching a browser (once)", flush=True)
            with tempfile.TemporaryDirectory(dir=folder.parent) as made:
                _unpack(npm, Path(made))
                shutil.rmtree(folder, ignore_errors=True)
                (Path(made) / "whole").rename(folder)
    return found


def _unpack(npm: str, folder: Path) -> None:
    import brotli

    subprocess.run([npm, "pack", "--silent", PACKAGE], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (packed,) = folder.glob("*.tgz")
    with tarfile.open(packed) as package:
        package.extractall(folder, filter="data")
    parts, whole = folder / "package" / "bin", folder / "whole"
    for name in ("al2023", "swiftshader"):  # libraries, and the software renderer
        unpacked = folder / f"{name}.tar"
        unpacked.write_bytes(brotli.decompress((parts / f"{name}.tar.br").read_bytes()))
        with tarfile.open(unpacked) as libraries:
            libraries.extractall(whole, filter="data")
    executable = whole / "chromium"
    executable.write_bytes(brotli.decompress((parts / "chromium.br").read_bytes()))
    executable.chmod(0o755)


@contextmanager
def browsing(home: Path, address: str) -> Iterator[None]:
    """Keep a page open in a browser on this machine. Names that end in .example resolve to this machine."""
    chromium = program()
    command = [
        *(str(chromium), "--headless=shell", "--no-sandbox", "--no-zygote", "--single-process", "--in-process-gpu"),
        *("--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update"),
        *("--no-proxy-server", f"--user-data-dir={home}", "--host-resolver-rules=MAP *.example 127.0.0.1"),
        *("--remote-debugging-port=0", address),  # it keeps the browser open
    ]
    home.mkdir()
    env = {"HOME": str(home), "LD_LIBRARY_PATH": str(chromium.parent / "lib"), "PATH": os.environ["PATH"]}
    with (
        home.with_suffix(".log").open("wb") as log,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env) as running,
    ):
        try:
            yield
        finally:
            running.kill()


if __name__ == "__main__":
    print(program(build=True))
