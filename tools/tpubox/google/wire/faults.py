"""Troubles on order. A fault is data: what goes wrong, for whom, how often; the same seed gives the same run.

| kind     | what goes wrong                                                                                         |
|----------|---------------------------------------------------------------------------------------------------------|
| refuse   | requests are answered with `status`: `match` is looked for in "METHOD api/path", as for the next four;  |
|          | with `seconds`, the answer asks for such a pause (Retry-After)                                          |
| rate     | of requests, `limit` in `seconds` (60 if left out) are answered, and those above it refused             |
| lost     | requests are done, and the connection is cut before they are answered                                   |
| cut      | the connection is cut, and what was asked for is not done                                               |
| hang     | nothing is done and nothing answered for `seconds` (60 if left out), then the connection is cut         |
| slow     | operations take `seconds` longer: `match` is looked for in "TYPE name-of-the-thing", as for the next two|
| fail     | operations end with the error `message`, and what they were to make is not there                        |
| broken   | pools come up as RUNNING_WITH_ERROR (or as `message` says), and their operations end well               |
| stockout | no chips to be had: `match` is looked for in "ZONE name-of-the-thing", as for the next two; it is found |
|          | out at the end of the operation, which `slow` makes as late as one likes                                |
| quota    | the quota for chips is used up, and who asks for them is refused                                        |
| gce-quota| the same, found out when the machines are made: the operation fails with GCE_QUOTA_EXCEEDED             |
| partial  | lists of log entries are answered with none, and a token to go on with: `match` is for the filter       |
| preempt  | TPU VMs are taken back `seconds` after they were ready: `match` is looked for in their names            |
| repair, maintenance, unhealthy, crash, freeze, unreachable | happen to TPU VMs in the same way, once to each       |
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
"""Seconds, of a connection that hangs and of a rate, where a fault does not say."""
VM_KINDS = ("repair", "maintenance", "unhealthy", "crash", "freeze", "unreachable")
KINDS = (
    *("refuse", "rate", "lost", "cut", "hang", "partial"),  # strike requests
    *("slow", "fail", "broken", "stockout", "quota", "gce-quota", "preempt", *VM_KINDS),
)


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    match: str = ""  # regular expression; empty matches everything
    times: int = 0  # how often it strikes; 0: again and again
    chance: float = 1.0  # of striking each time it could
    status: int = 503
    message: str = ""
    seconds: float = 0.0
    limit: int = 0
    name: str = ""  # given when it is set, if left out

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
    """The table of faults. It is kept with the rest, so that a restart goes on where a kill ended it.

    What struck is counted here first and kept by `save`: a request that a fault makes fail is undone, its count is not.
    """

    def __init__(self, state: State, seed: int = 0) -> None:
        self._state = state
        self._seed = seed
        self._lock = threading.RLock()
        self._table = state.all("fault")
        self._changed: set[str] = set()
        self._answered: defaultdict[str, deque[float]] = defaultdict(deque)  # when, by rate

    def set(self, fault: Fault) -> Fault:
        """Adds a fault, or replaces the one of the same name."""
        named = fault if fault.name else replace(fault, name=f"{fault.kind}-{self._state.next()}")
        with self._lock:
            self._table[named.name] = {**asdict(named), "met": 0, "struck": 0}
            self._answered.pop(named.name, None)
            self._changed.add(named.name)
        self.save()
        return named

    def clear(self, name: str = "") -> None:
        """Takes one fault away, or all of them."""
        with self._lock:
            for each in [name] if name else list(self._table):
                self._table.pop(each, None)
                self._changed.add(each)
        self.save()

    def table(self) -> list[dict[str, Any]]:
        """The faults, each with how often it was `met` and how often it `struck`."""
        with self._lock:
            return [dict(doc) for _, doc in sorted(self._table.items())]

    def any(self, *kinds: str) -> bool:
        """Whether there are faults of these kinds: whoever asks for each of a thousand things asks this first."""
        with self._lock:
            return any(doc["kind"] in kinds for doc in self._table.values())

    def strike(self, kind: str, target: str, *, once: str = "", waited: float = 0.0) -> Fault | None:
        """The fault that strikes this target now, if one does.

        With `once`, whoever goes by that name has one throw, however often it is asked for; `waited` is for how long
        it could have struck already.
        """
        with self._lock:
            for name, doc in sorted(self._table.items()):
                fault = _fault(doc)
                if fault.kind != kind or not re.search(fault.match, target):
                    continue
                if (fault.times and doc["struck"] >= fault.times) or (once and waited < fault.seconds):
                    continue
                met = doc["met"] + 1
                # Each meeting has its own throw, so that runs with one seed agree however the others went.
                struck = random.Random(f"{self._seed} {name} {once or met}").random() < fault.chance  # noqa: S311
                if struck or not once:
                    self._table[name] = {**doc, "met": met, "struck": doc["struck"] + struck}
                    self._changed.add(name)
                if struck:
                    return fault
        return None

    def over_rate(self, target: str, now: float) -> Fault | None:
        """The rate that one more request would exceed, if there is such a one; else it is counted."""
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
        # In this order everywhere: strikes are asked for inside of transactions.
        with self._state.transaction(), self._lock:
            for name in self._changed:
                if name in self._table:
                    self._state.put("fault", name, self._table[name])
                else:
                    self._state.delete("fault", name)
            self._changed.clear()


def _fault(doc: Mapping[str, Any]) -> Fault:
    return Fault(**{key: value for key, value in doc.items() if key not in ("met", "struck")})
