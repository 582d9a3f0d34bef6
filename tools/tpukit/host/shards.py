"""Shards of one stream of a dataset: each a fixed range of samples, made once, verified, and never remade.

Below the folder of the output:

    run.json                        what all workers have to agree on
    stream_000/shard_00000.EXT ...  shard k holds samples k·n to (k+1)·n of the stream
    checkpoints/stream_000.json     progress; with size, checksum and maker of each shard

All checkpoints are in one folder, and their metadata has the sums: one list request shows the progress of all streams.

The existing shards decide where to resume, not the checkpoint: a worker that was interrupted between writing the two
loses nothing.
"""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from tpukit.host.bucket import Files

Program = Callable[[list[Any]], bytes]
"""A function from the samples of a shard to its content. The same samples give the same bytes on any machine."""
FETCHES = 3
_log = logging.getLogger("tpukit.worker")
MOST_MAKERS = 64
"""Number of workers that the metadata of a stream names; metadata is limited to 8 KiB."""


class Disagreement(Exception):
    """The existing output was made with other settings."""


class Superseded(Exception):
    """Another worker has taken the stream."""


@dataclass(frozen=True)
class Run:
    """Settings that the output depends on, besides the samples."""

    shard_samples: int
    suffix: str
    program: str
    options: Mapping[str, str]
    dataset: str  # digest of its streams

    def agree(self, output: Files) -> None:
        """Record these settings as the first worker; refuse to work if the recorded ones differ."""
        mine = json.dumps(vars(self) | {"options": dict(self.options)}, indent=2, sort_keys=True).encode()
        if output.create("run.json", mine):
            return
        there = output.read("run.json")
        if there is None or there[0] == mine:
            return
        theirs, ours = json.loads(there[0]), json.loads(mine)
        differ = [name for name, value in ours.items() if theirs.get(name) != value]
        words = ", ".join(f"{name} was {theirs.get(name)!r}, and is {ours[name]!r} now" for name in differ)
        raise Disagreement(f"the output folder has shards of another run: {words}. Name another folder")


