"""How far a fleet is, as the checkpoints of its streams say: one list of the bucket, however many shards there are."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpukit.cloud import objects

CHECKPOINTS = "checkpoints"


@dataclass(frozen=True, slots=True)
class Made:
    """Shards that are in the bucket, and the samples in them."""

    shards: int = 0
    samples: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    total: Made = Made()
    workers: Mapping[str, Made] = field(default_factory=dict)  # by slot, wherever it was


def read(output: str) -> Progress:
    total, workers = Made(), dict[str, Made]()
    for about in _checkpoints(output):
        total = Made(total.shards + int(about.get("shards", 0)), total.samples + int(about.get("samples", 0)))
        for name, (shards, samples) in json.loads(about.get("made", "{}")).items():
            slot = _slot(name)
            before = workers.get(slot, Made())
            workers[slot] = Made(before.shards + shards, before.samples + samples)
    return Progress(total, workers)


def _slot(name: str) -> str:
    """tpu-us-central1-a-0 and tpu-us-central1-b-for-us-central1-a-0 are one worker."""
    return name.rpartition("-for-")[2].removeprefix("tpu-")


def _checkpoints(output: str) -> Iterator[Mapping[str, str]]:
    if output.startswith("gs://"):
        yield from objects.metadata(f"{output}/{CHECKPOINTS}/").values()
        return
    for file in Path(output, CHECKPOINTS).glob("*.json"):
        content: dict[str, Any] = json.loads(file.read_bytes())
        made: dict[str, list[int]] = {}
        for one in content["shards"]:
            each = made.setdefault(one["worker"], [0, 0])
            each[0], each[1] = each[0] + 1, each[1] + one["samples"]
        sums = {"shards": content["total_shards"], "samples": content["total_samples_processed"]}
        yield {**{key: str(value) for key, value in sums.items()}, "made": json.dumps(made)}
