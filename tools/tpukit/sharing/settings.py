"""Settings of a user of the job manager, with defaults. Pure except for the lookup of time zones."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from tpukit.core.errors import Invalid, Problem

ZONES = {"us": "America/New_York", "cn": "Asia/Shanghai"}
"""Short names in addition to those of the IANA database, https://www.iana.org/time-zones."""


class UserSettings(msgspec.Struct, frozen=True):
    monitor_after_run: bool = True  # follow a job after submission
    monitor_upd_time: int = 5  # seconds between two updates of the monitor
    monitor_length: int = 800  # characters of output to read if the state of a job is unknown
    monitor_dir: bool = True  # show working directories in the monitor
    monitor_tpu: bool = True  # show TPUs in the monitor
    monitor_verbose: bool = False  # show output of jobs with a known state in the monitor
    show_length: int = 200  # characters of output to show in the monitor
    time_zone: str = "us"  # us, cn, or a name such as Europe/Berlin
    extra_settings: dict[str, Any] = {}  # for use by scripts


MEANINGS = {
    "monitor_after_run": "follow a job after it is sent",
    "monitor_upd_time": "seconds between two updates of the monitor",
    "monitor_length": "characters of output to read when a job's state is unknown",
    "monitor_dir": "the monitor shows working directories",
    "monitor_tpu": "the monitor shows TPUs",
    "monitor_verbose": "the monitor shows output of all jobs",
    "show_length": "characters of output to show in the monitor",
    "time_zone": "us, cn, or a name such as Europe/Berlin",
    "extra_settings": "a JSON object for scripts",
}
NAMES = tuple(UserSettings.__struct_fields__)
_FLAGS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_MOST = 1_000_000


def changed(settings: UserSettings, key: str, text: str) -> UserSettings:
    """Return the settings with one changed to the user's text."""
    if key not in NAMES:
        raise Invalid(Problem(key, "this setting does not exist", f"write one of {', '.join(NAMES)}"))
    value = _value(key, getattr(UserSettings(), key), text)
    return msgspec.structs.replace(settings, **{key: value})


def zone(name: str) -> str:
    """Return the IANA name of a time zone. Raise Invalid if there is none."""
    import zoneinfo

    full = ZONES.get(name, name)
    try:
        zoneinfo.ZoneInfo(full)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        hint = "write us, cn, or a name such as Europe/Berlin"
        raise Invalid(Problem("time_zone", f"there is no time zone {name!r}", hint)) from error
    return full


def _value(key: str, default: Any, text: str) -> Any:
    if isinstance(default, bool):
        if text.lower() not in _FLAGS:
            raise Invalid(Problem(key, f"{text!r} is neither true nor false", "write True or False"))
        return _FLAGS[text.lower()]
    if isinstance(default, int):
        if not text.isdecimal() or not 0 < int(text) <= _MOST:
            raise Invalid(Problem(key, f"{text!r} is not a number from 1 to {_MOST}", f"write {default}"))
        return int(text)
    if isinstance(default, dict):
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise Invalid(Problem(key, f"{text!r} is not a JSON object", 'write {"name": "value"}'))
        return value
    zone(text)
    return text
