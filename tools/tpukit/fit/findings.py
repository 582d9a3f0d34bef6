"""Causes that stop a job or make it slow, with the line of the program and a fix to try. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpukit.core.quantities import counted
from tpukit.fit import memory
from tpukit.fit.memory import Memory

GIB = 2**30
NOTABLE = 0.05
"""Share of a chip's memory from which a finding is reported."""

_UNEVEN = re.compile(
    r"divisible|evenly|not divide|uneven|cannot be split|does not match the sharding|mismatch", re.IGNORECASE
)
_SHAPE_ERRORS = ("ValueError", "TypeError", "IndivisibleError")
_VMEM = re.compile(r"\bvmem\b|scoped[- ]memory", re.IGNORECASE)
_KERNEL = re.compile(r"Mosaic|Pallas|tpu_custom_call", re.IGNORECASE)
_HBM = re.compile(r"RESOURCE_EXHAUSTED|HbmOom|Ran out of memory", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Finding:
    """Finding about a job. `stops` means that the job cannot run as it is."""

    kind: str
    text: str
    line: str = ""
    hint: str = ""
    stops: bool = True


def of(
    answer: Mapping[str, Any], step: Mapping[str, Any] | None, memories: Sequence[Memory], slices: int
) -> list[Finding]:
    """Return the findings of a run, those that stop the job first. `memories` has one for each compiled function."""
    found: list[Finding] = []
    for record, held in zip(answer.get("programs", ()), memories, strict=True):
        found += _of_compile(record, held, answer["devices"])
        found += _of_problems(record)
    if answer.get("error"):
        found.append(_of_program(answer["error"]))
    if step is None and not found:
        hint = "call the training step in the command, or write `fit: FILE.py:FUNCTION` in the job file"
        found.append(
            Finding("no step", "the program ended before it called a jit function that computes something", "", hint)
        )
    if step is not None:
        found += _of_arguments(step, memories[list(answer["programs"]).index(step)], answer["devices"])
    if step is not None and "hlo" in step:
        found += _of_traffic(step, slices)
        if step["chips"] < answer["devices"]:
            text = f"{step['name']} runs on {step['chips']} of {answer['devices']} chips; the others are idle"
            hint = "place the batch with a sharding over all of jax.devices()"
            found.append(Finding("idle chips", text, step["line"], hint, stops=False))
    return sorted(_unique(found), key=lambda one: not one.stops)


def _of_compile(record: Mapping[str, Any], held: Memory, devices: int) -> Iterator[Finding]:
    error = record.get("error")
    text = error["text"] if error else ""
    where = (error or {}).get("line") or record["line"]
    if error and _VMEM.search(text) and not held.over > 0.5 * held.available:
        hint = "use smaller blocks in the kernel's BlockSpecs, or keep fewer of them in scratch memory"
        yield Finding(
            "vmem", f"a kernel of {record['name']} needs more VMEM than a core has: {_first(text)}", where, hint
        )
    elif (error and _HBM.search(text)) or held.over > 0:
        yield _of_memory(record, held, devices, where)
    elif error and _KERNEL.search(text):
        hint = "the kernel has to be written within what Mosaic supports; look at its block shapes and types"
        yield Finding("kernel", f"a kernel of {record['name']} does not compile: {_first(text)}", where, hint)
    elif error and _UNEVEN.search(text):
        yield Finding("uneven", f"{record['name']}: {_first(text)}", where, _UNEVEN_HINT)
    elif error:
        yield Finding("compile", f"{record['name']} does not compile: {_first(text)}", where)


_UNEVEN_HINT = "choose sizes that are multiples of the mesh axes they are split over, or another mesh"


def _of_memory(record: Mapping[str, Any], held: Memory, devices: int, where: str) -> Finding:
    parts = {"parameters": held.parameters, "optimizer": held.optimizer, "other": held.other_arguments}
    copies = [one for one in record["arguments"] if devices > 1 and one["bytes"] == one["whole"]]
    replicated = sum(one["bytes"] for one in copies)
    over = f"{record['name']} needs {_gib(held.peak)} of {_gib(held.available)} a chip, {_gib(held.over)} too much"
    if replicated > 0.5 * held.available:
        largest = memory.largest(copies, 1)[0]
        kind = "replicated " + memory.holder(largest["name"])
        text = f"{over}; every chip holds all of {largest['name'] or 'an array'} ({_gib(largest['bytes'])})"
        return Finding(
            kind, text, where, "give it a sharding over the mesh, as out_shardings of the function that makes it"
        )
    name = max(parts, key=lambda key: parts[key])
    beside = sum(one["bytes"] for one in record.get("others", ()))
    if beside > 0.5 * parts[name]:
        text = f"{over}; {_gib(beside)} are arrays that it does not take and that are on the chips in addition"
        return Finding("beside", text, where, "delete what is no longer needed, or keep it in host memory")
    if parts[name] > held.temporaries or sum(parts.values()) > held.available:
        of_name = [one for one in record["arguments"] if memory.holder(one["name"]) == name]
        text = f"{over}; most is {name}: {_gib(parts[name])}"
        for one in memory.largest(of_name, 1):
            text += f", {one['name']} alone {_gib(one['bytes'])}"
        return Finding(name, text, where, "use more chips to share it out, or an optimizer with less state")
    made = sum(one["bytes"] for one in record["results"])
    if made > 0.5 * held.temporaries and not record["work"]["model"]:
        result = memory.largest(record["results"], 1)[0]
        text = f"{over}; most is its results: {_gib(made)}, the largest is {_shape(result)}"
        return Finding("results", text, where, "give the results a sharding over the mesh, as out_shardings")
    big = record.get("largest", [])
    logits = next((one for one in big if _is_logits(one, record)), None)
    if logits and logits["bytes"] * 2 > big[0]["bytes"]:
        size = _gib(logits["bytes"])
        text = f"{over}; most is temporaries, the largest are logits, {logits['what']}: {size} each a chip"
        return Finding(
            "logits",
            text,
            logits["line"] or where,
            "compute the loss in chunks of the sequence, or split the vocabulary",
        )
    text = f"{over}; most is temporaries: {_gib(held.temporaries)}"
    if big:
        text += f", the largest is {big[0]['what']}, {_gib(big[0]['bytes'])} a chip"
        where = big[0]["line"] or where
    hint = "wrap the layers in jax.checkpoint, lower the batch size, or use more chips"
    return Finding("activations", text, where, hint)


def _shape(one: Mapping[str, Any]) -> str:
    return f"{one['dtype']}[{','.join(map(str, one['shape']))}]"


def _is_logits(one: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    """Return whether the last axis of a result is the long axis of a two-axis parameter: a vocabulary."""
    found = re.search(r"\[([\d,]+)\]", one["what"])
    axes = [int(size) for size in found[1].split(",")] if found else []
    long = [max(arg["shape"]) for arg in record["arguments"] if len(arg["shape"]) == 2 and max(arg["shape"]) > 8192]
    return len(axes) >= 2 and axes[-1] in long


def _of_arguments(record: Mapping[str, Any], held: Memory, devices: int) -> Iterator[Finding]:
    """Find state that is passed on and not donated: old and new are in memory at once."""
    results = [(tuple(one["shape"]), one["dtype"]) for one in record["results"]]
    wasted, names = 0.0, []
    for one in record["arguments"]:
        same = (tuple(one["shape"]), one["dtype"])
        if not one["donated"] and same in results and memory.holder(one["name"]) != "other":
            results.remove(same)
            wasted += one["bytes"]
            names.append(one["name"])
    if wasted > NOTABLE * held.available:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        text = f"{record['name']} does not donate {names[0]}{more}: {_gib(wasted)} a chip are held twice"
        yield Finding(
            "donation", text, record["defined"], "add donate_argnums or donate_argnames to jax.jit", stops=False
        )
    if devices > 1 and held.over <= 0:
        copies = [one for one in record["arguments"] if one["bytes"] == one["whole"]]
        replicated = sum(one["bytes"] for one in copies)
        if replicated > 0.25 * held.available:
            largest = memory.largest(copies, 1)[0]
            text = f"every chip holds all of {largest['name']} ({_gib(largest['bytes'])}), {_gib(replicated)} in all"
            yield Finding("replicated", text, record["line"], "give it a sharding over the mesh", stops=False)


def _of_problems(record: Mapping[str, Any]) -> Iterator[Finding]:
    for one in record.get("problems", ()):
        if one["kind"] == "float64":
            text = f"{record['name']} computes in float64 ({one['operation']}), which TPUs emulate many times slower"
            yield Finding("float64", text, one["line"], "remove jax_enable_x64, or cast to float32", stops=False)
        else:
            text = f"{record['name']} calls the host in each step ({one['operation']}): the chips wait for Python"
            yield Finding("host callback", text, one["line"], "return the value and use it outside of jit", stops=False)


def _of_traffic(step: Mapping[str, Any], slices: int) -> Iterator[Finding]:
    if slices < 2:
        return
    between = [one for one in step["hlo"]["transfers"] if one["between"]]
    often = [one for one in between if one["count"] > 1 and one.get("looped")]
    state = sum(one["bytes"] for one in step["arguments"] if memory.holder(one["name"]) == "parameters")
    total = step["hlo"]["between"]
    if often:
        one = often[0]
        size = f"{one['bytes'] / 2**20:,.1f} MiB a chip"
        times = counted(round(one["count"]), "time")
        text = f"a collective crosses slices {times} a step: {one['kind']} {one['op']}, {size}"
        hint = (
            "split over slices only the batch: put the data axis outermost in the mesh, and model axes inside a slice"
        )
        yield Finding("dcn in a loop", text, "", hint, stops=False)
    elif state and total > 2.2 * state and total > 2**20:
        size = f"more than the gradients once ({state / 2**20:,.0f} MiB)"
        text = f"{total / 2**20:,.0f} MiB a chip cross between slices a step, {size}"
        yield Finding(
            "dcn traffic", text, "", "reduce gradients inside the slice first, and once between slices", stops=False
        )


def _of_program(error: Mapping[str, str]) -> Finding:
    text = error["text"]
    if error["kind"] == "SystemExit":
        return Finding("exit", f"the program ended with {text or 'an error'} before its first step", error["line"])
    kind = "uneven" if _UNEVEN.search(text) and error["kind"] in _SHAPE_ERRORS else "program"
    what = f"{error['kind']}: {_first(text)}"
    hint = (
        _UNEVEN_HINT
        if kind == "uneven"
        else "fix this error, which would occur on a TPU too; or write `fit: FILE.py:FUNCTION` in the job file"
    )
    return Finding(kind, what, error["line"], hint)


def _unique(found: Sequence[Finding]) -> list[Finding]:
    return list({(one.kind, one.line, one.text): one for one in found}.values())


def _first(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[0] if lines else "no message")[:400]


def _gib(size: float) -> str:
    return f"{size / GIB:.2f} GiB" if math.fabs(size) >= 0.01 * GIB else f"{size / 2**20:.2f} MiB"
