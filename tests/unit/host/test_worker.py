"""A worker of a fleet: it continues after an interruption, makes no shard twice, and reports why it stops."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.cramped import on_small_disk
from support.waiting import PATIENCE, until
from tpukit.fleet import streams
from tpukit.host import shards, worker
from tpukit.host.bucket import Folder
from tpukit.host.shards import Disagreement, Extraction, Run, Stream, Superseded

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = f"{ROOT / 'tests' / 'fixtures' / 'fleet_program.py'}:make"
RUN = Run(4, ".txt", "program.py:make", {}, "digest")


def dataset(folder: Path, samples: list[Any], count: int = 3) -> Path:
    source = folder / "data.jsonl"
    source.write_text("".join(f"{json.dumps(sample)}\n" for sample in samples))
    streams.split([source], folder / "streams", count)
    return folder / "streams"


def shards_of(output: Path) -> dict[str, bytes]:
    return {file.relative_to(output).as_posix(): file.read_bytes() for file in sorted(output.glob("*/shard_*"))}


def start(data: Path, output: Path, name: str, *words: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "tpukit.host.worker", "--data", str(data), "--output", str(output), *words]
    argv += ["--program", PROGRAM, "--worker", name, "--shard-samples", "4", "--home", str(output.parent / name)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = process.communicate(timeout=PATIENCE)
    return process.returncode, said


SAMPLES = [{"text": f"sample {number}"} for number in range(50)]


def test_worker_makes_every_shard_once_and_a_second_one_makes_nothing(tmp_path):
    data, output = dataset(tmp_path, SAMPLES), tmp_path / "out"
    code, said = ended(start(data, output, "w0"))
    assert code == 0, said
    made = shards_of(output)
    assert len(made) == 5 + 5 + 4
    assert b"".join(made.values()).count(b"\n") + len(made) == len(SAMPLES)
    times = {file: file.stat().st_mtime_ns for file in output.glob("*/*")}
    code, said = ended(start(data, output, "w1"))
    assert (code, "all 3 streams are done" in said) == (0, True)
    assert {file: file.stat().st_mtime_ns for file in output.glob("*/*")} == times
    checkpoint = json.loads((output / "checkpoints" / "stream_000.json").read_text())
    assert (checkpoint["status"], checkpoint["total_samples_processed"], checkpoint["total_shards"]) == (
        *("completed", 17, 5),
    )
    assert (tmp_path / "w0" / "worker.log").read_text().count("is done") == 3


def test_workers_killed_and_frozen_at_random_give_the_same_bytes_as_an_undisturbed_run(tmp_path):
    data, calm, output = dataset(tmp_path, SAMPLES), tmp_path / "calm", tmp_path / "out"
    assert ended(start(data, calm, "calm", "--option", "pause=0.05"))[0] == 0
    words = ("--option", "pause=0.05", "--claim-seconds", "2")
    first = [start(data, output, f"w{number}", *words, "--first", str(number)) for number in range(3)]
    until(lambda: len(shards_of(output)) >= 2, "shards")
    first[0].kill()
    with (output / ".lock").open("a") as lock:  # in a folder, unlike a bucket, a frozen lock holder stops all
        fcntl.flock(lock, fcntl.LOCK_EX)
        first[1].send_signal(signal.SIGSTOP)
    again = start(data, output, "w0", *words)  # as after a recreation
    try:
        assert ended(again)[0] == 0
        first[1].send_signal(signal.SIGCONT)  # it finds that its stream is taken and done
        assert [ended(one)[0] for one in first[1:]] == [0, 0]
    finally:
        for process in first:
            process.kill()
            process.communicate()
    assert shards_of(output) == shards_of(calm)


@pytest.mark.parametrize(("kind", "code"), [("raise", 1), ("kill", -signal.SIGKILL), ("hang", 75)])
def test_worker_in_trouble_leaves_with_a_code_and_the_next_one_goes_on(tmp_path, kind, code):
    samples = [{**sample, "trouble": kind} if number == 30 else sample for number, sample in enumerate(SAMPLES)]
    data, output, mark = dataset(tmp_path, samples), tmp_path / "out", tmp_path / "trouble"
    words = ("--option", f"trouble={mark}", "--claim-seconds", "3")
    end, said = ended(start(data, output, "w0", *words, "--patience", "4" if kind == "hang" else "600"))
    assert end == code, said
    assert kind != "raise" or "No space left on device" in said
    before = {name: (output / name).stat().st_mtime_ns for name in shards_of(output)}
    assert 0 < len(before) < 14
    assert ended(start(data, output, "w0", *words))[0] == 0
    assert len(shards_of(output)) == 14
    assert {name: (output / name).stat().st_mtime_ns for name in before} == before


def test_worker_told_to_leave_gives_its_claim_back(tmp_path):
    data, output = dataset(tmp_path, SAMPLES), tmp_path / "out"
    process = start(data, output, "w0", "--option", "pause=0.1")
    until(lambda: (output / "claims").is_dir() and shards_of(output), "a claim and a shard")
    process.terminate()
    assert ended(process)[0] == 143
    assert {json.loads(file.read_text())["worker"] for file in (output / "claims").iterdir()} == {""}


def test_worker_that_would_make_other_shards_is_refused(tmp_path):
    data, output = dataset(tmp_path, SAMPLES), tmp_path / "out"
    assert ended(start(data, output, "w0"))[0] == 0
    code, said = ended(start(data, output, "w1", "--option", "model=other"))
    assert code == 78
    assert "options was {}, and is {'model': 'other'} now" in said


def test_set_up_is_done_once_and_again_when_requirements_change_or_it_is_forced(tmp_path, monkeypatch):
    installed: list[list[str]] = []
    monkeypatch.setattr(worker, "_install", installed.append)
    file = tmp_path / "requirements.txt"
    file.write_text("numpy\n")
    assert [worker.set_up(file, tmp_path, force=force) for force in (False, False, True)] == [True, False, True]
    file.write_text("numpy>2\n")
    assert worker.set_up(file, tmp_path, force=False)
    assert len(installed) == 3


FULL_DISK = """
import contextlib, json, sys
from pathlib import Path
from tpukit.host import worker

