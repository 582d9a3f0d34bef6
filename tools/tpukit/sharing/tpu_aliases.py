"""Aliases of TPU VMs, shared by all users of a store."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from tpukit.core.errors import Conflict, Invalid, NotFound, Problem
from tpukit.kernel.store import Kind, Store, change, everything
from tpukit.sharing import tpu_names, users


class TpuAlias(msgspec.Struct, frozen=True):
    name: str
    tpu: str
    created: float


ALIASES: Kind[TpuAlias] = Kind("tpu-aliases", TpuAlias, state="name", order="created")
msgspec.json.Decoder(TpuAlias)


def add(store: Store, name: str, tpu: str, reserved: Collection[str], now: float) -> TpuAlias:
    """Add an alias, or point an existing one to another TPU."""
    tpu_names.check_alias(name, reserved, tpu=True)
    users.taken(store, name)
    if not tpu_names.is_node(tpu):
        hint = "write its full name, such as kmh-tpuvm-v2-32-1"
        raise Invalid(Problem("TPU", f"{tpu!r} is not the name of a TPU", hint))
    alias = TpuAlias(name, tpu, now)
    try:
        return store.create(ALIASES, name, alias).value
    except Conflict:
        return change(store, ALIASES, name, lambda old: alias).value


def delete(store: Store, name: str) -> None:
    try:
        store.delete(ALIASES, store.get(ALIASES, name))
    except NotFound as error:
        raise NotFound(f"no TPU has the alias {name}", hint="`tpu alias list --tpu` lists all") from error


def listed(store: Store) -> dict[str, str]:
    return {entry.value.name: entry.value.tpu for entry in everything(store, ALIASES)}
