"""Ends an attempt whose driver never comes back, and releases its hardware.

Sent to a host beside the supervisor: standard library only. One process for each attempt watches the time at which a
driver last asked for the attempt (`asked` in its folder). Seconds count on a clock that stands still while the machine
sleeps, and begin at 0 with each question. After `seconds` of unattended.json without one, the attempt is stopped as a
driver would stop it, and the TPU VM or queued resource in `hardware` is deleted with the token of the machine's own
service account, if that may do so and the object still carries the labels of this attempt.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FILE, ASKED = "unattended.json", "asked"
METADATA_HOST = "GCE_METADATA_HOST"
LOOK_SECONDS = 60.0
LEAVE_SECONDS = 120.0
"""How long an attempt may take to leave, beyond its grace, before its hardware goes."""
_TOKEN = "/computeMetadata/v1/instance/service-accounts/default/token"  # noqa: S105 (an address)


def begin(folder: str, wanted: dict[str, Any]) -> None:
    """Watch an attempt from now on. Twice is once."""
    attempt = Path(folder)
    if (attempt / FILE).exists():
        return
    (attempt / ASKED).touch()
    new = attempt / f"{FILE}.{os.getpid()}"
    new.write_text(json.dumps(wanted), encoding="utf-8")
    new.replace(attempt / FILE)
    env = {name: value for name, value in os.environ.items() if name == METADATA_HOST}
    with (attempt / "unattended.log").open("ab") as log:
        argv = [sys.executable, "-I", "-S", str(Path(__file__).resolve()), folder]
        subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True)


def main(folder: Path) -> int:
    wanted = json.loads((folder / FILE).read_text(encoding="utf-8"))
    with (folder / "unattended.lock").open("w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0
        if watch(folder, wanted):
            stop(folder, wanted)
            while wanted["hardware"] and not superseded(folder, wanted) and not release(wanted["hardware"]):
                time.sleep(LOOK_SECONDS)
    return 0


def watch(folder: Path, wanted: dict[str, Any]) -> bool:
    """Wait until no driver has asked for long enough; False where there is nothing to watch any more."""
    last, since = asked(folder), time.monotonic()
    while True:
        if not (folder / FILE).exists() or superseded(folder, wanted):
            return False
        if not wanted["hardware"] and (folder / "end").exists() and over(folder):
            return False
        if (now := asked(folder)) != last:
            last, since = now, time.monotonic()
        rest = wanted["seconds"] - (time.monotonic() - since)
        if rest <= 0:
            return True
        time.sleep(min(LOOK_SECONDS, max(0.1, rest)))


def asked(folder: Path) -> float:
    try:
        return (folder / ASKED).stat().st_mtime
    except OSError:
        return 0.0


def superseded(folder: Path, wanted: dict[str, Any]) -> bool:
    """A later attempt of the job has a watch of its own."""
    with suppress(OSError, ValueError):
        latest = json.loads((folder.parent / "latest").read_text(encoding="utf-8"))
        return int(latest["attempt"]) > int(wanted["attempt"])
    return False


def over(folder: Path) -> bool:
    try:
        with (folder / "lock").open(encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def stop(folder: Path, wanted: dict[str, Any]) -> None:
    request = {"do": "stop", "job": wanted["job"], "attempt": wanted["attempt"], "grace": wanted["grace"]}
    supervisor = [sys.executable, "-I", "-S", str(Path(__file__).with_name("supervisor.py"))]
    subprocess.run(supervisor, input=json.dumps(request).encode() + b"\n", stdout=subprocess.DEVNULL, check=False)
    due = time.monotonic() + wanted["grace"] + LEAVE_SECONDS
    while not over(folder) and time.monotonic() < due:
        time.sleep(1.0)


def release(hardware: dict[str, Any]) -> bool:
    """Delete what the attempt was given; whether it is gone or another's by now."""
    try:
        server = os.environ.get(METADATA_HOST, "metadata.google.internal")
        token = _ask("GET", f"http://{server}{_TOKEN}", {"Metadata-Flavor": "Google"})["access_token"]
        signed = {"Authorization": f"Bearer {token}"}
        found = _ask("GET", hardware["url"], signed)
        specs = (found.get("tpu") or {}).get("nodeSpec") or [{"node": found}]
        labels = specs[0]["node"].get("labels") or {}
        if any(labels.get(name) != value for name, value in hardware["labels"].items()):
            return True
        _ask("DELETE", hardware["url"] + ("?force=true" if "/queuedResources/" in hardware["url"] else ""), signed)
    except urllib.error.HTTPError as error:
        return error.code == 404
    except (OSError, ValueError, KeyError):
        return False
    return True


def _ask(method: str, url: str, headers: dict[str, str]) -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, method=method, headers=headers), timeout=60) as answer:  # noqa: S310
        return json.loads(answer.read() or b"{}")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