small, base, what = Path(sys.argv[1]), Path({base!r}), {what!r}
home = small / "home" if what == "worker" else base / "home"
output = small / "out" if what == "output" else base / "out"
argv = ["--data", {data!r}, "--output", str(output), "--program", {program!r}, "--shard-samples", "4"]
argv += ["--worker", "w0", "--home", str(home), "--log", str(base / "log")]

def files():
    every = [file for file in output.rglob("*") if file.is_file()]
    return {{file.relative_to(output).as_posix(): file.stat().st_mtime_ns for file in every}}

home.mkdir(parents=True, exist_ok=True)
output.mkdir(parents=True, exist_ok=True)
filler = small / "filler"
with contextlib.suppress(OSError), filler.open("wb") as file:
    for _ in range({filler}):
        file.write(b"x" * 1024)
        file.flush()
codes, seen = [], []
with (base / "said").open("w") as said, contextlib.redirect_stdout(said):
    codes.append(worker.main(argv))
    seen.append(files())
    filler.unlink(missing_ok=True)
    codes.append(worker.main(argv))
    seen.append(files())
print(json.dumps({{"codes": codes, "seen": seen, "said": (base / "said").read_text()}}))
"""


@pytest.mark.parametrize(("what", "filler"), [("worker", 4096), ("output", 420)])
def test_worker_whose_disk_is_full_says_so_leaves_nothing_half_and_goes_on_when_there_is_room(tmp_path, what, filler):
    samples = [{"text": "x" * 1000, "number": number} for number in range(120)]
    data = dataset(tmp_path, samples)
    words = {"base": str(tmp_path), "data": str(data), "program": PROGRAM, "what": what, "filler": filler}
    found = on_small_disk(tmp_path / "small", 512, FULL_DISK.format(**words))
    if not found["full"]:
        pytest.skip("a small disk needs a mount of its own: root, or Linux that lets users `unshare --mount`")
    assert found["codes"] == [1, 0], found["said"]
    assert "No space left on device" in found["said"]
    before, after = found["seen"]
    assert not [name for name in before if "/.new-" in name]
    made = {name for name in after if "/shard_" in name}
    assert len(made) == 30
    assert {name: time for name, time in before.items() if "/shard_" in name}.items() <= after.items()
    assert what == "worker" or 0 < len(before.keys() & made) < 30


class Interrupted(Exception):
    pass


class Fragile:
    """A folder that fails at one of its calls, before or after the call takes effect."""

    def __init__(self, files: Folder, calls: int, after: bool) -> None:
        self._files, self._left, self._after = files, calls, after

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._files, name)

        def cut(*arguments: Any) -> Any:
            self._left -= 1
            if self._left == 0 and not self._after:
                raise Interrupted
            answer = call(*arguments)
            if self._left == 0:
                raise Interrupted
            return answer

        return cut


def text_of(samples: list[Any]) -> bytes:
    return json.dumps(samples).encode()


@given(count=st.integers(0, 13), cuts=st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=4))
def test_extraction_cut_off_anywhere_any_number_of_times_ends_with_the_same_shards(tmp_path_factory, count, cuts):
    folder = tmp_path_factory.mktemp("run")
    data = dataset(folder, [{"n": number} for number in range(count)], 1)
    (stream,) = [Stream(one.name, one.samples, one.sha256) for one in streams.load(data).streams]

    def work(files: Any) -> None:
        Extraction(Folder(data), files, stream, RUN, "w", "data", folder).work(text_of, lambda: None, lambda *_: None)

    for calls, after in cuts:
        try:
            work(Fragile(Folder(folder / "out"), calls, after))
        except Interrupted:
            continue
    work(Folder(folder / "out"))
    parts = [text_of([{"n": number} for number in range(first, min(first + 4, count))]) for first in range(0, count, 4)]
    assert list(shards_of(folder / "out").values()) == parts
    assert shards.completed(Folder(folder / "out")) == {stream.checkpoint}
    assert not list((folder / "out").rglob(".new-*"))


def test_shard_of_another_size_than_was_recorded_is_named(tmp_path):
    data = dataset(tmp_path, SAMPLES, 1)
    (stream,) = [Stream(one.name, one.samples, one.sha256) for one in streams.load(data).streams]
    parts = Folder(data), Folder(tmp_path / "out"), stream, RUN, "w", "data", tmp_path
    Extraction(*parts).work(text_of, lambda: None, lambda *_: None)
    (tmp_path / "out" / "stream_000" / "shard_00002.txt").write_bytes(b"short")
    with pytest.raises(Disagreement, match=r"shard_00002\.txt has 5 bytes"):
        Extraction(*parts).work(text_of, lambda: None, lambda *_: None)


def test_program_that_gives_other_bytes_for_the_same_samples_is_found_out(tmp_path):
    data = dataset(tmp_path, SAMPLES, 1)
    (stream,) = [Stream(one.name, one.samples, one.sha256) for one in streams.load(data).streams]
    output = Folder(tmp_path / "out")

    def meanwhile(samples: list[Any]) -> bytes:
        output.create("stream_000/shard_00000.txt", b"of another worker")
        return text_of(samples)

    work = Extraction(Folder(data), output, stream, RUN, "w", "data", tmp_path)
    with pytest.raises(Disagreement, match="does not produce the same bytes each time"):
        work.work(meanwhile, lambda: None, lambda *_: None)


def test_extraction_whose_checkpoint_another_worker_writes_leaves_it(tmp_path):
    data = dataset(tmp_path, SAMPLES, 1)
    (stream,) = [Stream(one.name, one.samples, one.sha256) for one in streams.load(data).streams]
    output = Folder(tmp_path / "out")

    def meanwhile(samples: list[Any]) -> bytes:
        output.replace("checkpoints/stream_000.json", b'{"shards": [], "status": "in_progress"}', "")
        return text_of(samples)

    work = Extraction(Folder(data), output, stream, RUN, "w", "data", tmp_path)
    with pytest.raises(Superseded):
        work.work(meanwhile, lambda: None, lambda *_: None)
