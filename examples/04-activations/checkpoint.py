"""A model as Hugging Face stores it: config.json, tokenizer.json and weights in one safetensors file or in several.

It is named by a folder, a folder in a bucket (gs://...), or its name on the Hub, and is on this disk afterwards.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from tensors import Damaged, mapped

ONE = "model.safetensors"
INDEX = "model.safetensors.index.json"
FILES = ("config.json", "tokenizer.json", INDEX, "*.safetensors")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "tpukit-models"


def folder(model: str, revision: str) -> Path:
    """Where its files are. What is on this disk already is not fetched again."""
    if model.startswith("gs://"):
        return _from_bucket(model.rstrip("/"))
    if Path(model).expanduser().is_dir():
        return Path(model).expanduser()
    if model.startswith((".", "/", "~")) or model.count("/") != 1:
        raise FileNotFoundError(
            f"model={model}: there is no such folder; name a folder, gs://... or OWNER/NAME on the Hub"
        )
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(model, revision=revision or None, allow_patterns=list(FILES)))


def weights(folder: Path) -> Mapping[str, np.ndarray]:
    """By the names they have in PyTorch, mapped from disk."""
    if (folder / ONE).is_file():
        return mapped(folder / ONE)
    if not (folder / INDEX).is_file():
        raise FileNotFoundError(f"{folder} has neither {ONE} nor {INDEX}: convert its weights to safetensors")
    where: dict[str, str] = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]
    files = {name: mapped(folder / name) for name in sorted(set(where.values()))}
    if missing := sorted(name for name, file in where.items() if name not in files[file]):
        raise Damaged(f"{folder}: {missing[0]} is not in {where[missing[0]]}, where {INDEX} says it is: fetch it again")
    return {name: files[file][name] for name, file in where.items()}


def digest(folder: Path) -> str:
    """Of config, tokenizer and the headers of the weights: enough to tell models apart, without reading gigabytes."""
    total = hashlib.sha256()
    for file in sorted(file for pattern in FILES for file in folder.glob(pattern)):
        with file.open("rb") as content:
            size = 8 + int.from_bytes(content.read(8), "little") if file.suffix == ".safetensors" else -1
            content.seek(0)
            total.update(f"{file.name} {file.stat().st_size}\n".encode() + content.read(size))
    return total.hexdigest()[:16]


def _from_bucket(address: str) -> Path:
    from tpukit.host import bucket

    files, target = bucket.opened(address), CACHE / hashlib.sha256(address.encode()).hexdigest()[:16]
    sizes = {name: size for name, size in files.list("").items() if any(Path(name).match(one) for one in FILES)}
    if "config.json" not in sizes:
        raise FileNotFoundError(f"{address} has no config.json: copy the model's folder there")
    target.mkdir(parents=True, exist_ok=True)
    for name, size in sizes.items():
        there = target / name
        if "/" in name or (there.exists() and there.stat().st_size == size):
            continue
        draft = target / f".{name}.{os.getpid()}"
        files.fetch(name, draft)
        draft.replace(there)
    return target
