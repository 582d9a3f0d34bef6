"""Progress of a fleet from the checkpoints and claims of its streams: two list requests for any number of shards.

A document that cannot be read is skipped and named; the others count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpukit.google import objects

CHECKPOINTS, CLAIMS = "checkpoints", "claims"
_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, OSError, RecursionError)


@dataclass(frozen=True, slots=True)
class Made:
    """Number of shards in the bucket, and of samples in them."""

    shards: int = 0
    samples: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    total: Made = Made()
    workers: Mapping[str, Made] = field(default_factory=dict)  # by slot, in any zone
    beats: Mapping[str, str] = field(default_factory=dict)  # by slot: the text changes with every renewal of its claim
    problems: tuple[str, ...] = ()  # documents that cannot be read


def read(output: str) -> Progress:
    total, workers, beats = Made(), dict[str, Made](), dict[str, str]()
    problems: list[str] = []
    for name, about in _documents(output, CHECKPOINTS, _sums):
        try:
            made = _made(about)
            total = Made(total.shards + int(about.get("shards", 0)), total.samples + int(about.get("samples", 0)))
        except _UNREADABLE as error:
            problems.append(f"{output}/{name} cannot be read and is left out: {error}")
            continue
        for slot, one in made.items():
            before = workers.get(slot, Made())
            workers[slot] = Made(before.shards + one.shards, before.samples + one.samples)
    for name, about in _documents(output, CLAIMS, _beat):
        if isinstance(about, Exception):  # a claim that cannot be read is no sign of life
            continue
        if worker := str(about.get("worker", "")):
            beats[_slot(worker)] = f"{beats.get(_slot(worker), '')} {name} {about.get('beat', '')}".strip()
    return Progress(total, workers, beats, tuple(problems))


def _made(about: Mapping[str, str] | Exception) -> Mapping[str, Made]:
    if isinstance(about, Exception):
        raise about
    made = dict[str, Made]()
    for name, (shards, samples) in json.loads(about.get("made", "{}")).items():
        before = made.get(_slot(name), Made())
        made[_slot(name)] = Made(before.shards + int(shards), before.samples + int(samples))
    return made


def _slot(name: str) -> str:
    """Return the worker's slot: tpu-us-central1-a-0 and tpu-us-central1-b-for-us-central1-a-0 are the same worker."""
    return name.rpartition("-for-")[2].removeprefix("tpu-")


def _documents(output: str, folder: str, of_content: Any) -> Iterator[tuple[str, Any]]:
    """Yield the metadata of all documents in a folder, or the error of one that cannot be read.

    A local folder has no metadata: `of_content` makes it from the document.
    """
    if output.startswith("gs://"):
        for name, about in objects.metadata(f"{output}/{folder}/").items():
            yield f"{folder}/{name}", about
        return
    for file in sorted(Path(output, folder).glob("*.json")):
        try:
            yield f"{folder}/{file.name}", of_content(json.loads(file.read_bytes()))
        except _UNREADABLE as error:
            yield f"{folder}/{file.name}", error


def _sums(content: dict[str, Any]) -> Mapping[str, str]:
    made: dict[str, list[int]] = {}
    for one in content["shards"]:
        each = made.setdefault(one["worker"], [0, 0])
        each[0], each[1] = each[0] + 1, each[1] + one["samples"]
    sums = {"shards": content["total_shards"], "samples": content["total_samples_processed"]}
    return {**{key: str(value) for key, value in sums.items()}, "made": json.dumps(made)}


def _beat(content: dict[str, Any]) -> Mapping[str, str]:
    return {"worker": str(content["worker"]), "beat": str(content["beat"])}