@dataclass(frozen=True)
class Stream:
    name: str  # stream_000.jsonl
    samples: int
    sha256: str

    @property
    def folder(self) -> str:
        return self.name.partition(".")[0]

    @property
    def checkpoint(self) -> str:
        return f"checkpoints/{self.folder}.json"

    def shards(self, size: int) -> int:
        return -(-self.samples // size)


def completed(output: Files) -> set[str]:
    """Return the checkpoints of completed streams, with one list request."""
    return {name for name, about in output.about("checkpoints/").items() if about.get("status") == "completed"}


class Extraction:
    """The extraction of one stream by one worker."""

    def __init__(
        self, data: Files, output: Files, stream: Stream, run: Run, worker: str, dataset: str, scratch: Path
    ) -> None:
        self._data, self._output, self._stream, self._run, self._worker = data, output, stream, run, worker
        self._dataset, self._scratch = dataset, scratch
        self._checkpoint: dict[int, dict[str, Any]] = {}
        self._mark = ""
        self.left_out = 0  # samples that could not be read

    def work(self, program: Program, check: Callable[[], None], made: Callable[[int, int], None]) -> None:
        """Make the missing shards.

        `check` raises if the stream has to be left. `made` receives the number of shards and samples that this worker
        has made so far.
        """
        missing, shards, own = self._resume(), 0, 0
        made(0, 0)
        if missing:
            with tempfile.TemporaryDirectory(prefix="stream-", dir=self._scratch) as folder:
                for index, samples, left_out in self._ranges(self._fetched(Path(folder)), missing):
                    check()
                    content = program(samples) if samples else b""
                    check()
                    self._commit(index, content, left_out)
                    shards, own = shards + 1, own + len(samples)
                    made(shards, own)
        self._save("completed")

    def _resume(self) -> set[int]:
        """Return the indices of the shards that are still missing."""
        folder, count = self._stream.folder, self._stream.shards(self._run.shard_samples)
        there = self._output.read(self._stream.checkpoint)
        known = self._known(there[0]) if there else {}
        self._mark = there[1] if there else ""
        sizes = self._output.list(f"{folder}/")
        self._checkpoint = {}
        for index in range(count):
            name = f"{folder}/{self._file(index)}"
            if name not in sizes:
                continue
            entry = known.get(index)
            if entry is None:  # its maker was interrupted before it could update the checkpoint
                content = self._output.read(name)
                assert content is not None
                entry = self._entry(index, content[0])
            if entry["bytes"] != sizes[name]:
                words = f"{name} has {sizes[name]} bytes, not {entry['bytes']}: delete it, and a worker recreates it"
                raise Disagreement(words)
            self._checkpoint[index] = entry
        return set(range(count)) - set(self._checkpoint)

    def _known(self, content: bytes) -> dict[int, dict[str, Any]]:
        """Return the shards in a checkpoint. An unreadable checkpoint is rebuilt from the shards themselves."""
        try:
            return {int(one["index"]): one for one in json.loads(content)["shards"]}
        except (ValueError, KeyError, TypeError) as error:
            _log.warning("%s cannot be read and is recreated: %s", self._stream.checkpoint, error)
            return {}

    def _fetched(self, folder: Path) -> Path:
        target = folder / self._stream.name
        for _ in range(FETCHES):
            if self._data.fetch(self._stream.name, target) == self._stream.sha256:
                return target
        raise Disagreement(f"{self._stream.name} differs from streams.json: upload the dataset again")

    def _ranges(self, file: Path, missing: set[int]) -> Iterator[tuple[int, list[Any], int]]:
        """Yield the samples of each missing shard, and the number of unreadable samples."""
        size = self._run.shard_samples
        with file.open("rb") as lines:
            for index in range(max(missing) + 1):
                chosen = list(islice(lines, size))
                if index in missing:
                    samples = [one for at, line in enumerate(chosen) for one in self._parsed(line, index * size + at)]
                    yield index, samples, len(chosen) - len(samples)

    def _parsed(self, line: bytes, number: int) -> list[Any]:
        """Return the sample in a list of one; an empty list if it is unreadable, so that the others continue."""
        try:
            return [json.loads(line)]
        except (ValueError, RecursionError) as error:
            _log.warning("%s, sample %d is left out: %s", self._stream.name, number, error)
            self.left_out += 1
            return []

    def _commit(self, index: int, content: bytes, left_out: int) -> None:
        name = f"{self._stream.folder}/{self._file(index)}"
        if not self._output.create(name, content):
            there = self._output.read(name)
            if there is not None and there[0] != content:
                raise Disagreement(
                    f"{name} exists with other content: the program does not produce the same bytes each time"
                )
        self._checkpoint[index] = self._entry(index, content, left_out)
        self._save("in_progress")

    def _entry(self, index: int, content: bytes, left_out: int = 0) -> dict[str, Any]:
        size = self._run.shard_samples
        samples = min(size, self._stream.samples - index * size) - left_out
        digest = hashlib.sha256(content).hexdigest()
        return {
            **({"left_out": left_out} if left_out else {}),
            "index": index,
            "name": self._file(index),
            "samples": samples,
            "bytes": len(content),
            "sha256": digest,
            "worker": self._worker,
        }

    def _save(self, status: str) -> None:
        shards = [self._checkpoint[index] for index in sorted(self._checkpoint)]
        samples = self._samples()
        document = {
            "worker_id": self._worker,
            "last_processed_sample_idx": samples - 1,
            "total_samples_processed": samples,
            "total_shards": len(shards),
            "dataset_path": self._dataset,
            "status": status,
            "shards": shards,
        }
        content = json.dumps(document, indent=1).encode()
        about = {"samples": str(samples), "shards": str(len(shards)), "status": status, "made": self._makers()}
        mark = self._output.replace(self._stream.checkpoint, content, self._mark, about)
        if mark is None:
            raise Superseded(f"{self._stream.name}: another worker writes its checkpoint")
        self._mark = mark

    def _makers(self) -> str:
        """Return the number of shards and samples that each worker made, as JSON."""
        made: dict[str, list[int]] = {}
        for one in self._checkpoint.values():
            each = made.setdefault(one.get("worker", ""), [0, 0])
            each[0], each[1] = each[0] + 1, each[1] + one["samples"]
        return json.dumps(dict(sorted(made.items(), key=lambda item: -item[1][0])[:MOST_MAKERS]))

    def _samples(self) -> int:
        return sum(one["samples"] for one in self._checkpoint.values())

    def _file(self, index: int) -> str:
        return f"shard_{index:05d}{self._run.suffix}"
