"""A trace of every report of this host, one line each, for comparing runs (`tpu drill`).

Off unless $TPUKIT_TRACE names a folder. A line that cannot be written is lost; training continues.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any


class Trace:
    def __init__(self, folder: str, attempt: int, index: int) -> None:
        self._path = Path(folder, f"{attempt}-{index}.jsonl") if folder else None
        self._file = -1

    @property
    def on(self) -> bool:
        return self._path is not None

    def write(self, values: Mapping[str, object]) -> None:
        if self._path is None:
            return
        with suppress(OSError):
            if self._file < 0:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            os.write(self._file, (json.dumps(values) + "\n").encode())  # one write: a kill leaves no partial line


def digest(value: Any) -> str:
    """Return sixteen characters that identify the content of an array, of bytes, or of a tree of arrays.

    Only the part on this host counts. Data on a device is copied: cheap for a batch, seconds for the parameters of a
    large model.
    """
    import numpy as np

    found = hashlib.sha256()
    for leaf in _leaves(value):
        if isinstance(leaf, (bytes, str)):
            found.update(leaf if isinstance(leaf, bytes) else leaf.encode())
            continue
        shards = getattr(leaf, "addressable_shards", None)
        parts = [leaf] if shards is None else [shard.data for shard in sorted(shards, key=lambda one: str(one.index))]
        for part in parts:
            array = np.ascontiguousarray(part)
            found.update(f"{array.dtype}{array.shape}".encode())
            found.update(array.tobytes())
    return found.hexdigest()[:16]


def digests(tree: Any) -> dict[str, str]:
    """Return a digest for each array of a tree, by its path.

    Report them as `params=` so that `tpu drill` can name the parameters that were not restored.
    """
    return {path or "value": digest(leaf) for path, leaf in _named_leaves(tree, "")}


def _named_leaves(value: Any, path: str) -> list[tuple[str, Any]]:
    """Return the leaves with their paths, in the same order in every run."""
    if isinstance(value, Mapping):
        children = [(str(key), value[key]) for key in sorted(value, key=str)]
    elif isinstance(value, (list, tuple)):
        children = [(str(index), item) for index, item in enumerate(value)]
    else:
        return [] if value is None else [(path, value)]
    return [leaf for name, child in children for leaf in _named_leaves(child, f"{path}/{name}" if path else name)]


def _leaves(value: Any) -> list[Any]:
    return [leaf for _, leaf in _named_leaves(value, "")]
