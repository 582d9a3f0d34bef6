"""The file system view of a host: its own /home, /mnt, /tmp, /etc/hosts and name, and chips on its PCI bus.

It needs mount namespaces, which Linux permits to root and usually to any user. Without them homes lie in the host's
folder, HOME points sessions to it, nothing can be mounted, and a module on PYTHONPATH makes JAX find chips.
"""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import tpukit
from tpukit.places.local.processes import mounts

SITE = Path(__file__).with_name("site")
HIDDEN = {"home": "/home", "mnt": "/mnt", "tmp": "/tmp"}  # noqa: S108 (the host's, not ours)
"""Folders of the host, and where they appear in its view."""
_BUS = "/sys/bus/pci/devices"
_VENDOR = "0x1ae0"
_DEVICES = {"v2": "0x0027", "v3": "0x0027", "v4": "0x005e", "v5p": "0x0062", "v5e": "0x0063", "v6e": "0x006f"}
"""Device ids by generation.

https://github.com/jax-ml/jax/blob/main/jax/_src/hardware_utils.py
"""
_CLASS = "0x120000"  # processing accelerators; gloo reads it of every device


def enter(folder: Path, visible: Iterable[Path]) -> bool:
    """Give this process the host's view; return False, with nothing changed, if that is impossible.

    The process must have one thread. `visible` are folders that stay visible regardless of their location.
    """
    placed = [(str(_made(folder / name)), target, False) for name, target in HIDDEN.items()]
    (folder / "tmp").chmod(0o1777)
    placed.append((str(_made(folder / "pci")), _BUS, False))
    (folder / "hosts").touch()
    placed.append((str(folder / "hosts"), "/etc/hosts", False))
    needed = {folder, Path(sys.prefix), Path(sys.base_prefix), Path(tpukit.__file__).resolve().parents[1], *visible}
    for path in sorted(needed):
        if path.exists() and any(path.is_relative_to(target) for target in HIDDEN.values()):
            placed.append((str(path), str(path), False))
    try:
        mounts.enter(str(_made(folder / "root")), placed)
        mounts.separate_name()
    except OSError as error:
        print(f"TPU VMs have no file systems of their own: {error}", file=sys.stderr)
        return False
    return True


def set_name(folder: Path, name: str, hosts: Mapping[str, str]) -> None:
    """Set the name of the host, and the names that it resolves; gloo finds its own address by them."""
    lines = [f"{address} {other}\n" for other, address in {"localhost": "127.0.0.1", **hosts}.items()]
    (folder / "hosts").write_text("".join(lines), encoding="ascii")  # in place, because it is mounted
    socket.sethostname(name)


def plug_in(folder: Path, generation: str, chips: int) -> None:
    """Add chips to the bus."""
    bus = folder / "pci"
    for old in bus.iterdir():
        shutil.rmtree(old)
    for chip in range(chips):
        device = _made(bus / f"0000:00:{4 + chip:02x}.0")
        for name, value in (("vendor", _VENDOR), ("device", _DEVICES.get(generation, "")), ("class", _CLASS)):
            (device / name).write_text(f"{value}\n", encoding="ascii")


def session(folder: Path, user: str, own_view: bool) -> Mapping[str, str]:
    """Return the variables of a session that depend on the location of its files."""
    home = _made((Path("/home") if own_view else folder / "home") / Path(user).name)
    if own_view:
        return {"HOME": str(home)}
    temporary = str(_made(folder / "tmp"))
    return {"HOME": str(home), "TMPDIR": temporary, "TMUX_TMPDIR": temporary, "PYTHONPATH": str(SITE)}


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def bind(source: str, target: str, *, read_only: bool) -> None:
    """Mount a folder in this process's view."""
    flags = mounts.MS_BIND | mounts.MS_REC
    mounts.mount(source, target, "", flags)
    if read_only:
        mounts.mount("none", target, "", mounts.MS_BIND | mounts.MS_REMOUNT | mounts.MS_RDONLY)


def unmount(target: str) -> None:
    mounts.unmount(target)
