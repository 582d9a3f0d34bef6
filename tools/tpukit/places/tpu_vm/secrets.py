"""The wandb key of the job's driver, sent to hosts over SSH as content and only held in memory there.

It is in no job file, record, log, argument or environment of a stored process: programs find it in the netrc file that
$NETRC names, where wandb looks for it. https://docs.wandb.ai/guides/track/environment-variables
"""

from __future__ import annotations

import netrc
import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from tpukit.core.errors import Problem

KEY = "WANDB_API_KEY"
_SERVER = "https://api.wandb.ai"


def wandb(env: Mapping[str, str]) -> str:
    """Return a netrc line with $WANDB_API_KEY of this process, or the key of `wandb login` on this machine.

    Empty if there is neither. `env`: of the job, which may name another server.
    """
    server = urlsplit(env.get("WANDB_BASE_URL", os.environ.get("WANDB_BASE_URL", _SERVER))).hostname or ""
    key = os.environ.get(KEY, "") or _known(server)
    return f"machine {server} login user password {key}\n" if server and key and key.isprintable() else ""


def check(env: Mapping[str, str]) -> list[Problem]:
    if KEY not in env:
        return []
    hint = f"leave it out: hosts get ${KEY}, or the key of `wandb login`, from the machine that drives the job"
    return [Problem(f"env.{KEY}", "everyone who can read the store can read a key in a job file", hint)]


def _known(server: str) -> str:
    try:
        entry = netrc.netrc().authenticators(server)
    except (OSError, netrc.NetrcParseError):
        return ""
    return entry[2] or "" if entry else ""
