"""`tpu serve` as a systemd user unit: started with the machine, and restarted whenever it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tpukit.core.errors import Denied, NotFound, Transient

NAME = "tpukit-serve.service"
PASSED_ON = (
    "PATH",
    "TPUKIT_HOME",
    "TPUKIT_SETTINGS",
    "TPUKIT_STORE",
    "XDG_STATE_HOME",
    "XDG_DATA_HOME",
    "XDG_CONFIG_HOME",
    "KUBECONFIG",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "CLOUDSDK_CONFIG",
)
"""Environment variables to copy from the installing user: a unit starts with almost none."""

_UNIT = """\
# Written by `tpu serve --install`; `tpu serve --uninstall` removes it.
[Unit]
Description=tpukit: drives training jobs that no terminal follows
After=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart={command}
{environment}
Restart=always
RestartSec=5
TimeoutStopSec=10
# Hosts of local jobs are processes of their own, and outlive the one that drives them.
KillMode=process
# A host that runs out of memory is that job's trouble.
OOMPolicy=continue
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
UMask=0077

[Install]
WantedBy=default.target
"""


def path(environ: Mapping[str, str] = os.environ) -> Path:
    home = environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "systemd" / "user" / NAME


def text(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> str:
    """Return the unit that runs `tpu serve` with these arguments, this Python and the environment that it needs."""
    command = " ".join(
        _quoted(word).replace("$", "$$") for word in (sys.executable, "-m", "tpukit", "serve", *arguments)
    )
    passed = [f"Environment={_quoted(f'{name}={environ[name]}')}" for name in PASSED_ON if environ.get(name)]
    return _UNIT.format(command=command, environment="\n".join(passed))


def install(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> Path:
    """Write the unit file, replacing any earlier one."""
    file = path(environ)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(".new")
        new.write_text(text(arguments, environ), encoding="utf-8")
        new.replace(file)
    except OSError as error:
        raise Denied(f"{file} cannot be written: {error.strerror}", hint="XDG_CONFIG_HOME moves it") from error
    return file


def uninstall(environ: Mapping[str, str] = os.environ) -> Path:
    file = path(environ)
    try:
        file.unlink()
    except FileNotFoundError as error:
        raise NotFound(f"{file} is not there", hint="`tpu serve --install` writes it") from error
    except OSError as error:
        raise Denied(f"{file} cannot be removed: {error.strerror}") from error
    return file


def systemctl(*arguments: str) -> None:
    line = ["systemctl", "--user", *arguments]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Transient(f"{' '.join(line)}: {error}", hint="is this a machine with systemd?") from error
    if done.returncode:
        raise Transient(f"{' '.join(line)} failed: {done.stderr.strip() or done.returncode}")


def _quoted(word: str) -> str:
    """Quote a word for systemd.

    https://www.freedesktop.org/software/systemd/man/latest/systemd.service.html#Command%20lines
    """
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("\n", "\\n")
    return f'"{escaped}"'
