"""Results of a verification as text, JSON and JUnit, and what is kept of them."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from tpukit.cluster.verify import kept, report
from tpukit.cluster.verify.checks import Result

GOOD = Result("pool-0", "chips", "passed", 4.0, 4.0, "", "0-0")
BAD = Result("pool-0", "clock", "failed", 9.0, 2.0, "s", "0-1", "recreate the node")
UNSEEN = Result("pool-0", "ici", "not seen", None, 5e10, "bytes/s", "not measured on simulated chips")
ALL = [GOOD, BAD, UNSEEN]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "s", "-"),
        (4.0, "", "4"),
        (0.3124, "s", "0.312 s"),
        (64 * 2.0**30, "bytes", "64 GiB"),
        (512.0, "bytes", "512 B"),
        (float(1 << 62), "bytes", "unlimited"),
        (45.2e9, "bytes/s", "45.2 GB/s"),
        (12.0, "bytes/s", "12 B/s"),
    ],
)
def test_amounts_are_written_as_people_read_them(value, unit, text):
    assert report.amount(value, unit) == text


def test_only_results_with_verdicts_and_without_failures_pass():
    assert report.passed([GOOD, UNSEEN])
    assert not report.passed(ALL)
    assert not report.passed([])
    assert not report.passed([GOOD, replace(UNSEEN, target="pool-1")]), "nothing is known of pool-1"


def test_json_has_all_of_a_result_and_what_changed():
    document = json.loads(json.dumps(report.to_json("box", 7.0, ALL, ["chips: was failed"])))
    assert (document["cluster"], document["passed"], document["changes"]) == ("box", False, ["chips: was failed"])
    assert [Result.from_json(one) for one in document["results"]] == ALL
    assert document["results"][0]["what"] == "chips that a host can use"


def test_junit_has_a_case_for_each_check_and_skips_what_was_not_seen():
    suite = ET.fromstring(report.to_junit("box", [*ALL, replace(BAD, check="logs", text="<\x00&")], 3.0))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "2", "1")
    assert suite.find("testcase[@name='pool-0 clock']/failure").get("message") == (
        "9 s, limit 2 s: 0-1; recreate the node"
    )
    assert suite.find("testcase[@name='pool-0 ici']/skipped").get("message") == "not measured on simulated chips"
    assert len(suite.find("testcase[@name='pool-0 chips']")) == 0


def test_kept_results_are_read_again_and_damaged_ones_are_none(tmp_path):
    mine = kept.Kept(tmp_path, "uid-1")
    assert mine.read() == (0.0, [])
    mine.write(7.0, ALL)
    assert kept.Kept(tmp_path, "uid-1").read() == (7.0, ALL)
    assert kept.Kept(tmp_path, "uid-2").read() == (0.0, [])
    (file,) = (tmp_path / "verify").iterdir()
    for damaged in ("", "{", "[]", '{"at": 1, "results": [{}]}', '{"at": null, "results": []}'):
        file.write_text(damaged)
        assert mine.read() == (0.0, [])


def test_verification_of_one_pool_keeps_and_compares_nothing_of_the_others():
    other = replace(GOOD, target="pool-1")
    assert kept.merged([GOOD, other], [BAD], partial=True) == [other, BAD]
    assert kept.merged([GOOD, other], [BAD], partial=False) == [BAD]
    assert kept.comparable([GOOD, other], [BAD], partial=True) == [GOOD]
    assert kept.comparable([GOOD, other], [BAD], partial=False) == [GOOD, other]
