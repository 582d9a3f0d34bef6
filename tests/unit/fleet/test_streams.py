"""A dataset in streams: every sample is in exactly one of them, always the same one, at any size."""

from __future__ import annotations

import gzip
import os
import signal
import tracemalloc
from itertools import chain, zip_longest
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit.core.errors import Invalid, NotFound, Transient
from tpukit.fleet import streams

LINE = st.binary(min_size=1, max_size=20).map(lambda line: line.replace(b"\n", b" ")).filter(lambda line: line.strip())


def together(folder: Path, made: streams.Streams) -> list[bytes]:
    """Return the samples in their order before the split."""
    files = [(folder / stream.name).read_bytes().split(b"\n")[:-1] for stream in made.streams]
    return [line for line in chain.from_iterable(zip_longest(*files)) if line is not None]


@given(lines=st.lists(LINE, max_size=60), count=st.integers(1, 9), files=st.integers(1, 3), block=st.integers(1, 50))
def test_split_has_every_sample_once_in_its_order_whatever_the_blocks(tmp_path_factory, lines, count, files, block):
    folder = tmp_path_factory.mktemp("data")
    sources = []
    for number in range(files):
        sources.append(folder / f"{number}.jsonl")
        sources[-1].write_bytes(b"\n".join(lines[number::files]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "BLOCK", block)
        made, _ = streams.split(sources, folder / "streams", count)
    assert together(folder / "streams", made) == [line for n in range(files) for line in lines[n::files]]
    assert max(one.samples for one in made.streams) - min(one.samples for one in made.streams) <= 1
    assert streams.damaged(folder / "streams", made) == []


def test_split_by_several_processes_is_the_split_by_one(tmp_path, monkeypatch):
    source = tmp_path / "data.jsonl"
    source.write_bytes(b"".join(b"%d" % number * (number % 50 + 1) + b"\n" for number in range(1000)))
    alone, _ = streams.split([source], tmp_path / "alone", 5, limit=90)
    monkeypatch.setattr(streams, "LARGE", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    shared, _ = streams.split([source], tmp_path / "shared", 5, limit=90)
    assert shared.streams == alone.streams
    assert streams.damaged(tmp_path / "shared", alone) == []


def test_split_whose_process_is_killed_says_so_and_leaves_nothing(tmp_path, monkeypatch):
    (tmp_path / "data.jsonl").write_text("a\nb\n")
    monkeypatch.setattr(streams, "LARGE", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(streams, "_write_some", _kill_me)
    with pytest.raises(Transient, match="was killed"):
        streams.split([tmp_path / "data.jsonl"], tmp_path / "streams", 2)
    assert [path.name for path in tmp_path.iterdir()] == ["data.jsonl"]


def _kill_me(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_split_twice_is_once_and_a_changed_dataset_is_split_again(tmp_path):
    source = tmp_path / "data.jsonl"
    source.write_text("a\nb\nc\n")
    first = streams.split([source], tmp_path / "streams", 2)
    assert (first[0].samples, first[1]) == (3, True)
    assert streams.split([source], tmp_path / "streams", 2) == (first[0], False)
    source.write_text("a\nb\nc\nd\n")
    again, made = streams.split([source], tmp_path / "streams", 2)
    assert (again.samples, made) == (4, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.jsonl", "streams"]


def test_limit_is_of_each_stream_and_the_first_samples_are_taken(tmp_path):
    source = tmp_path / "data.jsonl"
    source.write_text("".join(f"{number}\n" for number in range(100)))
    made, _ = streams.split([source], tmp_path / "streams", 3, limit=2)
    assert together(tmp_path / "streams", made) == [b"%d" % number for number in range(6)]


def test_compressed_dataset_and_blank_lines_give_the_same_streams(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"1\n2\n3\n")
    with gzip.open(tmp_path / "b.jsonl.gz", "wb") as file:
        file.write(b"\n1\n  \n2\n3")
    plain, _ = streams.split([tmp_path / "a.jsonl"], tmp_path / "a", 2)
    packed, _ = streams.split([tmp_path / "b.jsonl.gz"], tmp_path / "b", 2)
    assert [one.sha256 for one in plain.streams] == [one.sha256 for one in packed.streams]


def test_stream_that_was_changed_or_lost_is_named(tmp_path):
    (tmp_path / "data.jsonl").write_text("a\nb\nc\n")
    made, _ = streams.split([tmp_path / "data.jsonl"], tmp_path / "streams", 3)
    (tmp_path / "streams" / "stream_000.jsonl").write_text("x\n")
    (tmp_path / "streams" / "stream_002.jsonl").unlink()
    assert streams.damaged(tmp_path / "streams", made) == ["stream_000.jsonl", "stream_002.jsonl"]


def test_split_that_was_killed_leaves_nothing_that_looks_done(tmp_path, monkeypatch):
    (tmp_path / "data.jsonl").write_text("a\nb\n")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(streams, "_replace", killed)
    with pytest.raises(KeyboardInterrupt):
        streams.split([tmp_path / "data.jsonl"], tmp_path / "streams", 2)
    assert streams.load(tmp_path / "streams") is None


def test_memory_does_not_grow_with_the_dataset(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "BLOCK", 1 << 16)
    source = tmp_path / "data.jsonl"
    source.write_bytes((b"x" * 999 + b"\n") * 20_000)
    tracemalloc.start()
    streams.split([source], tmp_path / "streams", 16)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 << 20


def test_bad_input_is_a_sentence(tmp_path):
    with pytest.raises(NotFound, match=r"none\.jsonl: No such file"):
        streams.split([tmp_path / "none.jsonl"], tmp_path / "streams", 2)
    with pytest.raises(Invalid, match="0 streams"):
        streams.split([], tmp_path / "streams", 0)
