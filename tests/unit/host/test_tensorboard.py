"""Scalars of a job read back once each from the event files, into a folder or TensorBoard's own reader."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.waiting import PATIENCE, until
from tpukit.host import tensorboard_events
from tpukit.host.scalars import Scalars
from tpukit.host.tensorboard import main
from tpukit.host.tensorboard_events import EventFile, event_files


def write(folder, steps, *, offset=0.0):
    scalars = Scalars(str(folder))
    for step in steps:
        scalars.write(step, loss=step + offset)
    scalars.close()


def read_all(logdir):
    found = []
    for run, path in event_files(logdir):
        scalars, _ = EventFile(path).new()
        found += [(run, scalar.tag, scalar.step, scalar.value) for scalar in scalars]
    return found


def test_read_gives_what_was_written(tmp_path):
    write(tmp_path / "train", range(1, 4))
    assert read_all(tmp_path) == [("train", "loss", step, float(step)) for step in (1, 2, 3)]


def test_read_file_in_the_logdir_itself_has_a_run_name(tmp_path):
    write(tmp_path, [1])
    assert read_all(tmp_path) == [("run", "loss", 1, 1.0)]


def test_read_goes_on_where_it_was_taken(tmp_path):
    scalars = Scalars(str(tmp_path))
    scalars.write(1, loss=1.0)
    scalars.flush()
    [(_, path)] = event_files(tmp_path)
    file = EventFile(path)
    first, position = file.new()
    assert file.new() == (first, position), "what was not taken is given again"
    file.taken(position)
    assert file.new()[0] == []
    scalars.write(2, loss=2.0)
    scalars.close()
    assert [scalar.step for scalar in file.new()[0]] == [2]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_read_file_cut_anywhere_gives_a_beginning_of_it_and_then_the_rest(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("cut")
    write(folder, range(5))
    [(_, path)] = event_files(folder)
    whole = path.read_bytes()
    steps = [scalar.step for scalar in EventFile(path).new()[0]]
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    file = EventFile(path)
    before, position = file.new()
    file.taken(position)
    path.write_bytes(whole)
    after, _ = file.new()
    assert [scalar.step for scalar in before + after] == steps


def test_read_damaged_record_ends_that_file_with_a_warning(tmp_path, caplog):
    write(tmp_path, range(5))
    [(_, path)] = event_files(tmp_path)
    content = bytearray(path.read_bytes())
    content[-10] ^= 0xFF
    path.write_bytes(content)
    file = EventFile(path)
    assert [scalar.step for scalar in file.new()[0]] == [0, 1, 2, 3]
    assert file.new()[0] == []
    assert len(caplog.records) == 1


def test_scalars_of_a_resumed_attempt_replace_what_it_repeats(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    write(tmp_path, range(1, 21))
    time.sleep(1.1)  # event file names are ordered by the second
    write(tmp_path, range(15, 31), offset=0.5)
    board = EventAccumulator(str(tmp_path))
    board.Reload()
    seen = [(event.step, event.value) for event in board.Scalars("loss")]
    assert seen == [(step, float(step)) for step in range(1, 15)] + [(step, step + 0.5) for step in range(15, 31)]


def test_scalars_once_prepared_load_nothing_when_they_are_written(tmp_path):
    program = f"""
import sys
from tpukit.host.scalars import Scalars
scalars = Scalars({str(tmp_path / "run")!r})
scalars.prepare()
loaded = set(sys.modules)
scalars.write(10, loss=1.0)
scalars.close()
print(sorted(set(sys.modules) - loaded))
"""
    env = {**os.environ, "PYTHONPATH": str(Path(tensorboard_events.__file__).parents[2])}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env)
    assert ran.stdout == "[]\n"
    assert read_all(tmp_path) != []


def test_scalars_on_a_path_that_cannot_be_one_warn_and_go_on(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    scalars = Scalars(str(tmp_path / "file" / "folder"))
    scalars.write(1, loss=1.0)
    scalars.close()
    assert "training continues" in caplog.text


def test_main_once_copies_new_files_whole_and_leaves_the_rest(tmp_path):
    logdir, target = tmp_path / "log", tmp_path / "board"
    write(logdir / "train", range(3))
    assert main(["--logdir", str(logdir), "--to", str(target), "--once"]) == 0
    [(_, copy)] = event_files(target)
    before = copy.stat().st_mtime_ns
    assert main(["--logdir", str(logdir), "--to", str(target), "--once"]) == 0
    assert copy.stat().st_mtime_ns == before
    assert read_all(target) == read_all(logdir)
    assert [path for path in target.rglob("*") if path.is_file()] == [copy]


def test_main_told_to_leave_makes_a_last_pass(tmp_path):
    logdir, target = tmp_path / "log", tmp_path / "board"
    command = [sys.executable, "-m", "tpukit.host.tensorboard", "--logdir", str(logdir), "--to", str(target)]
    uploader = subprocess.Popen([*command, "--every", "0.1"], stderr=subprocess.PIPE, text=True)
    write(logdir / "train", range(3))
    until(target.exists, "its first pass")
    uploader.send_signal(signal.SIGSTOP)  # so that only the last pass can see the next writes
    write(logdir / "eval", range(3))
    uploader.send_signal(signal.SIGTERM)
    uploader.send_signal(signal.SIGCONT)
    uploader.communicate(timeout=PATIENCE)
    assert uploader.returncode == 0
    assert {run for run, *_ in read_all(target)} == {"train", "eval"}


def test_main_full_disk_is_said_and_fails_once(tmp_path, caplog):
    write(tmp_path / "log", [1])
    (tmp_path / "board").write_text("in the way")
    assert main(["--logdir", str(tmp_path / "log"), "--to", str(tmp_path / "board"), "--once"]) == 1
    assert "not uploaded yet" in caplog.text


def test_main_nowhere_to_go_ends_well(tmp_path):
    assert main(["--logdir", str(tmp_path)]) == 0


def test_main_logdir_that_is_not_there_yet_is_no_error(tmp_path):
    assert main(["--logdir", str(tmp_path / "later"), "--to", str(tmp_path / "board"), "--once"]) == 0


@pytest.mark.parametrize(
    "options", [["--tensorboard", "projects/p/locations/r/tensorboards/1"], ["--tensorboard", "x", "--to", "y"]]
)
def test_main_contradicting_options_are_misuse(tmp_path, options):
    with pytest.raises(SystemExit, match="2"):
        main(["--logdir", str(tmp_path), *options])


def test_event_files_are_found_without_a_search_below_which_buckets_refuse(tmp_path):
    class Bucket(type(tmp_path)):
        """A folder that behaves like a Cloud Storage folder of etils."""

        def rglob(self, pattern, **options):
            raise NotImplementedError("Recursive `**` pattern not supported")

        glob = rglob

    for name in ("train/events.out.tfevents.2", "train/deep/events.out.tfevents.1", "train/other.txt"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    found = event_files(Bucket(tmp_path))
    assert [(run, path.name) for run, path in found] == [
        ("train/deep", "events.out.tfevents.1"),
        ("train", "events.out.tfevents.2"),
    ]
    assert event_files(Bucket(tmp_path / "nothing")) == []
