"""Windows of text, shuffled anew each epoch, in an order that depends on the seed alone.

Batch number n is the same sequences in the same rows whoever asks, on however many hosts. So the whole position in
the data is that one number, and it is saved with the weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from config import Config
from jax.sharding import NamedSharding

Batch = dict[str, Any]


class Text:
    """A file of bytes, cut into windows that share one token: the last of each is the first to predict from next."""

    def __init__(self, path: Path, length: int) -> None:
        self._bytes = np.memmap(path, dtype=np.uint8, mode="r")
        self._length = length

    def __len__(self) -> int:
        return (len(self._bytes) - 1) // self._length

    def __getitem__(self, index: int) -> Batch:
        first = index * self._length
        return {"tokens": self._bytes[first : first + self._length + 1].astype(np.int32), "index": np.int32(index)}


class Synthetic:
    """Random tokens, the same for the same index."""

    def __init__(self, windows: int, vocabulary: int, length: int) -> None:
        self._windows, self._vocabulary, self._length = windows, vocabulary, length

    def __len__(self) -> int:
        return self._windows

    def __getitem__(self, index: int) -> Batch:
        tokens = np.random.default_rng(index).integers(self._vocabulary, size=self._length + 1, dtype=np.int32)
        return {"tokens": tokens, "index": np.int32(index)}


class Rows:
    """The rows of this host in each batch of `sequences`."""

    def __init__(self, sequences: Any, batch_size: int, rows: list[int]) -> None:
        self._sequences, self._batch_size, self._rows = sequences, batch_size, rows

    def __len__(self) -> int:
        return len(self._sequences) // self._batch_size

    def __getitem__(self, batch: int) -> Batch:
        found = [self._sequences[batch * self._batch_size + row] for row in self._rows]
        return {name: np.stack([sequence[name] for sequence in found]) for name in found[0]}


class Batches:
    """Iterates over global batches; `get_state` and `set_state` are the position."""

    def __init__(self, config: Config, steps: int, sharding: NamedSharding) -> None:
        import grain

        size = config.training.batch_size
        self._sharding, self._size = sharding, size
        self._rows = sorted(
            {
                row
                for (rows, *_) in sharding.addressable_devices_indices_map((size,)).values()
                for row in range(size)[rows]
            }
        )
        shuffled = grain.MapDataset.source(source(config)).seed(config.training.seed).shuffle().repeat()
        mine = grain.MapDataset.source(Rows(shuffled[: steps * size], size, self._rows))
        self._iterator = iter(mine.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=8)))

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        return {name: self._spread(rows) for name, rows in next(self._iterator).items()}

    def get_state(self) -> Any:
        return self._iterator.get_state()

    def set_state(self, state: Any) -> None:
        self._iterator.set_state(state)

    def _spread(self, mine: np.ndarray) -> jax.Array:
        """Return the global array whose rows on this host are `mine`."""

        def piece(index: tuple[slice, ...]) -> np.ndarray:
            first = self._rows.index(index[0].indices(self._size)[0])
            return mine[first : first + len(range(self._size)[index[0]])]

        return jax.make_array_from_callback((self._size, *mine.shape[1:]), self._sharding, piece)


def source(config: Config) -> Text | Synthetic:
    data = config.data
    if data.dataset == "synthetic":
        return Synthetic(data.synthetic_windows, config.model.vocabulary, data.sequence_length)
    return Text(Path(__file__).parent / data.path, data.sequence_length)


def steps_per_epoch(config: Config) -> int:
    steps = len(source(config)) // config.training.batch_size
    if not steps:
        raise ValueError("the data is shorter than one batch: lower training.batch_size or data.sequence_length")
    return steps
