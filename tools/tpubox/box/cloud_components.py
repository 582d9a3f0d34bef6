"""The components of the emulated cloud: Google's APIs, the node agent that runs pods, and the runner of add-ons."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import tpukit
from tpubox.box import answer_log as kept_answers
from tpubox.box.control_plane import Component
from tpubox.box.folder import HOST, Folder

_IMPORTS = Path(tpukit.__file__).resolve().parents[1]


def agent(folder: Folder) -> Component:
    flags = {
        "folder": folder.path / "agent",
        "kubeconfig": folder.kubeconfig,
        "port": folder.ports["agent"],
        "token-file": folder.path / "token",
        "keys": folder.certificates("cluster"),
        "google": f"http://{HOST}:{folder.ports['google']}",
        "google-token-file": folder.pods_token,
        "buckets": folder.path / "google" / "buckets",
    }
    # The programs of pods need these, independent of their volumes.
    visible = {Path(sys.prefix), Path(sys.base_prefix), _IMPORTS}
    words = [
        *(f"--{name}={value}" for name, value in flags.items()),
        *(f"--visible={path}" for path in sorted(visible)),
        *(f"--hidden={path}" for path in folder.secrets),
    ]
    argv = _argv("tpubox.kubelet", *words)
    return Component("agent", argv, _env(), probe=f"{folder.url('agent')}/healthz", starts_pods=True)


def addons(folder: Folder) -> Component:
    argv = _argv("tpubox.box.addon_processes", str(folder.path))
    return Component("addons", argv, {**_env(), **_cache()}, starts_pods=True)


def google(folder: Folder) -> Component:
    argv = _argv("tpubox.box.emulator", str(folder.path), *folder.google)
    env = {**_env(), **kept_answers.variables()}
    return Component("google", argv, env, probe=f"http://{HOST}:{folder.ports['google']}/emulator/limits")


def _argv(module: str, *words: str) -> tuple[str, ...]:
    return (sys.executable, "-m", module, *words)


def _cache() -> dict[str, str]:
    """Return the location of the built programs."""
    return {"XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")}


def _env() -> dict[str, str]:
    return {"PYTHONPATH": str(_IMPORTS), "PYTHONUNBUFFERED": "1"}
