"""A kernel use that counts to three, and the setup to run a kernel over it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from tpukit.core.errors import Invalid, TpukitError
from tpukit.kernel import Decision, Hooks, Kernel, Leases
from tpukit.kernel.store import Entry, Holder, Kind
from tpukit.kernel.store.process import this_process
from tpukit.kernel.store.sqlite import SqliteStore


class Thing(msgspec.Struct, frozen=True):
    state: str = "on"
    created: float = 0.0
    group: str = "a"
    count: int = 0
    message: str = ""


THINGS: Kind[Thing] = Kind("things", Thing, state="state", order="created")


class Counting:
    """A use that counts to three and ends. Tests inject events with its hooks."""

    kind = THINGS
    states: Sequence[str] = ("on",)

    def __init__(self) -> None:
        self.observed: list[tuple[str, list[str]]] = []
        self.acted: list[str] = []
        self.on_observe: Callable[[str], None] = lambda group: None
        self.on_act: Callable[[str], None] = lambda key: None
        self.on_decide: Callable[[Thing], None] = lambda thing: None

    def select(self, entries: Sequence[Entry[Thing]]) -> Sequence[Entry[Thing]]:
        return entries

    def group(self, thing: Thing) -> str | None:
        return thing.group or None

    def observe(self, group: str, entries: Sequence[Entry[Thing]]) -> Mapping[str, str | TpukitError]:
        self.observed.append((group, [entry.key for entry in entries]))
        self.on_observe(group)
        return {entry.key: entry.key for entry in entries}

    def decide(self, thing: Thing, seen: str | None, now: float) -> Decision[Thing]:
        self.on_decide(thing)
        counted = replace(thing, count=thing.count + 1, message="", state="off" if thing.count >= 2 else "on")
        return Decision(counted, act=seen, note=f"counted to {counted.count}")

    def act(self, thing: Thing, act: str) -> None:
        self.on_act(act)
        self.acted.append(act)

    def failed(self, thing: Thing, act: str, error: TpukitError, now: float) -> Decision[Thing] | None:
        return Decision(replace(thing, state="off", message=str(error))) if isinstance(error, Invalid) else None

    def troubled(self, thing: Thing, text: str) -> Thing:
        return replace(thing, message=text)


class Bench:
    def __init__(self, folder: Path, clock: Any) -> None:
        self.clock = clock
        self.store = SqliteStore(folder / "store.db", now=clock.now)
        self.use = Counting()
        self.complaints: list[tuple[str, str]] = []

    def kernel(self, workers: int = 0, holder: Holder | None = None, hooks: Hooks | None = None) -> Kernel[Thing, str]:
        leases = Leases(self.store, holder or this_process(), self.clock)
        return Kernel(
            self.store,
            self.use,
            leases,
            self.clock,
            workers=workers,
            complain=lambda name, text: self.complaints.append((name, text)),
            hooks=hooks,
            seed=1,
        )

    def add(self, key: str, group: str = "a", count: int = 0) -> None:
        self.store.create(THINGS, key, Thing(group=group, created=float(len(key)), count=count))

    def get(self, key: str) -> Thing:
        return self.store.get(THINGS, key).value


def run(bench: Bench, kernel: Kernel[Thing, str], rounds: int = 200) -> None:
    for _ in range(rounds):
        if not kernel.round():
            return
        bench.clock.sleep(1.0)
