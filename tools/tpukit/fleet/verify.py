"""Verification of a fleet's output: every shard of every stream exists once, with the recorded content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec

from tpukit.core.errors import Invalid
from tpukit.core.quantities import counted
from tpukit.fleet import dataset
from tpukit.fleet.streams import MANIFEST, Streams

READERS = 8


@dataclass(frozen=True, slots=True)
class Verdict:
    shards: int  # that exist and are correct
    samples: int
    bytes: int
    problems: tuple[str, ...]


def verify(data: str, output: str, *, contents: bool = True) -> Verdict:
    """Verify the output; with `contents`, read every shard and compare its checksum, else only names and sizes."""
    there = dataset.sizes(output)
    if "run.json" not in there:
        raise Invalid(f"{output} has no run.json: no worker has started")
    try:
        run = json.loads(dataset.read(f"{output}/run.json"))
        streams = msgspec.json.decode(dataset.read(f"{data}/{MANIFEST}"), type=Streams)
    except ValueError as error:
        raise Invalid(f"{output}/run.json or {data}/{MANIFEST} cannot be read: {error}") from error
    problems = []
    if streams.digest != run["dataset"]:
        problems.append(f"the output was made from another dataset than {data}")
    wanted = expected(streams, run)
    checkpoints = {name: _checkpoint(output, name, there) for name in {name.partition("/")[0] for name in wanted}}
    recorded = {f"{folder}/{one['name']}": one for folder, one in _entries(checkpoints)}
    problems += [f"{name} is missing" for name in wanted if name not in there]
    made = {name for name in there if name.rpartition("/")[2].startswith("shard_")}
    problems += [f"{name} belongs to no stream" for name in sorted(made - set(wanted))]
    right, samples, size = 0, 0, 0
    present = [name for name in wanted if name in there]
    with ThreadPoolExecutor(READERS) as pool:
        sums = pool.map(lambda name: _sum(output, name) if contents else None, present)
        for name, digest in zip(present, sums, strict=True):
            entry = recorded.get(name)
            if entry is None:
                problems.append(f"{name} is not in the checkpoint of its stream")
            elif entry["bytes"] != there[name] or digest not in (None, entry["sha256"]):
                problems.append(f"{name} is damaged")
            elif entry["samples"] + (left_out := int(entry.get("left_out", 0))) != wanted[name]:
                problems.append(f"{name} has {counted(entry['samples'], 'sample')}, not {wanted[name]}")
            else:
                right, samples, size = right + 1, samples + entry["samples"], size + there[name]
                if left_out:
                    problems.append(f"{name} lacks {counted(left_out, 'sample')} that could not be read")
    return Verdict(right, samples, size, tuple(problems))


def expected(streams: Streams, run: Mapping[str, Any]) -> dict[str, int]:
    """Return the names of all shards, with the number of samples in each."""
    each = int(run["shard_samples"])
    return {
        f"{stream.name.partition('.')[0]}/shard_{index:05d}{run['suffix']}": min(each, stream.samples - index * each)
        for stream in streams.streams
        for index in range(-(-stream.samples // each))
    }


def _checkpoint(output: str, folder: str, there: Mapping[str, int]) -> Sequence[Mapping[str, Any]]:
    name = f"checkpoints/{folder}.json"
    if name not in there:
        return []
    try:
        shards: Sequence[Mapping[str, Any]] = json.loads(dataset.read(f"{output}/{name}"))["shards"]
    except (ValueError, KeyError, TypeError):
        return []  # then each of its shards is reported
    return shards


def _entries(checkpoints: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(folder, entry) for folder, entries in checkpoints.items() for entry in entries]


def _sum(output: str, name: str) -> str:
    return hashlib.sha256(dataset.read(f"{output}/{name}")).hexdigest()
