"""The inventory: the TPU VMs that a group shares, and their holders. Their states come from Google.

A TPU is held while a job on it is active. An ended job holds nothing, even if the TPU was not released.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from tpukit import catalogue
from tpukit.core.errors import Conflict, Invalid, NoCapacity, NotFound, Problem
from tpukit.google.tpu_vm import Node
from tpukit.kernel.store import Event, Kind, Store, change, everything
from tpukit.sharing import tpu_names

GONE = "NOT_FOUND"
"""The state of a TPU that is in the inventory but does not exist at Google."""
READY = "READY"
SENDING_SECONDS = 60.0
"""Longest time between giving a TPU to a job and writing the job's record."""


class Vm(msgspec.Struct, frozen=True):
    name: str
    zone: str
    type: str
    created: float
    spot: bool = False
    user: str = ""  # last user
    job: str = ""  # id of the job that holds or held it
    window: str = ""  # window of that job: unlike the job's id, fixed from the start of the submission
    notes: str = ""
    since: float = 0.0  # start of the user's hold
    disk: str = ""  # SERVER:/PATH of the shared disk that its hosts mount
    mount: str = ""  # mount point of the disk


VMS: Kind[Vm] = Kind("vms", Vm, state="user", order="created")
msgspec.json.Decoder(Vm)
HEADINGS = ("name", "short name", "type", "spot", "zone", "state", "user", "job", "notes", "since")


@dataclass(frozen=True, slots=True)
class Row:
    """A TPU for display."""

    vm: Vm
    state: str
    held: bool  # by an active job
    node: Node | None = None

    @property
    def user(self) -> str:
        return self.vm.user if self.held else ""

    @property
    def free(self) -> bool:
        return not self.held and self.state == READY

    @property
    def short(self) -> str:
        parsed = tpu_names.parse_tpu(self.vm.name)
        return parsed.short if parsed else self.vm.name

    @property
    def fields(self) -> tuple[str, ...]:
        vm = self.vm
        job, since = (vm.job, _utc(vm.since)) if self.held else ("", "")
        bought = "spot" if vm.spot else ""
        return vm.name, self.short, vm.type, bought, vm.zone, self.state, self.user, job, vm.notes, since


def merged(
    known: Iterable[Vm], listed: Mapping[str, Sequence[Node]], active: Collection[str], own: str = ""
) -> list[Row]:
    """Merge the store's TPU VMs with the nodes of each zone, by name.

    Nodes with the label `own` belong to jobs and are left out. TPUs in zones that were not listed are UNKNOWN.
    """
    by_name = {vm.name: vm for vm in known}
    nodes = {node.name: (zone, node) for zone, each in listed.items() for node in each}
    rows = [
        Row(
            vm,
            (nodes[vm.name][1].state or "UNKNOWN") if vm.name in nodes else (GONE if vm.zone in listed else "UNKNOWN"),
            bool(vm.job) and vm.job in active,
            nodes[vm.name][1] if vm.name in nodes else None,
        )
        for vm in by_name.values()
    ]
    rows += [
        Row(Vm(name, zone, node.accelerator, 0.0, _spot(node)), node.state or "UNKNOWN", held=False, node=node)
        for name, (zone, node) in nodes.items()
        if name not in by_name and not (own and own in node.labels)
    ]
    return sorted(rows, key=lambda row: _natural(row.vm.name))


def fits(pattern: str, type_: str) -> bool:
    """Match a TPU type: `v4-32` is a type, `v5e` a generation, `v34` two of them, `v*` all."""
    generation = type_.partition("-")[0]
    if pattern in ("v*", "*", "all"):
        return True
    if "-" in pattern or re.fullmatch(r"v\d+", pattern) is None:
        return pattern in (type_, generation)
    number = re.match(r"v(\d)", generation)
    return number is not None and number[1] in pattern[1:]


def matching(rows: Iterable[Row], patterns: Sequence[str], *, spot: bool = False, on_demand: bool = False) -> list[Row]:
    return [
        row
        for row in rows
        if (not patterns or any(fits(pattern, row.vm.type) for pattern in patterns))
        and (row.vm.spot or not spot)
        and (not row.vm.spot or not on_demand)
    ]


def check_patterns(patterns: Sequence[str], rows: Iterable[Row]) -> None:
    """Raise Invalid for patterns that match no known TPU type, even one that the inventory lacks now."""
    types = {row.vm.type for row in rows} | {one.name for one in catalogue.slices()}
    types |= {alias for one in catalogue.slices() for alias in one.spellings}
    for pattern in patterns:
        if not any(fits(pattern, type_) for type_ in types):
            hint = "write a type such as v4-32, a generation such as v5e, several as v34, or v* for all"
            raise Invalid(Problem("TYPES", f"no TPU is of type {pattern}", hint))


