"""Saves detected from the files of a workdir alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpukit.drill import saves
from tpukit.drill.following import Following
from tpukit.drill.saves import File, Moment, Saves
from tpukit.drill.sites import Folders


class Workdir:
    """Files as a program writes them, sampled every hundredth of a second."""

    def __init__(self):
        self.files, self.moments, self.now, self.inode = {}, [], 1000.0, 0

    def write(self, path, size):
        self.inode += 1
        self.files[path] = File(self.inode, size, self.inode)

    def append(self, path, size):
        self.inode += 1
        old = self.files.get(path, File(self.inode, 0, 0))
        self.files[path] = File(old.inode, old.size + size, self.inode)

    def rename(self, old, new):
        self.files[new] = self.files.pop(old)

    def tick(self, step):
        self.now += 0.01
        if not self.moments or self.moments[-1].files != self.files:
            self.moments.append(Moment(self.now, step, dict(self.files)))


def train(workdir, steps, every, *, atomic=True, name="checkpoints/{}/state", extra=lambda workdir, step: None):
    for step in range(1, steps + 1):
        extra(workdir, step)
        workdir.tick(step)
        if step % every == 0:
            path = name.format(step)
            first = f"{path}.tmp" if atomic else path
            workdir.write(first, 50)
            workdir.tick(step)
            workdir.append(first, 50)
            workdir.tick(step)
            if atomic:
                workdir.rename(first, path)
            workdir.tick(step)
        for _ in range(5):
            workdir.tick(step)
    ignore = saves.not_saves(workdir.moments, steps)
    return saves.seen(workdir.moments, ignore), ignore


@settings(max_examples=20)
@given(st.integers(12, 60), st.integers(4, 12), st.booleans())
def test_seen_every_save_is_found_with_its_step_and_size(steps, every, atomic):
    found, _ = train(Workdir(), steps, every, atomic=atomic)
    assert [save.step for save in found] == list(range(every, steps + 1, every))
    assert all(save.done and save.named and save.size == 100 for save in found)


def test_seen_one_file_that_is_replaced_is_saved_at_the_step_that_was_reported():
    found, _ = train(Workdir(), 30, 10, name="state.json")
    assert [save.step for save in found] == [10, 20, 30]
    assert not any(save.named for save in found)


def test_seen_logs_metrics_and_meeting_files_are_no_saves():
    def extra(workdir, step):
        workdir.append("metrics.jsonl", 80)
        workdir.write(f"meeting/{step}", 0)
        workdir.write("latest-gradient.bin", 64)

    found, ignore = train(Workdir(), 40, 10, extra=extra)
    assert [save.step for save in found] == [10, 20, 30, 40]
    assert ignore == {"metrics.jsonl", "meeting/#", "latest-gradient.bin"}


def test_seen_program_that_saves_every_step_is_taken_at_its_word():
    found, _ = train(Workdir(), 20, 1)
    assert [save.step for save in found] == list(range(1, 21))


def test_observe_save_is_under_way_until_nothing_unfinished_is_left():
    watched, workdir = Saves(), Workdir()
    workdir.write("checkpoints/20.orbax-checkpoint-tmp/state", 10)
    watched.observe(Moment(1.0, 20, dict(workdir.files)))
    assert (watched.current.step, watched.current.named) == (20, True)
    watched.observe(Moment(9.0, 25, dict(workdir.files)))
    assert watched.current is not None
    workdir.rename("checkpoints/20.orbax-checkpoint-tmp/state", "checkpoints/20/state")
    watched.observe(Moment(9.1, 25, dict(workdir.files)))
    watched.observe(Moment(9.2, 26, dict(workdir.files)))
    assert watched.current is None
    (save,) = watched.history
    assert (save.step, save.done, save.began) == (20, True, 1.0)
    assert save.paths == ("checkpoints/20/state",)


def test_observe_who_looks_rarely_sees_two_saves_all_the_same():
    watched, workdir = Saves(), Workdir()
    workdir.write("checkpoints/10.tmp/state", 10)
    watched.observe(Moment(1.0, 10, dict(workdir.files)))
    workdir.rename("checkpoints/10.tmp/state", "checkpoints/10/state")
    workdir.write("checkpoints/20.tmp/state", 10)
    watched.observe(Moment(1.5, 20, dict(workdir.files)))
    assert watched.current.step == 20
    workdir.rename("checkpoints/20.tmp/state", "checkpoints/20/state")
    watched.observe(Moment(2.0, 29, dict(workdir.files)))
    watched.observe(Moment(2.1, 29, dict(workdir.files)))
    assert [(save.step, save.done) for save in watched.history] == [(10, True), (20, True)]


def test_observe_what_a_killed_attempt_left_unfinished_holds_up_no_later_save():
    watched, workdir = Saves(), Workdir()
    workdir.write("checkpoints/10.tmp/state", 10)
    watched.observe(Moment(1.0, 10, dict(workdir.files)))
    watched.end()
    workdir.write("checkpoints/20/state", 10)
    watched.observe(Moment(2.0, 20, dict(workdir.files)))
    watched.observe(Moment(2.1, 20, dict(workdir.files)))
    assert [(save.step, save.done) for save in watched.history] == [(10, False), (20, True)]


def test_observe_pause_within_a_save_is_one_save():
    watched, workdir = Saves(), Workdir()
    workdir.write("checkpoints/20/host-0", 10)
    watched.observe(Moment(1.0, 20, dict(workdir.files)))
    watched.observe(Moment(1.1, 20, dict(workdir.files)))
    workdir.write("checkpoints/20/host-1", 10)
    watched.observe(Moment(1.2, 20, dict(workdir.files)))
    watched.observe(Moment(1.3, 21, dict(workdir.files)))
    (save,) = watched.history
    assert (save.began, save.changed, save.size) == (1.0, 1.2, 20)


def test_files_leave_out_the_marker_of_the_job(tmp_path):
    for name in (".tpukit/job", "checkpoint-1"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert set(saves.files(tmp_path)) == {"checkpoint-1"}


def test_files_of_a_real_folder_leave_out_tensorboard_and_what_vanishes(tmp_path):
    for name in ("checkpoints/10/state", "tensorboard/train/events.out.tfevents.1", "metrics.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    assert {"checkpoints/10/state", "metrics.jsonl"} <= saves.files(tmp_path).keys()
    assert not [path for path in saves.files(tmp_path) if "tensorboard" in path]
    assert saves.files(Path(tmp_path, "missing")) == {}


def test_pause_between_polls_counts_by_its_length(tmp_path):
    following = Following(Folders(str(tmp_path), tmp_path, str(tmp_path), tmp_path))
    assert following.pause == 0.0
    for now in (5.0, 6.0, 6.1, 6.2, 6.3):
        following.poll((), now)
    assert following.pause == pytest.approx((1.0 + 3 * 0.01) / 1.3)
