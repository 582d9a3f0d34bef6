"""Fault injection. A fault is data: the failure, its targets and its frequency; the same seed gives the same run.

| kind     | effect                                                                                                  |
|----------|---------------------------------------------------------------------------------------------------------|
| refuse   | requests are refused with `status`: `match` is searched in "METHOD api/path", as for the next four;     |
|          | with `seconds`, the answer requests such a pause (Retry-After)                                          |
| rate     | `limit` requests in `seconds` (default: 60) are served, and those above it refused                      |
| lost     | requests are executed, and the connection is closed before the answer                                   |
| cut      | the connection is closed, and the request is not executed                                               |
| hang     | the request is not executed, and the connection is closed after `seconds` (default: 60)                 |
| slow     | operations take `seconds` longer: `match` is searched in "TYPE resource-name", as for the next two      |
| fail     | operations end with the error `message`, and create nothing                                             |
| broken   | pools come up as RUNNING_WITH_ERROR (or as in `message`), and their operations succeed                  |
| stockout | no chips available: `match` is searched in "ZONE resource-name", as for the next two; reported at the   |
|          | end of the operation, which `slow` can delay                                                            |
| quota    | the quota for chips is used up, and requests for them are refused                                       |
| gce-quota| the same, reported when the machines are created: the operation fails with GCE_QUOTA_EXCEEDED           |
| partial  | lists of log entries are empty, with a token to continue: `match` is searched in the filter             |
| preempt  | TPU VMs are preempted `seconds` after they became ready: `match` is searched in their names             |
| repair, maintenance, unhealthy, crash, freeze, unreachable | the same for TPU VMs, once for each                   |
"""

from __future__ import annotations

import random
import re
import threading
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from tpubox.google.wire.state import State
from tpukit.core.errors import Invalid

USUAL_SECONDS = 60.0
"""Default seconds of a hanging connection and of a rate."""
VM_KINDS = ("repair", "maintenance", "unhealthy", "crash", "freeze", "unreachable")
KINDS = (
    *("refuse", "rate", "lost", "cut", "hang", "partial"),  # apply to requests
    *("slow", "fail", "broken", "stockout", "quota", "gce-quota", "preempt", *VM_KINDS),
)


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    match: str = ""  # regular expression; empty matches everything
    times: int = 0  # maximum number of strikes; 0: unlimited
    chance: float = 1.0  # probability of each strike
    status: int = 503
    message: str = ""
    seconds: float = 0.0
    limit: int = 0
    name: str = ""  # generated if empty

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise Invalid(f"there is no fault of kind {self.kind!r}", hint=f"write one of {', '.join(KINDS)}")
        if not 0 <= self.chance <= 1 or self.times < 0 or self.seconds < 0 or not 400 <= self.status <= 599:
            raise Invalid(f"{self} cannot be", hint="chance is from 0 to 1, times and seconds are not negative")
        if (self.kind == "rate") != (self.limit > 0):
            raise Invalid(f"{self} cannot be", hint="a rate, and nothing else, has a limit of one request or more")
        try:
            re.compile(self.match)
        except re.error as error:
            raise Invalid(f"match {self.match!r} is no regular expression: {error}") from error


class Faults:
    """The table of faults, stored in the state, so that a restart continues where a kill interrupted it.

    Strikes are counted in memory first and stored by `save`: a request that a fault fails is rolled back, its count is
    not.
    """

    def __init__(self, state: State, seed: int = 0) -> None:
        self._state = state
        self._seed = seed
        self._lock = threading.RLock()
        self._table = state.all("fault")
        self._changed: set[str] = set()
        self._answered: defaultdict[str, deque[float]] = defaultdict(deque)  # times of served requests, by rate

    def set(self, fault: Fault) -> Fault:
        """Add a fault, or replace the one of the same name."""
        named = fault if fault.name else replace(fault, name=f"{fault.kind}-{self._state.next()}")
        with self._lock:
            self._table[named.name] = {**asdict(named), "met": 0, "struck": 0}
            self._answered.pop(named.name, None)
            self._changed.add(named.name)
        self.save()
        return named

    def clear(self, name: str = "") -> None:
        """Delete one fault, or all of them."""
        with self._lock:
            for each in [name] if name else list(self._table):
                self._table.pop(each, None)
                self._changed.add(each)
        self.save()

    def table(self) -> list[dict[str, Any]]:
        """Return the faults, each with the numbers of times that it was `met` and that it `struck`."""
        with self._lock:
            return [dict(doc) for _, doc in sorted(self._table.items())]

    def any(self, *kinds: str) -> bool:
        """Return True if there are faults of these kinds: a cheap check before a loop over many targets."""
        with self._lock:
            return any(doc["kind"] in kinds for doc in self._table.values())

    def strike(self, kind: str, target: str, *, once: str = "", waited: float = 0.0) -> Fault | None:
        """Return the fault that strikes this target now, or None.

        With `once`, the target of that name has a single random draw, however often it is checked; `waited` is the time
        for which the fault could have struck already.
        """
        with self._lock:
            for name, doc in sorted(self._table.items()):
                fault = _fault(doc)
                if fault.kind != kind or not re.search(fault.match, target):
                    continue
                if (fault.times and doc["struck"] >= fault.times) or (once and waited < fault.seconds):
                    continue
                met = doc["met"] + 1
                # Each meeting has its own draw, so that runs with the same seed agree regardless of the others.
                struck = random.Random(f"{self._seed} {name} {once or met}").random() < fault.chance  # noqa: S311
                if struck or not once:
                    self._table[name] = {**doc, "met": met, "struck": doc["struck"] + struck}
                    self._changed.add(name)
                if struck:
                    return fault
        return None

    def over_rate(self, target: str, now: float) -> Fault | None:
        """Return the rate that one more request would exceed; otherwise count the request and return None."""
        with self._lock:
            rates = [doc for _, doc in sorted(self._table.items()) if doc["kind"] == "rate"]
            for doc in rates:
                if not re.search(doc["match"], target):
                    continue
                answered = self._answered[doc["name"]]
                while answered and answered[0] <= now - (doc["seconds"] or USUAL_SECONDS):
                    answered.popleft()
                full = len(answered) >= doc["limit"]
                self._table[doc["name"]] = {**doc, "met": doc["met"] + 1, "struck": doc["struck"] + full}
                self._changed.add(doc["name"])
                if full:
                    return _fault(doc)
                answered.append(now)
        return None

    def save(self) -> None:
        # The same lock order everywhere: strikes happen inside transactions.
        with self._state.transaction(), self._lock:
            for name in self._changed:
                if name in self._table:
                    self._state.put("fault", name, self._table[name])
                else:
                    self._state.delete("fault", name)
            self._changed.clear()


def _fault(doc: Mapping[str, Any]) -> Fault:
    return Fault(**{key: value for key, value in doc.items() if key not in ("met", "struck")})