def choose(rows: Iterable[Row], type_: str) -> Row:
    """Return the free TPU of this type that was used least recently."""
    meant = [row for row in rows if row.vm.type == type_]
    free = [row for row in meant if row.free]
    if not free:
        busy = (
            ", ".join(f"{row.vm.name} {row.user or row.state}" for row in meant)
            or "the inventory has none of this type"
        )
        raise NoCapacity(
            f"no {type_} is free: {busy}", hint=f"`tpu find {type_}` lists them; `tpu vm apply NAME` creates one"
        )
    return min(free, key=lambda row: (row.vm.since, _natural(row.vm.name)))


def resolve(word: str, aliases: Mapping[str, str], known: Collection[str]) -> str:
    """Return the full name of a TPU, given an alias, the full name, or the name without the group's prefix."""
    if word in aliases:
        return aliases[word]
    if word in known:
        return word
    short = [name for name in known if (parsed := tpu_names.parse_tpu(name)) and parsed.short == word]
    if len(short) > 1:
        raise Conflict(f"{word} could be {', '.join(sorted(short))}", hint="write its full name")
    return short[0] if short else word


def listed(store: Store) -> list[Vm]:
    return [entry.value for entry in everything(store, VMS)]


def get(store: Store, name: str) -> Vm | None:
    try:
        return store.get(VMS, name).value
    except NotFound:
        return None


def register(store: Store, vm: Vm, now: float) -> Vm:
    """Add a TPU VM to the inventory, or update its zone and type."""
    known = get(store, vm.name)
    if known is None:
        try:
            return store.create(VMS, vm.name, vm, events=[Event(now, "added to the inventory")]).value
        except Conflict:  # another process was faster
            known = store.get(VMS, vm.name).value
    if (known.zone, known.type, known.spot) == (vm.zone, vm.type, vm.spot):
        return known
    moved = change(
        store, VMS, vm.name, lambda old: replace(old, zone=vm.zone, type=vm.type, spot=vm.spot), note="changed", at=now
    )
    return moved.value


def hold(
    store: Store,
    name: str,
    user: str,
    job: str,
    now: float,
    active: Callable[[str], bool | None],
    *,
    window: str = "",
    instead_of: str = "",
) -> Vm:
    """Give a TPU VM to a job. Raise Conflict while an active job holds it; of two concurrent calls one succeeds.

    `instead_of` is the job from which the user agreed to take it: no other job loses it. `active` returns None for a
    job without a record: within SENDING_SECONDS it is still being submitted; after that its submission has died.
    """

    def given(vm: Vm) -> Vm:
        own = vm.window == window if vm.window else vm.job == job
        lives = active(vm.job) if vm.job and not own else False
        lives = now - vm.since < SENDING_SECONDS if lives is None else lives
        if lives and vm.job != instead_of:
            raise Conflict(f"{name} is held by {vm.user} for {vm.job}", hint="use another TPU, or stop that job first")
        return replace(vm, user=user, job=job, window=window, since=now)

    return change(store, VMS, name, given, note=f"held by {user} for {job}", at=now).value


def release(
    store: Store,
    name: str,
    now: float,
    *,
    user: str = "",
    active: Callable[[str], bool | None] = lambda job: True,
) -> Vm:
    """End the hold on a TPU VM. With `user`, raise Conflict while an active job of another user holds it."""

    def freed(vm: Vm) -> Vm:
        if user and vm.user not in ("", user) and active(vm.job):
            raise Conflict(f"{name} is held by {vm.user}, not by {user}", hint=f"`tpu vm find {vm.type}` shows all")
        return replace(vm, user="", job="", window="", notes="", since=0.0)

    if get(store, name) is None:
        raise NotFound(f"{name} is not in the inventory", hint="`tpu vm list` shows the inventory")
    return change(store, VMS, name, freed, note="released", at=now).value


def note(store: Store, name: str, text: str, now: float) -> Vm:
    return change(store, VMS, name, lambda vm: replace(vm, notes=text), note=f"notes: {text}", at=now).value


def set_disk(store: Store, name: str, disk: str, mount: str, now: float) -> Vm:
    text = f"{disk} is mounted at {mount}"
    return change(store, VMS, name, lambda vm: replace(vm, disk=disk, mount=mount), note=text, at=now).value


def forget(store: Store, name: str) -> None:
    """Remove a TPU VM from the inventory, if present."""
    try:
        store.delete(VMS, store.get(VMS, name))
    except NotFound:
        return


def to_csv(rows: Iterable[Row]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEADINGS)
    # A spreadsheet would treat a field that starts like this as a formula.
    writer.writerows([f"'{field}" if field[:1] in "=+-@" and field else field for field in row.fields] for row in rows)
    return out.getvalue()


def _spot(node: Node) -> bool:
    """Return True for a spot node. A node created by a queued resource may not report it, so its name counts too."""
    parsed = tpu_names.parse_tpu(node.name)
    return node.spot or bool(parsed and parsed.spot)


def _utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key that puts v2-32-9 before v2-32-10."""
    return tuple((int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name))
