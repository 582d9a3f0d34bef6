"""Progress in log lines of trainers: a corpus of real lines, and invariants of any line."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tpukit.places import trainer_lines
from tpukit.places.trainer_lines import LINE_MOST, Mention, Reader

CORPUS = json.loads((Path(__file__).parents[2] / "fixtures" / "trainer-lines.json").read_text(encoding="utf-8"))


def expected(case: dict) -> Mention | None:
    mention = Mention(case.get("step"), case.get("loss"), case.get("saved"), case.get("total"))
    return None if mention == Mention() else mention


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: f"{case['from']}: {case['line'][-60:]!r}")
def test_read_line_of_the_corpus_gives_what_it_says(case):
    assert repr(Reader().read(case["line"])) == repr(expected(case))  # NaN is not equal to NaN


def test_read_hugging_face_loss_takes_the_step_of_the_bar_before_it():
    reader = Reader()
    assert reader.read("  2%|#         | 10/500 [00:05<04:00,  2.04it/s]") is None
    assert reader.read("{'loss': '2.105', 'grad_norm': '1.2', 'epoch': '0.01'}") == Mention(10, 2.105, total=500)


def test_read_with_a_pattern_takes_its_groups_and_nothing_else():
    reader = Reader(r"it=(?P<step>\d+) L=(?P<loss>\S+)|flushed (?P<saved>\d+)")
    assert reader.read("\x1b[1mit=7 L=0.5\x1b[0m") == Mention(7, 0.5)
    assert reader.read("flushed 6") == Mention(saved=6)
    assert reader.read("step 9 loss 1.0") is None
    assert reader.read("it=8 L=much") == Mention(8)


def test_read_with_a_pattern_that_is_none_reads_what_is_known_of_trainers():
    assert Reader("(?P<step>").read("step 9 loss 1.0") == Mention(9, 1.0)


def test_last_keeps_the_newest_step_and_the_highest_save():
    lines = ["step 1 loss 3", "saved checkpoint at step 1", "step 2 loss 2.5", "noise", "step 1 loss 3.0"]
    assert trainer_lines.last(lines) == Mention(1, 3.0, saved=1)


@given(st.one_of(st.text(), st.binary().map(lambda raw: raw.decode(errors="replace"))))
@example("step " + "9" * 5000 + " loss 1")
@example("loss: ١ step ٣")
@example("\r" * 5000)
def test_read_any_line_raises_nothing_and_gives_values_that_can_be_stored(line):
    for reader in (Reader(), Reader(r"(?P<step>\S+) (?P<loss>\S+)")):
        said = reader.read(line) or Mention()
        assert all(one is None or 0 <= one < 2**63 for one in (said.step, said.saved, said.total))
        assert said.loss is None or math.isfinite(said.loss)


@given(st.integers(0, 10**12), st.floats(-1e6, 1e6), st.sampled_from(["step {} loss {:.6f}", "iter {}: loss {:.6f}"]))
def test_read_any_step_and_loss_are_read_back(step, loss, form):
    said = Reader().read(form.format(step, loss))
    assert said is not None
    assert (said.step, said.loss) == (step, float(f"{loss:.6f}"))


@pytest.mark.parametrize(
    "piece", ["step ", "loss ", "step 1 loss ", "0", " ", "[1] ", "\x1b[", "saved checkpoint ", "|1/2 [", "'", "1,"]
)
def test_read_line_made_to_be_slow_takes_a_few_milliseconds(piece):
    line = piece * (4 * LINE_MOST // len(piece))
    reader = Reader()
    start = time.thread_time()
    for _ in range(10):
        reader.read(line)
    assert time.thread_time() - start < 0.5
