"""From the samples of a shard to tokens, and from tokens to batches of few shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

SHORTEST = 16
"""Length of the shortest padded sequence."""


class Misuse(SystemExit):
    """Ends the program with a sentence, and exit code 1."""


class Tokens:
    """A sample has `tokens`, or text in the field that is named, for the tokenizer of the model."""

    def __init__(self, folder: Path, field: str, longest: int, vocabulary: int) -> None:
        self._file, self._field, self._longest, self._vocabulary = folder / "tokenizer.json", field, longest, vocabulary
        self._tokenizer: Any = None

    def of(self, samples: Sequence[Any]) -> list[np.ndarray]:
        """At most `longest` of each: what is beyond is cut off."""
        texts = [number for number, sample in enumerate(samples) if "tokens" not in sample]
        for number in texts:
            if not isinstance(samples[number].get(self._field), str):
                raise Misuse(f"sample {number} of the shard has neither tokens nor text in {self._field!r}: set field=")
        encoded = dict(zip(texts, self._encoded([samples[number][self._field] for number in texts]), strict=True))
        ids = [encoded[number] if number in encoded else sample["tokens"] for number, sample in enumerate(samples)]
        tokens = [np.asarray(one[: self._longest], np.int32) for one in ids]
        for number, one in enumerate(tokens):
            if one.size and not 0 <= one.min() <= one.max() < self._vocabulary:
                words = f"sample {number} of the shard has token {one.max()}, the model has {self._vocabulary}"
                raise Misuse(f"{words}: was it tokenized for another model?")
        return tokens

    def _encoded(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        if self._tokenizer is None:
            try:
                from tokenizers import Tokenizer
            except ImportError as error:
                raise Misuse("samples have text, which needs tokenizers: pip install tokenizers") from error
            if not self._file.is_file():
                raise Misuse(f"samples have text and {self._file} is not there: send tokens instead")
            self._tokenizer = Tokenizer.from_file(str(self._file))
            self._tokenizer.no_padding()
            self._tokenizer.no_truncation()
        return [one.ids for one in self._tokenizer.encode_batch(list(texts))]


@dataclass(frozen=True)
class Batch:
    samples: tuple[int, ...]  # their numbers in the shard, one a row; rows behind them are empty
    tokens: np.ndarray  # [rows, length]


def padded(length: int) -> int:
    """16, 24, 32, 48, 64, 96 ...: a sequence is padded by a third at most, and there are two shapes an octave."""
    size = SHORTEST
    while size < length:
        size += size // 2 if size & (size - 1) == 0 else size // 3
    return size


def batches(tokens: Sequence[np.ndarray], budget: int, devices: int) -> Iterator[Batch]:
    """Batch samples of similar length, with `budget` tokens on each device.

    A length always has the same shape, so the result for a sample depends only on its tokens.
    """
    ordered = sorted((padded(one.size), number) for number, one in enumerate(tokens) if one.size)
    for length, group in groupby(ordered, key=lambda pair: pair[0]):
        numbers = [number for _, number in group]
        rows = max(1, budget // length) * devices
        for first in range(0, len(numbers), rows):
            chosen = tuple(numbers[first : first + rows])
            block = np.zeros((rows, length), np.int32)
            for row, number in enumerate(chosen):
                block[row, : tokens[number].size] = tokens[number]
            yield Batch(chosen, block)
