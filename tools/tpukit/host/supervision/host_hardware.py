"""Hardware that ends by itself when no driver returns.

This file is also the start-up script of the TPU VMs that tpukit creates, so it imports nothing of tpukit. It covers the
time without a watch (see host_unattended.py): a TPU VM whose driver ended before it started a program, and a reboot.
Its metadata has the limit and what to delete, in `tpukit-unattended`: {"seconds": 86400, "hardware": [{"url": "...",
"labels": {...}}]}. Only a change of a sign of a driver counts: of the mark in the metadata, or of the time of
`.tpukit/asked` in a home, which the supervisor touches at each request.

The supervisor imports it for each request, so what only its own work needs is imported in functions: it takes 50 ms.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

METADATA_HOST = "GCE_METADATA_HOST"
RENEWED = "tpukit-renewed"
"""Key of a driver's mark in the metadata of a TPU VM."""
LIMIT = "tpukit-unattended"
"""Key of the limit in the metadata of a TPU VM."""
ASKED = "asked"
"""File in the supervisor's folder; its time is that of the last request."""
LOOK_SECONDS = 60.0
_TOKEN = "service-accounts/default/token"  # noqa: S105 (an address)


def main() -> None:
    """Delete the hardware of `LIMIT` once no driver has shown a sign for as long as it says."""
    if os.fork():
        return  # the boot goes on without waiting
    os.setsid()
    while not (text := attribute(LIMIT)):  # the metadata server may not respond yet
        time.sleep(LOOK_SECONDS)
    limit = json.loads(text)
    last, since = signs(("", 0.0)), time.monotonic()
    every = min(LOOK_SECONDS, limit["seconds"] / 10)
    while limit["hardware"]:
        time.sleep(every)
        if (now := signs(last)) != last:
            last, since = now, time.monotonic()
        elif time.monotonic() - since >= limit["seconds"]:
            limit["hardware"] = [one for one in limit["hardware"] if not release(one)]


def signs(known: tuple[str, float]) -> tuple[str, float]:
    """Return a driver's last mark, and the time of its last request. `known` is used where nothing can be read."""
    return mark(known[0]), max([known[1], *map(_modified, _asked())])


def _asked() -> set[Path]:
    from pathlib import Path

    homes = {Path("/home"), Path(os.environ.get("HOME") or "/root").parent}
    return {file for home in homes for file in home.glob(f"*/.tpukit/{ASKED}")}


def _modified(file: Path) -> float:
    with suppress(OSError):
        return file.stat().st_mtime
    return 0.0


def mark(known: str) -> str:
    """Return the mark of a driver in the metadata of this TPU VM; `known` if there is none, or no response."""
    return attribute(RENEWED) or known


def attribute(name: str) -> str:
    """Return an attribute of this TPU VM; empty if there is none, or no response."""
    import urllib.request

    with suppress(OSError, ValueError):
        request = urllib.request.Request(_metadata(f"attributes/{name}"), headers={"Metadata-Flavor": "Google"})  # noqa: S310
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return str(answer.read(1 << 16).decode())
    return ""


def release(hardware: dict[str, Any]) -> bool:
    """Delete hardware; return whether it is deleted, or belongs to another attempt by now."""
    import urllib.error

    try:
        token = _ask("GET", _metadata(_TOKEN), {"Metadata-Flavor": "Google"})["access_token"]
        signed = {"Authorization": f"Bearer {token}"}
        found = _ask("GET", hardware["url"], signed)
        specs = (found.get("tpu") or {}).get("nodeSpec") or [{"node": found}]
        labels = [one["node"].get("labels") or {} for one in specs]
        if any(each.get(name) != value for each in labels for name, value in hardware["labels"].items()):
            return True
        _ask("DELETE", hardware["url"] + ("?force=true" if "/queuedResources/" in hardware["url"] else ""), signed)
    except urllib.error.HTTPError as error:
        error.close()
        sys.stderr.write(f"{hardware['url']}: {error}\n")
        return error.code == 404
    except (OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"{hardware['url']}: {error!r}\n")
        return False
    return True


def _metadata(name: str) -> str:
    return f"http://{os.environ.get(METADATA_HOST, 'metadata.google.internal')}/computeMetadata/v1/instance/{name}"


def _ask(method: str, url: str, headers: dict[str, str]) -> Any:
    import urllib.request

    # The metadata server must be reached without a proxy: neither the watch nor a start-up script has a proxy variable.
    with urllib.request.urlopen(urllib.request.Request(url, method=method, headers=headers), timeout=60) as answer:  # noqa: S310
        return json.loads(answer.read() or b"{}")


if __name__ == "__main__":
    main()
