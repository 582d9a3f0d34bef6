"""Start times and run durations of queued resources.

    queueingPolicy   not before a time, not after one, or an interval; times, or durations from the request on
    runDuration      alpha only: a duration or an end time; DWS flex-start lends TPUs for seven days at most

https://cloud.google.com/tpu/docs/queued-resources, https://cloud.google.com/tpu/docs/request-using-flex-start

The refusals follow from the meaning of the fields. The error texts are guesses, except for two fields that exclude each
other: Google's gateway has that text for all APIs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from tpubox.google.wire.refusal import Refused
from tpubox.google.wire.sources import GUESS
from tpubox.google.wire.state import Doc

FLEX_START = "FLEX_START"
FLEX_START_SECONDS = 7 * 86400.0
_CONSTRAINTS = ("validUntilDuration", "validUntilTime", "validAfterDuration", "validAfterTime", "validInterval")
_DURATION = re.compile(r"-?\d{1,12}(\.\d{1,9})?s")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")


class Window(NamedTuple):
    """Time window for the creation of resources: from `after` on, and before `until`."""

    after: float
    until: float | None


def check(body: Doc, now: float) -> None:
    """Refuse invalid times."""
    policy, run = _set(body, "queueingPolicy"), _set(body, "runDuration")
    one_of("queueingPolicy", "start_timing_constraints", policy, _CONSTRAINTS)
    if "minDuration" in (guaranteed := _set(body, "guaranteed")):
        _seconds("guaranteed.minDuration", guaranteed["minDuration"])
    window = _window(policy, now)
    if window.until is not None and window.until <= now:
        raise GUESS.invalid("Invalid queueing policy: the time until which resources may be created is in the past.")
    if window.until is not None and window.until <= window.after:
        raise GUESS.invalid("Invalid queueing policy: the interval in which resources may be created is empty.")
    _check_run(run, body.get("provisioningModel"), window, now)


def _check_run(run: Doc, model: object, window: Window, now: float) -> None:
    one_of("runDuration", "run_duration", run, ("maxRunDuration", "terminationTime"))  # a guess
    if "terminationTime" in run and _at("runDuration.terminationTime", run["terminationTime"]) <= max(
        now, window.after
    ):
        raise GUESS.invalid("Invalid run duration: the termination time is before resources may be created.")
    if "maxRunDuration" not in run:
        return
    seconds = _seconds("runDuration.maxRunDuration", run["maxRunDuration"])
    if not seconds:
        raise GUESS.invalid("Invalid run duration: it must be longer than nothing.")
    if model == FLEX_START and seconds > FLEX_START_SECONDS:
        raise GUESS.invalid("Invalid run duration: with FLEX_START it must not be longer than 7 days.")


def window_of(body: Doc, now: float) -> Window:
    """Return the creation window. Durations start now, and the end of the run time also closes the window."""
    window = _window(_set(body, "queueingPolicy"), now)
    end = _set(body, "runDuration").get("terminationTime")
    ends = [at for at in (window.until, _at("", end) if end else None) if at is not None]
    return Window(window.after, min(ends, default=None))


def end_of_run(body: Doc, began: float) -> float | None:
    """Return the end time of resources that became ready at `began`. Counting from then on is a guess."""
    run = _set(body, "runDuration")
    if "terminationTime" in run:
        return _at("", run["terminationTime"])
    if "maxRunDuration" in run:
        return began + _seconds("", run["maxRunDuration"])
    return began + FLEX_START_SECONDS if body.get("provisioningModel") == FLEX_START else None


def one_of(where: str, group: str, sent: Doc, names: Iterable[str]) -> None:
    """Refuse two fields that exclude each other."""
    found = [name for name in sent if name in names]
    if len(found) > 1:
        place = f" at '{where}'" if where else ""
        raise GUESS.invalid(
            f"Invalid value{place} (oneof), oneof field '{group}' is already set. Cannot set '{found[1]}'"
        )


def _window(policy: Doc, now: float) -> Window:
    after, until = now, None
    if "validAfterDuration" in policy:
        after = now + _seconds("queueingPolicy.validAfterDuration", policy["validAfterDuration"])
    if "validAfterTime" in policy:
        after = _at("queueingPolicy.validAfterTime", policy["validAfterTime"])
    if "validUntilDuration" in policy:
        until = now + _seconds("queueingPolicy.validUntilDuration", policy["validUntilDuration"])
    if "validUntilTime" in policy:
        until = _at("queueingPolicy.validUntilTime", policy["validUntilTime"])
    interval = _set(policy, "validInterval")
    if "startTime" in interval:
        after = _at("queueingPolicy.validInterval.startTime", interval["startTime"])
    if "endTime" in interval:
        until = _at("queueingPolicy.validInterval.endTime", interval["endTime"])
    return Window(after, until)


def _set(body: Doc, name: str) -> Doc:
    return {key: value for key, value in (body.get(name) or {}).items() if value is not None}


def _seconds(where: str, text: str) -> float:
    if not _DURATION.fullmatch(text) or text.startswith("-"):
        raise _malformed(where, "Duration", text)
    return float(text.removesuffix("s"))


def _at(where: str, text: str) -> float:
    try:
        if _TIME.fullmatch(text):
            return datetime.fromisoformat(text.upper()).timestamp()
    except ValueError:
        pass
    raise _malformed(where, "Timestamp", text)


def _malformed(where: str, kind: str, text: str) -> Refused:
    return GUESS.invalid(f"Invalid value at '{where}' (type.googleapis.com/google.protobuf.{kind}), {json.dumps(text)}")
