"""`progress:` of a job file: accepted patterns, and refused ones with their line and a hint."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpukit.core.errors import Invalid
from tpukit.jobs import spec
from tpukit.jobs.spec import patterns
from tpukit.jobs.spec.forms import Refusal
from tpukit.places import trainer_lines

FILE = "name: a\ntpu: v4-8\ncommand: [x]\nprogress: '{}'\n"

WRONG = {
    "not a pattern": ("step (?P<step>", "this is not a valid pattern"),
    "no group": (r"step \d+", "the pattern has no group for a step"),
    "only a loss": (r"loss (?P<loss>\S+)", "the pattern has no group for a step"),
    "another group": (r"(?P<stpe>\d+)", "there is no group"),
    "fits all": (r"(?P<step>\d*)", "the pattern matches every line"),
    "a repeat of a repeat": (r"(a+)+ (?P<step>\d+)", "the pattern repeats a repeat"),
    "a repeat of a repeat, counted": (r"(a{1,9}){20,40}b(?P<step>\d+)", "the pattern repeats a repeat"),
    "a choice that is repeated": (r"(a|aa)* (?P<step>\d+)x", "repeats a repeat or a choice"),
    "many repeats in a row": (r".*.*.*.*.*(?P<step>\d+)x", "the pattern takes too long"),
}


@pytest.mark.parametrize(("pattern", "said"), WRONG.values(), ids=WRONG)
def test_load_wrong_pattern_is_refused_with_its_line_and_a_hint(pattern, said):
    start = time.thread_time()
    with pytest.raises(Invalid) as refused:
        spec.loads(FILE.format(pattern), "job.yaml")
    assert time.thread_time() - start < 5
    (problem,) = refused.value.problems
    assert problem.where == "job.yaml:4"
    assert said in problem.what
    assert problem.hint


@pytest.mark.parametrize(
    "pattern",
    [
        r"it=(?P<step>\d+) L=(?P<loss>\S+)|flushed (?P<saved>\d+)",
        r"^.*step (?P<step>\d+).*loss (?P<loss>\S+)",
        r"(?i)(?:epoch|round) \d+ batch (?P<step>\d+)/(?P<total>\d+)",
        r"\[(?P<step>\d{1,9})\]",
    ],
)
def test_load_pattern_that_people_write_is_taken_and_used(pattern):
    job = spec.loads(FILE.format(pattern), "job.yaml")
    assert job.progress == pattern
    assert spec.JobSpec.from_json(job.to_json()) == job


def test_set_progress_needs_no_quotes():
    job = spec.loads(FILE.format("x (?P<step>[0-9]+)"), "job.yaml", ["progress=(?P<step>[0-9]+): done"])
    assert job.progress == "(?P<step>[0-9]+): done"


_ATOMS = st.sampled_from([".", r"\d", r"\S", "[^,]", "a", " ", "0", r"(?P<step>\d+)", "(a|0)", "(0a)", "(?:a+)"])
_REPEATS = st.sampled_from(["", "", "*", "+", "?", "*?", "{2}", "{1,40}", "{3,}"])


@settings(max_examples=30)
@given(st.lists(st.tuples(_ATOMS, _REPEATS), min_size=1, max_size=8), st.text("0a =:step", max_size=600))
def test_check_any_pattern_that_is_taken_reads_any_line_soon(parts, line):
    pattern = "".join(atom + repeat for atom, repeat in parts)
    try:
        patterns.check(pattern)
    except Refusal:
        return
    start = time.thread_time()
    trainer_lines.Reader(pattern).read(line)
    assert time.thread_time() - start < 1
