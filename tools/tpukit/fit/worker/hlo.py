"""Read the compiler's own figures from the text of a compiled program. Pure.

The text lists a loop's body once, with its repetitions beside the loop; every figure here is multiplied by them.
Transfers between slices are `send` operations to the Megascale runtime; collectives stay inside a slice.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

UNKNOWN_CYCLES = 1 << 62
"""Value from which an estimate means "not known"."""
KEPT = 12
"""Number of the largest transfers that are listed one by one."""

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*)$")
_OPERATION = re.compile(r"(?<=[ )}])([a-z][\w\-]*)\(")
_SHAPE = re.compile(r"\b(pred|[a-z]\d?[a-z]*\d+(?:e\dm\d\w*)?)\[([\d,]*)\]")
_CALLED = re.compile(r"(?:calls|to_apply|condition|branch_computations|called_computations)=\{?%?([\w.\-%, ]+)\}?")
_BODY = re.compile(r"body=%?([\w.\-]+)")
_CONDITION = re.compile(r"condition=%?([\w.\-]+)")
_BOUND = re.compile(r"= s32\[\]\S* constant\((\d+)\)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_CHANNEL = re.compile(r"channel_id=(\d+)")
_CHAIN = re.compile(r'chain_id="(\d+)"')
_RENDEZVOUS = re.compile(r'_xla_host_transfer_rendezvous="([^"]+)"')
_TRANSFER = re.compile(r'_xla_megascale_transfer_type="([^"]+)"')
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_LISTS = re.compile(r"replica_groups=\{(\{[\d,{}]*\})\}")
_IOTA = re.compile(r"replica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_COLLECTIVES = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute", "ragged-all-to-all")


def read(text: str, slices: Sequence[int]) -> dict[str, Any]:
    """Return cycles and transfers per chip. `slices` has the slice of each device, by device number."""
    bodies, entry = _computations(text)
    times = _repetitions(bodies, entry)
    cycles, once, unknown = 0.0, 0.0, 0
    transfers: dict[tuple[Any, ...], dict[str, Any]] = {}
    for name, lines in bodies.items():
        repeated = times.get(name, 0.0)
        if not repeated:
            continue
        for line in lines:
            if found := _CYCLES.search(line):
                if int(found[1]) < UNKNOWN_CYCLES:
                    cycles += int(found[1]) * repeated
                    once += int(found[1])
                else:
                    unknown += 1
            if one := _transfer(line, slices):
                key = one.pop("key") or (name, len(transfers))
                if key not in transfers or transfers[key]["times"] < repeated:
                    transfers[key] = {**one, "times": repeated, "looped": repeated > 1}
    totals: dict[str, float] = defaultdict(float)
    for one in transfers.values():
        totals["between" if one["between"] else "inside"] += one["bytes"] * one["times"]
    largest = sorted(transfers.values(), key=lambda one: -one["bytes"] * one["times"])
    return {
        "cycles": cycles,
        "loops": cycles / once if once else 1.0,
        "unknown": unknown,
        "inside": totals["inside"],
        "between": totals["between"],
        "transfers": _merged(largest)[:KEPT],
    }


def _computations(text: str) -> tuple[dict[str, list[str]], str]:
    bodies: dict[str, list[str]] = {}
    entry, current = "", ""
    for line in text.splitlines():
        if line[:1] not in (" ", "}", "") and (head := _COMPUTATION.match(line)):
            current = head[2]
            bodies[current] = []
            entry = current if head[1] else entry
        elif current and line.startswith(" "):
            bodies[current].append(line)
    return bodies, entry


def _repetitions(bodies: dict[str, list[str]], entry: str) -> dict[str, float]:
    """Return how often each computation runs; one that only describes a reduction also runs once per call."""
    times: dict[str, float] = defaultdict(float)
    calls = {name: list(_calls(lines, bodies)) for name, lines in bodies.items()}
    order: list[str] = []
    seen: set[str] = set()

    def visit(name: str) -> None:
        pending: list[tuple[str, Iterator[tuple[str, float]]]] = [(name, iter(calls[name]))]
        seen.add(name)
        while pending:
            inside, rest = pending[-1]
            following = next(rest, None)
            if following is None:
                order.append(inside)
                pending.pop()
            elif following[0] not in seen:
                seen.add(following[0])
                pending.append((following[0], iter(calls[following[0]])))

    if entry:
        visit(entry)
        times[entry] = 1.0
    for name in reversed(order):
        for called, factor in calls[name]:
            times[called] += times[name] * factor
    return times


def _calls(lines: Iterable[str], bodies: dict[str, list[str]]) -> Iterator[tuple[str, float]]:
    for line in lines:
        if body := _BODY.search(line):
            trips, condition = _TRIPS.search(line), _CONDITION.search(line)
            yield body[1], float(trips[1]) if trips else _bound(bodies.get(condition[1] if condition else "", ()))
        if "=%" in line or "={%" in line:
            for found in _CALLED.finditer(line):
                for name in found[1].replace("%", "").split(","):
                    if name.strip() in bodies:
                        yield name.strip(), 1.0


def _bound(condition: Sequence[str]) -> float:
    """Return the number that a loop counts to, if its condition is "less than a constant"."""
    bounds = [int(found[1]) for line in condition if (found := _BOUND.search(line))]
    return float(max(bounds)) if bounds and any("direction=LT" in line for line in condition) else 1.0


def _transfer(line: str, slices: Sequence[int]) -> dict[str, Any] | None:
    """Return the transfer of an instruction: bytes that leave this chip by the ring algorithm."""
    matched = _INSTRUCTION.match(line)
    if matched is None:
        return None
    rest = matched[2]
    operation = _OPERATION.search(rest)
    if operation is None:
        return None
    kind = operation[1].removesuffix("-start")
    said = _OP_NAME.search(rest)
    made = rest[: operation.start()]
    if kind == "send" and "xla_megascale_runtime" in rest:
        met, what = _RENDEZVOUS.search(rest), _TRANSFER.search(rest)
        size = _bytes(next(iter(_SHAPE.finditer(made)), None))
        key = ("send", met[1] if met else matched[1])
        return {
            "key": key,
            "kind": (what[1] if what else "send").lower().replace("_", "-"),
            "bytes": size,
            "between": True,
            "op": said[1] if said else (met[1] if met else ""),
        }
    if kind not in _COLLECTIVES:
        return None
    members, crosses = _group(rest, slices)
    shapes = list(_SHAPE.finditer(made))
    if operation[1].endswith("-start") and len(shapes) > 1:
        shapes = shapes[len(shapes) // 2 :]
    size = sum(map(_bytes, shapes))
    chain, channel = _CHAIN.search(rest), _CHANNEL.search(rest)
    return {
        "key": (kind, chain[1], channel[1], size) if chain and channel else None,
        "kind": kind,
        "bytes": size * _leaving(kind, members),
        "between": crosses,
        "op": said[1] if said else "",
    }


def _leaving(kind: str, members: int) -> float:
    """Return the share of the result that leaves a chip when `members` chips take part in a ring."""
    if members < 2:
        return 0.0 if kind != "collective-permute" else 1.0
    share = (members - 1) / members
    return {"all-reduce": 2 * share, "reduce-scatter": float(members - 1), "collective-permute": 1.0}.get(kind, share)


def _group(rest: str, slices: Sequence[int]) -> tuple[int, bool]:
    """Return how many chips take part, and whether they are on several slices."""
    if found := _LISTS.search(rest):
        groups = [[int(one) for one in part.split(",") if one] for part in found[1].strip("{}").split("},{")]
        first = groups[0] or list(range(len(slices)))
    elif iota := _IOTA.search(rest):
        first = _iota(int(iota[2]), [int(one) for one in iota[3].split(",")], iota[4])
    else:
        first = list(range(len(slices)))
    known = {slices[one] for one in first if one < len(slices)}
    return len(first), len(known) > 1


def _iota(members: int, dims: list[int], order: str | None) -> list[int]:
    """Return the first group of `[groups,members]<=[dims]T(order)`."""
    axes = [int(one) for one in order.split(",")] if order else list(range(len(dims)))
    strides = [1] * len(dims)
    for axis in range(len(dims) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * dims[axis + 1]
    group = []
    for position in range(members):
        rest, total = position, 0
        for axis in reversed(axes):
            rest, coordinate = divmod(rest, dims[axis])
            total += coordinate * strides[axis]
        group.append(total)
    return group


def _merged(transfers: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge the transfers of each operation of the program."""
    merged: dict[tuple[str, bool, str], dict[str, Any]] = {}
    for one in transfers:
        key = (one["kind"], one["between"], re.sub(r"[._]\d+", "", one["op"]) + str(one["looped"]))
        if key in merged:
            merged[key]["bytes"] += one["bytes"] * one["times"]
            merged[key]["count"] += one["times"]
        else:
            merged[key] = {**one, "bytes": one["bytes"] * one["times"], "count": one["times"]}
            del merged[key]["times"]
    return sorted(merged.values(), key=lambda one: -one["bytes"])


def _bytes(shape: re.Match[str] | None) -> float:
    if shape is None:
        return 0.0
    total = 1.0
    for size in shape[2].split(","):
        total *= int(size) if size else 1
    bits = re.search(r"\d+", shape[1])
    return total * (int(bits[0]) / 8 if bits else 1)
