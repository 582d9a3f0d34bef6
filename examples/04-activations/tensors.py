"""safetensors files: mapped rather than loaded, and written so that the same arrays give the same bytes.

The format is 8 bytes of length, a JSON header, and raw arrays: https://github.com/huggingface/safetensors#format. It is
written here because the package of that name orders the metadata differently in every process (0.8.0), while workers of
a fleet have to agree on every byte.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

DTYPES = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Damaged(OSError):
    """It is not the file that it should be."""


def header(file: Path) -> tuple[dict[str, Any], int]:
    """Return the arrays and the `__metadata__` that a file describes, and the offset of its data."""
    with file.open("rb") as content:
        length = int.from_bytes(content.read(8), "little")
        if length > file.stat().st_size - 8:
            raise Damaged(f"{file} is cut short, or is no safetensors file: fetch it again")
        try:
            return json.loads(content.read(length)), 8 + length
        except ValueError as error:
            raise Damaged(f"{file} has no readable header: {error}") from error


def mapped(file: Path) -> dict[str, np.ndarray]:
    """Its arrays, read from disk where they are touched."""
    about, begin = header(file)
    about.pop("__metadata__", None)
    data = np.memmap(file, mode="r")
    arrays = {}
    for name, one in about.items():
        first, last = one["data_offsets"]
        if one["dtype"] not in DTYPES or begin + last > len(data):
            what = f"is {one['dtype']}" if one["dtype"] not in DTYPES else "is cut off"
            raise Damaged(f"{file}: {name} {what}; readable are whole arrays of {', '.join(DTYPES)}")
        arrays[name] = data[begin + first : begin + last].view(DTYPES[one["dtype"]]).reshape(one["shape"])
    return arrays


def allocated(
    shapes: Mapping[str, tuple[np.dtype, tuple[int, ...]]], metadata: Mapping[str, str]
) -> tuple[bytearray, dict[str, np.ndarray]]:
    """Return a file in memory without data, and its arrays, to be filled in place."""
    about: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))}
    end = 0
    for name, (dtype, shape) in shapes.items():
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        about[name] = {"dtype": NAMES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(about, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # so that data begins at a multiple of 8 bytes
    content = bytearray(8 + len(text) + end)
    content[: 8 + len(text)] = len(text).to_bytes(8, "little") + text
    arrays = {}
    for name, (dtype, shape) in shapes.items():
        begin = 8 + len(text) + about[name]["data_offsets"][0]
        arrays[name] = np.frombuffer(content, dtype, math.prod(shape), begin).reshape(shape)
    return content, arrays


def written(file: Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    content, target = allocated({name: (array.dtype, array.shape) for name, array in arrays.items()}, metadata)
    for name, array in arrays.items():
        target[name][...] = array
    file.write_bytes(content)
