"""Verdicts of `tpu cluster verify` from what hosts measured."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit import catalogue
from tpukit.cluster.verify import checks, comparison
from tpukit.cluster.verify.checks import CHECKS, MEMLOCK_BYTES, Network, Sample, Target

V6E = catalogue.find("v6e-16")
HOSTS = 4
GOOD = {
    "chips": 4,
    "memlock": MEMLOCK_BYTES,
    "ici": 90e9,
    "dcn": 9e9,
    "bucket-write": 0.2,
    "bucket-read": 0.1,
    "image": 20,
    "tensorboard": 3,
    "logs": 1,
    "notice": 0.5,
    "clock": 0.01,
}
BAD = {
    "chips": 3,
    "memlock": 65536,
    "ici": 1e9,
    "dcn": 1e6,
    "bucket-write": 60,
    "bucket-read": 60,
    "image": 900,
    "tensorboard": 600,
    "logs": 600,
    "notice": 31,
    "clock": 90,
}


def target(slices=1, ici=100e9, dcn=10e9):
    return Target("v6e-16", V6E, slices, Network(ici, dcn))


def samples(hosts=HOSTS, **values):
    return [Sample(f"0-{number}", {**GOOD, **values}) for number in range(hosts)]


def judged(found, slices=1, hosts=HOSTS, **networks):
    return {one.check: one for one in checks.judge(target(slices, **networks), found, hosts)}


def test_healthy_slice_passes_every_check():
    assert {one.state for one in judged(samples()).values()} == {"passed"}
    assert set(judged(samples(), slices=2)) == set(checks.NAMES)
    assert "dcn" not in judged(samples()), "one slice has no network to another"


def test_examples_cover_every_check():
    assert set(GOOD) == set(BAD) == set(checks.NAMES)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
@pytest.mark.parametrize("host", range(HOSTS))
def test_one_bad_host_fails_the_check_and_is_named_with_what_to_do(check, host):
    found = samples()
    found[host] = Sample(f"0-{host}", {**GOOD, check.name: BAD[check.name]})
    results = judged(found, slices=2)
    failed = [one for one in results.values() if one.state != "passed"]
    assert [(one.check, one.state, one.text) for one in failed] == [(check.name, "failed", f"0-{host}")]
    assert failed[0].advice == check.advice


@pytest.mark.parametrize("name", checks.NAMES)
def test_host_that_could_not_measure_fails_with_its_own_words(name):
    result = judged(samples(**{name: "403 denied"}), slices=2)[name]
    assert (result.state, result.text) == ("failed", "0-0: 403 denied")


@given(st.integers(0, HOSTS - 1))
def test_host_that_reported_nothing_is_never_passed(reported):
    assert {one.state for one in judged(samples(reported)).values()} == {"not seen"}


def test_bandwidth_that_no_source_states_has_no_verdict():
    result = judged(samples(), ici=None)["ici"]
    assert (result.state, result.value) == ("not seen", 90e9)


@given(st.floats(0, 1e12, allow_nan=False), st.floats(0, 1e12, allow_nan=False))
def test_more_bandwidth_never_turns_a_pass_into_a_failure(one, other):
    low, high = sorted((one, other))
    assert judged(samples(ici=low))["ici"].state == "failed" or judged(samples(ici=high))["ici"].state == "passed"


def test_change_between_runs_is_named_once_by_target_and_check():
    before = checks.judge(target(), samples(), HOSTS)
    now = checks.judge(target(), samples(image=250, clock=9), HOSTS)
    assert comparison.changes(before, before) == []
    assert comparison.changes(before, now) == ["v6e-16 image: was 20 s, is 250", "v6e-16 clock: was passed, is failed"]
    assert comparison.changes(before, checks.judge(target(), samples(image=28, notice=1.1), HOSTS)) == [], "noise"
    assert comparison.changes([], now[:1]) == ["v6e-16 chips: new, passed"]
    assert comparison.changes(now[:1], []) == ["v6e-16 chips: no longer checked"]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_bad_host_fails_the_check_although_others_reported_nothing(check):
    found = [Sample("0-3", {check.name: BAD[check.name]})]
    assert judged(found, slices=2)[check.name].state == "failed"


@pytest.mark.parametrize("name", checks.NAMES)
def test_check_without_a_measurement_has_the_reason_of_the_host_or_of_the_job(name):
    values = {other: value for other, value in GOOD.items() if other != name}
    reasons = [Sample(f"0-{number}", values, {name: "simulated"}) for number in range(HOSTS)]
    of_all = checks.judge(target(2), reasons, HOSTS, "the job ended")
    of_one = checks.judge(target(2), [Sample("0-1", values, {name: "broken"}), Sample("0-0", GOOD)], 2, "the job ended")
    of_none = checks.judge(target(2), [], HOSTS, "the job ended")
    assert {one.check: one.text for one in of_all if one.state == "not seen"} == {name: "simulated"}
    assert {one.check: one.text for one in of_one if one.state == "not seen"} == {name: "broken"}
    assert {(one.state, one.text) for one in of_none} == {("not seen", "the job ended")}
    assert checks.blind(of_none) == ["v6e-16 × 2"]
    assert not checks.blind(of_all)


@pytest.mark.parametrize(
    ("name", "share"), [("v6e-4", 0.5), ("v6e-16", 0.5), ("v5p-16", 0.5), ("v5p-8", 1 / 3), ("v6e-1", None)]
)
def test_bandwidth_is_expected_of_the_links_that_every_chip_uses(name, share):
    shape = catalogue.find(name)
    found = checks.judge(Target("pool", shape, 1, Network(100e9, None)), samples(1), 1)
    limits = [one.limit for one in found if one.check == "ici"]
    assert limits == ([pytest.approx(100e9 * share / 2)] if share else []), shape.topology


@given(st.sampled_from(catalogue.slices()), st.integers(1, 2))
def test_no_slice_is_expected_to_exceed_what_google_states(shape, slices):
    for one in checks.judge(Target("pool", shape, slices, Network(100e9, 10e9)), [], 1):
        assert one.limit is None or one.limit > 0
        assert one.check not in ("ici", "dcn") or one.limit <= {"ici": 50e9, "dcn": 5e9}[one.check]


def test_result_is_the_same_after_json():
    for one in checks.judge(target(), samples(clock="403 denied"), HOSTS):
        assert checks.Result.from_json(json.loads(json.dumps(one.to_json()))) == one
