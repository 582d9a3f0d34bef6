"""Retry while Google propagates what bootstrap changed a moment ago.

Enabled APIs and granted roles usually take effect within two minutes, and sometimes seven or more.
https://cloud.google.com/iam/docs/access-change-propagation
Later, the same errors are final and are not retried.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TypeVar

from tpukit.cluster.spec import ClusterSpec
from tpukit.core import paths, retry
from tpukit.core.clock import Clock
from tpukit.core.errors import TpukitError

SECONDS = 600.0
_SIGNS = re.compile(
    r"SERVICE_DISABLED|has not been used in project|accessNotConfigured|IAM_PERMISSION_DENIED|\b403\b|PERMISSION_DENIED"
    r"|does not have \S+ access|does not have access to service account|service account \S+ does not exist"
    r"|identity pool does not exist",
    re.I,
)
T = TypeVar("T")


def note(spec: ClusterSpec, clock: Clock) -> None:
    """Record the time of a change to this project's APIs or roles."""
    file = _file(spec)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file.write_text(json.dumps({"at": clock.now()}))


def patiently(attempt: Callable[[], T], spec: ClusterSpec, clock: Clock, say: Callable[[str], None]) -> T:
    """Call `attempt`. Shortly after `note`, retry errors that propagation delays cause."""

    def again(error: TpukitError, pause: float) -> bool:
        left = _noted(spec) + SECONDS - clock.now()
        if not _SIGNS.search(str(error)) or not pause <= left <= SECONDS:
            return False
        why = next((line.strip() for line in str(error).splitlines() if _SIGNS.search(line)), "")
        say(f"The changes of bootstrap have not taken effect everywhere yet ({why[:160]}). Retrying in {pause:.0f} s.")
        return True

    return retry.call(attempt, (retry.growing(tries, 5.0, 20.0) for tries in count(1)), clock.sleep, again)


def _noted(spec: ClusterSpec) -> float:
    with suppress(OSError, ValueError, KeyError, TypeError):
        return float(json.loads(_file(spec).read_text())["at"])
    return float("-inf")


def _file(spec: ClusterSpec) -> Path:
    return paths.data() / "clusters" / spec.project_id.replace(":", "_") / "bootstrap.json"
