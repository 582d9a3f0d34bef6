"""Ends an attempt whose driver never comes back, and releases its hardware.

Sent to a host beside the supervisor: standard library only. One process for each attempt watches the time at which a
driver last asked for the attempt. Seconds count on a clock that stands still while the machine sleeps, and begin at 0
with each question. After `seconds` without one, the watch stops the attempt as a driver would, and deletes the TPU VM
or queued resource in `hardware` with the token of the machine's own service account, if that account may do so and the
object still carries the labels of this attempt.

The watch ends with what it watches: when the attempt is over and holds no hardware, when a later attempt began, when
its folder is removed. The supervisor starts it with the attempt, and whenever a driver asks and the watch is missing:
after a reboot it counts from the first question on.

Files, in `unattended` in the folder of the attempt:

    wanted     limit, grace and hardware
    asked      its time is that of the last question
    lock       held by the watch
    done       the watch has nothing left to do
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

NAME = "unattended"
METADATA_HOST = "GCE_METADATA_HOST"
LOOK_SECONDS = 5.0
RETRY_SECONDS = 60.0
"""Between two requests to delete hardware."""
LEAVE_SECONDS = 120.0
"""How long an attempt may take to leave, beyond its grace, before its hardware is deleted."""
_TOKEN = "/computeMetadata/v1/instance/service-accounts/default/token"  # noqa: S105 (an address)


def begin(folder: str, wanted: dict[str, Any], mark: str) -> None:
    """Watch an attempt from now on. Twice is once."""
    own = Path(folder, NAME)
    own.mkdir(mode=0o700, exist_ok=True)
    if not (own / "wanted").exists():
        (own / "asked").touch()
        new = own / f"wanted.{os.getpid()}"
        new.write_text(json.dumps(wanted), encoding="utf-8")
        new.replace(own / "wanted")
    ensure(folder, mark)


def ensure(folder: str, mark: str) -> None:
    """Start the watch of an attempt where it is missing."""
    own = Path(folder, NAME)
    if not (own / "wanted").exists() or (own / "done").exists() or not is_free(own / "lock"):
        return
    env = {name: value for name, value in os.environ.items() if name == METADATA_HOST}
    with (own / "log").open("ab") as log:
        argv = [sys.executable, "-I", "-S", str(Path(__file__).resolve()), folder]
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        subprocess.Popen(argv, **streams, env={**env, mark: str(own)}, cwd="/", start_new_session=True)


def main(folder: Path) -> int:
    own = folder / NAME
    wanted = json.loads((own / "wanted").read_text(encoding="utf-8"))
    with (own / "lock").open("w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0
        while (last := watch(folder, wanted)) is not None:
            stop(folder, wanted)
            if not wanted["hardware"] or released(folder, wanted, last):
                break
        with suppress(OSError):  # its folder was removed
            (own / "done").touch()
    return 0


def watch(folder: Path, wanted: dict[str, Any]) -> float | None:
    """Wait until no driver has asked for long enough, and return when one last did; None: nothing is left to watch."""
    last, since = asked(folder), time.monotonic()
    while needed(folder, wanted):
        if (now := asked(folder)) != last:
            last, since = now, time.monotonic()
        rest = wanted["seconds"] - (time.monotonic() - since)
        if rest <= 0:
            return last
        time.sleep(min(LOOK_SECONDS, max(0.1, rest)))
    return None


def needed(folder: Path, wanted: dict[str, Any]) -> bool:
    """Whether the attempt, or hardware that it left, is still there and no later attempt has a watch of its own."""
    if not (folder / NAME / "wanted").exists() or superseded(folder, wanted):
        return False
    began = (folder / "began").exists() or (folder / "end").exists()  # read before the lock, which is taken first
    return bool(wanted["hardware"]) or not began or not is_free(folder / "lock")


def asked(folder: Path) -> float:
    try:
        return (folder / NAME / "asked").stat().st_mtime
    except OSError:
        return 0.0


def superseded(folder: Path, wanted: dict[str, Any]) -> bool:
    with suppress(OSError, ValueError):
        latest = json.loads((folder.parent / "latest").read_text(encoding="utf-8"))
        return int(latest["attempt"]) > int(wanted["attempt"])
    return False


def is_free(lock: Path) -> bool:
    try:
        with lock.open(encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
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
    while not is_free(folder / "lock") and time.monotonic() < due:
        time.sleep(1.0)


def released(folder: Path, wanted: dict[str, Any], last: float) -> bool:
    """Delete the hardware, with retries; False once a driver has asked since `last`, or nothing is left to watch."""
    while asked(folder) == last and needed(folder, wanted):
        if release(wanted["hardware"]):
            return True
        due = time.monotonic() + RETRY_SECONDS
        while asked(folder) == last and needed(folder, wanted) and time.monotonic() < due:
            time.sleep(LOOK_SECONDS)
    return False


def release(hardware: dict[str, Any]) -> bool:
    """Delete what the attempt was given; return whether it is deleted, or belongs to another by now."""
    try:
        server = os.environ.get(METADATA_HOST, "metadata.google.internal")
        token = _ask("GET", f"http://{server}{_TOKEN}", {"Metadata-Flavor": "Google"})["access_token"]
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


def _ask(method: str, url: str, headers: dict[str, str]) -> Any:
    # Without a proxy, as the metadata server wants it: no variable of one is in the watch's environment.
    with urllib.request.urlopen(urllib.request.Request(url, method=method, headers=headers), timeout=60) as answer:  # noqa: S310
        return json.loads(answer.read() or b"{}")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
