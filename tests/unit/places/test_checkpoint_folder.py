"""Saved checkpoints, detected from names under a workdir."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit.places import checkpoint_folder
from tpukit.places.checkpoint_folder import newest, step

SAVED = {
    "orbax": ("run/checkpoints/20/_CHECKPOINT_METADATA", 20),
    "orbax in a folder of another name": ("run/out/20/commit_success.txt", 20),
    "orbax, unfinished": ("run/checkpoints/20.orbax-checkpoint-tmp/x", -1),
    "orbax, unfinished, with a stamp": ("run/checkpoints/20.orbax-checkpoint-tmp-1700000000/x", -1),
    "Hugging Face": ("checkpoint-500/trainer_state.json", 500),
    "step_N": ("step_7/state.npz", 7),
    "a file": ("ckpt-12.npz", 12),
    "a file that is written": ("ckpt-12.npz.tmp", -1),
    "a file that is written, by another name": (".ckpt-12.npz.abc", -1),
    "zeros before it": ("ckpts/step_00000040.pt", 40),
    "a year": ("tensorboard/2026/events", -1),
    "a number in no folder of checkpoints": ("data/123/rows", -1),
    "too deep": ("a/b/c/d/e/checkpoint-5/x", -1),
}


@pytest.mark.parametrize(("path", "saved"), SAVED.values(), ids=SAVED)
def test_newest_knows_the_names_of_checkpoints(tmp_path, path, saved):
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x")
    assert newest(tmp_path, 0.0) == saved


def test_newest_of_an_earlier_run_counts_for_nothing(tmp_path):
    for number, at in ((9000, 1000.0), (3, 2000.0)):
        (tmp_path / f"step_{number}").mkdir()
        os.utime(tmp_path / f"step_{number}", (at, at))
    assert newest(tmp_path, 1500.0) == 3
    assert newest(tmp_path / "nothing", 0.0) == -1


def test_newest_in_a_workdir_with_a_data_set_ends_soon(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_folder, "ENTRIES_MOST", 10)
    for number in range(20):
        (tmp_path / f"row-{number:03}.txt").touch()
    assert newest(tmp_path, 0.0) == -1


@given(st.text(max_size=60), st.sampled_from(["checkpoints", "x"]))
def test_step_any_name_raises_nothing(name, parent):
    assert (step(name, parent) or 0) < 10**18
