"""Activations of a language model: a program for the workers of a fleet.

    python -m tpukit.host.worker --program extract.py:make --option model=FOLDER --option layers=4,8 ...

A shard is a safetensors file. For each hook and layer it has an array [tokens, width], named `residual.4`; beside them
`tokens`, and `offsets`: sample i has rows offsets[i] to offsets[i + 1]. Its metadata names samples and model.
"""

from __future__ import annotations

import difflib
import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import checkpoint
import jax
import ml_dtypes  # gives numpy the name bfloat16
import numpy as np
import qwen2
import tensors
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from samples import Batch, Misuse, Tokens, batches

IN_FLIGHT = 2
"""Batches that the chips work on while the results of earlier ones are copied."""
TYPES = {"bfloat16": np.dtype(ml_dtypes.bfloat16), "float32": np.dtype(np.float32)}


@dataclass(frozen=True)
class Options:
    model: str = "Qwen/Qwen2.5-0.5B"  # a folder, gs://..., or a name on the Hub
    revision: str = ""  # on the Hub
    hooks: str = "residual"  # with commas between: residual, attention, mlp, embedding, final_norm, logits
    layers: str = "all"  # or numbers with commas between; -1 is the last
    dtype: str = "bfloat16"  # of what is stored; or float32
    compute: str = "auto"  # bfloat16, which is float32 on a CPU: there it is the faster of the two
    max_length: str = "2048"  # tokens of a sample; what is beyond is cut off
    batch_tokens: str = "2048"  # on each chip at once
    field: str = "text"  # of a sample

    @staticmethod
    def parsed(given: Mapping[str, str]) -> Options:
        names = [field.name for field in fields(Options)]
        for name in given:
            if name not in names:
                near = difflib.get_close_matches(name, names, 1)
                raise Misuse(
                    f"there is no option {name}; " + (f"{near[0]}?" if near else f"there are {', '.join(names)}")
                )
        options = Options(**given)
        options._one_of("dtype", *TYPES)
        options._one_of("compute", "auto", *TYPES)
        return options

    def taps(self, layers: int) -> qwen2.Taps:
        hooks, known = _words(self.hooks), (*qwen2.LAYER_HOOKS, *qwen2.MODEL_HOOKS)
        if not hooks or set(hooks) - set(known):
            raise Misuse(f"hooks={self.hooks}: there are {', '.join(known)}")
        try:
            numbers = range(layers) if self.layers == "all" else [int(word) for word in _words(self.layers)]
        except ValueError:
            raise Misuse(f"layers={self.layers}: write all, or numbers with commas between") from None
        if wrong := [number for number in numbers if not -layers <= number < layers]:
            raise Misuse(f"layers={self.layers}: there is no layer {wrong[0]}, the model has 0 to {layers - 1}")
        return qwen2.Taps(tuple(sorted(set(hooks))), tuple(sorted({number % layers for number in numbers})), self.dtype)

    def number(self, name: str) -> int:
        text = getattr(self, name)
        if not text.isdecimal() or int(text) < 1:
            raise Misuse(f"{name}={text}: write a number, at least 1")
        return int(text)

    def _one_of(self, name: str, *values: str) -> None:
        if getattr(self, name) not in values:
            raise Misuse(f"{name}={getattr(self, name)}: write {', '.join(values)}")


class Extract:
    def __init__(self, options: Options, report: Callable[[int], None]) -> None:
        folder = checkpoint.folder(options.model, options.revision)
        self._config = qwen2.config(json.loads((folder / "config.json").read_text(encoding="utf-8")))
        self._taps = options.taps(self._config.layers)
        longest = min(options.number("max_length"), self._config.positions)
        self._tokens = Tokens(folder, options.field, longest, self._config.vocabulary)
        self._budget, self._report = options.number("batch_tokens"), report
        compute = options.compute
        if compute == "auto":
            compute = "float32" if jax.default_backend() == "cpu" else "bfloat16"
        # Every chip has the model, and rows of each batch.
        mesh = Mesh(np.array(jax.local_devices()), ("rows",))
        self._devices, self._rows = mesh.size, NamedSharding(mesh, PartitionSpec("rows"))
        params = qwen2.load(checkpoint.weights(folder), self._config, self._taps, compute)
        self._params = jax.device_put(params, NamedSharding(mesh, PartitionSpec()))
        self._forward = jax.jit(partial(qwen2.forward, config=self._config, taps=self._taps))
        self._about = {"model": options.model, "revision": options.revision, "checkpoint": checkpoint.digest(folder)}
        self._about |= {"hooks": ",".join(self._taps.hooks), "layers": ",".join(map(str, self._taps.layers))}
        self._about |= {"compute": compute, "max_length": str(longest)}

    def __call__(self, samples: list[Any]) -> bytes:
        tokens = self._tokens.of(samples)
        offsets = np.cumsum([0, *(one.size for one in tokens)])
        content, arrays = self._allocated(samples, int(offsets[-1]))
        arrays["tokens"][:] = np.concatenate([np.zeros(0, np.int32), *tokens])
        arrays["offsets"][:] = offsets
        done, running = 0, deque[tuple[Batch, dict[str, jax.Array]]]()
        for batch in batches(tokens, self._budget, self._devices):
            running.append((batch, self._forward(self._params, jax.device_put(batch.tokens, self._rows))))
            if len(running) > IN_FLIGHT:
                done = self._store(*running.popleft(), arrays, offsets, done)
        while running:
            done = self._store(*running.popleft(), arrays, offsets, done)
        return bytes(content)

    def _allocated(self, samples: list[Any], count: int) -> tuple[bytearray, dict[str, np.ndarray]]:
        # The widest numbers first, so that each array begins where its type may.
        shapes: dict[str, tuple[np.dtype, tuple[int, ...]]] = {"offsets": (np.dtype(np.int64), (len(samples) + 1,))}
        shapes["tokens"] = (np.dtype(np.int32), (count,))
        for hook in self._taps.hooks:
            width = self._config.vocabulary if hook == "logits" else self._config.width
            for name in self._names(hook):
                shapes[name] = (TYPES[self._taps.dtype], (count, width))
        ids = json.dumps([sample.get("id") for sample in samples])
        return tensors.allocated(shapes, {**self._about, "ids": ids})

    def _names(self, hook: str) -> list[str]:
        return [f"{hook}.{layer}" for layer in self._taps.layers] if hook in qwen2.LAYER_HOOKS else [hook]

    def _store(
        self, batch: Batch, made: dict[str, jax.Array], arrays: dict[str, np.ndarray], offsets: np.ndarray, done: int
    ) -> int:
        """Rows of samples to their places in the shard; how many samples are through."""
        for hook, values in made.items():
            on_host = np.asarray(values)
            for slot, name in enumerate(self._names(hook)):
                for row, number in enumerate(batch.samples):
                    begin, end = offsets[number], offsets[number + 1]
                    arrays[name][begin:end] = on_host[slot, row, : end - begin]
        self._report(done + len(batch.samples))
        return done + len(batch.samples)


def make(options: Mapping[str, str], report: Callable[[int], None]) -> Extract:
    return Extract(Options.parsed(options), report)


make.suffix = ".safetensors"  # type: ignore[attr-defined]


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
