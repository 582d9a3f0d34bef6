"""Disks of a host: the commands `mount` and `umount`, for disks and shares of the sandbox.

A data disk of the node is a folder that outlives the node; a share of an NFS server is common to all hosts. Mounts do
not survive a boot.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tpubox.google.wire.state import Doc
from tpubox.tpu_vms import file_view

DOOR = "/emulator/mounts"
"""Path at the metadata server: `{"source", "target", "read_only"}`; without a source, the target is unmounted."""


def devices(node: Mapping[str, Any]) -> dict[str, Doc]:
    """Return the data disks of a node by their device names on its hosts.

    https://cloud.google.com/tpu/docs/attach-durable-block-storage
    """
    by_device: dict[str, Doc] = {}
    for number, disk in enumerate(node.get("dataDisks", [])):
        about = {"disk": _plain(disk["sourceDisk"]), "read_only": disk.get("mode") == "READ_ONLY"}
        for name in (f"/dev/sd{chr(ord('b') + number)}", f"/dev/disk/by-id/google-persistent-disk-{number + 1}"):
            by_device[name] = about
    return by_device


def answer(body: bytes, known: Mapping[str, Doc], folder: Path, own_view: bool) -> str:
    """Mount or unmount a disk; return the error message of `mount`, or an empty text."""
    order = json.loads(body)
    target = str(order["target"])
    if not own_view:
        return "this machine allows no mount namespaces: nothing can be mounted on TPU VMs of the sandbox"
    try:
        if not order.get("source"):
            file_view.unmount(target)
            return ""
        if not Path(target).is_dir():
            return f"{target}: mount point does not exist."
        volume = _source(str(order["source"]), known, folder)
        if isinstance(volume, str):
            return volume
        path, read_only = volume
        path.mkdir(parents=True, exist_ok=True)
        file_view.bind(str(path), target, read_only=read_only or bool(order.get("read_only")))
    except OSError as error:
        return f"{target}: {error.strerror}."
    return ""


def _source(source: str, known: Mapping[str, Doc], folder: Path) -> tuple[Path, bool] | str:
    if disk := known.get(source):
        return folder / "disks" / disk["disk"], disk["read_only"]
    if share := re.fullmatch(r"([\w.-]+):(/[\w./-]*)", source):
        return folder / "shares" / share[1] / _plain(share[2]), False
    if source.startswith("/dev/"):
        return f"special device {source} does not exist."
    return (Path(source), False) if Path(source).is_dir() else f"{source} is unknown."


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name).strip("._") or "root"


def programs(folder: Path, python: str, names: Iterable[str] = ("mount", "umount")) -> None:
    """Write the commands; sudo is among them, because users of a TPU VM have all permissions on it."""
    folder.mkdir(exist_ok=True)
    script = Path(__file__).with_name("mount_command.py")
    texts = {name: f'#!/bin/sh\nexec {python} -I -S {script} {name} "$@"\n' for name in names}
    texts["sudo"] = '#!/bin/sh\nwhile case "$1" in -*) true;; *) false;; esac; do shift; done\nexec env "$@"\n'
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
