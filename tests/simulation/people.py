"""Commands that a person types on a machine of the world: the real ones, with that machine's store and places.

Their `tpukit.cli.context` is a context variable, because several people type at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from simulation.machines import Machine
from tpukit.kernel.store import Holder


@dataclass(frozen=True, slots=True)
class Desk:
    machine: Machine
    store: Any
    places: Any
    holder: Holder


_desk: ContextVar[Desk] = ContextVar("desk")


class _Clock:
    """The clock of the machine at which the command was typed."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_desk.get().machine.clock, name)


@contextmanager
def at(machine: Machine, store: Any, places: Any, holder: Holder | None = None) -> Iterator[None]:
    """Run the block as a command at `machine`. `holder` is that of the process, unless it is a new one."""
    token = _desk.set(Desk(machine, store, places, holder or Holder(f"{machine.name}/typed")))
    try:
        yield
    finally:
        _desk.reset(token)


def prepare(change: Callable[[Any, str, Any], None]) -> None:
    """Make commands use the context set by `at`. `change` sets an attribute until the simulator is closed."""
    from tpukit.cli import context
    from tpukit.jobs.spec import settings
    from tpukit.kernel.store import home

    change(context, "store", lambda: _desk.get().store)
    change(context, "places", lambda: _desk.get().places)
    change(context, "holder", lambda: _desk.get().holder)
    change(context, "owner", lambda: "ada")
    change(context, "CLOCK", _Clock())
    change(settings, "store", lambda: _desk.get().store.address)
    change(home, "open_store", _open)


def _open(setting: str, folder: Any, *, left: bool = False) -> Any:
    from simulation.records import StoreOf

    desk = _desk.get()
    world = desk.machine.world
    if setting == desk.store.address:
        return desk.store
    return StoreOf(desk.machine, world.store.over(world.home.of(setting)))
