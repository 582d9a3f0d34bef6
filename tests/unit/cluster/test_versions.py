"""Releases of JobSet and Kueue: which are refused, which are warned about, and which are newer than ours."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit.cluster import versions
from tpukit.core import resources

RELEASE = st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(0, 12))


def written(release):
    return "v" + ".".join(map(str, release))


@pytest.mark.parametrize("version", ["v0.16.6", "v0.16.7", "v0.17.1", "v0.17.2"])
def test_kueue_that_finishes_new_workloads_is_refused_with_its_issue(version):
    problem = versions.problem("Kueue", version, "_V")
    assert problem
    assert "https://github.com/kubernetes-sigs/kueue/issues/10901" in problem.what
    assert f"_V={versions.KUEUE}" in problem.hint


@pytest.mark.parametrize(
    ("version", "issues"),
    [
        ("v0.16.4", ["10206", "11151", "11647"]),
        ("v0.16.5", ["11151", "11647"]),
        ("v0.16.8", ["11647"]),
        ("v0.16.9", []),
        ("v0.17.0", ["11151", "11647"]),
        ("v0.17.3", ["11647"]),
        ("v0.17.4", []),
        ("v0.18.3", ["13025"]),
        ("v0.18.4", []),
        (versions.KUEUE, []),
    ],
)
def test_known_faults_of_a_release_are_named_with_their_issues(version, issues):
    assert versions.problem("Kueue", version, "_V") is None
    lines = versions.warnings("Kueue", version)
    assert [re.search(r"/(\d+)$", line)[1] for line in lines] == issues
    assert all(line.startswith(f"Kueue {version} ") for line in lines)


def test_releases_that_this_tpukit_installs_have_no_known_fault():
    for name, version in (("JobSet", versions.JOBSET), ("Kueue", versions.KUEUE)):
        assert (versions.problem(name, version, "_V"), versions.warnings(name, version)) == (None, [])


def test_jobset_that_counts_jobs_of_another_jobset_is_warned_about():
    (line,) = versions.warnings("JobSet", "v0.11.1")
    assert line.endswith("https://github.com/kubernetes-sigs/jobset/pull/1167")


@given(RELEASE, RELEASE)
def test_newer_follows_the_order_of_releases(one, other):
    assert versions.newer(written(one), written(other)) == (one > other)


@given(st.sampled_from(["JobSet", "Kueue"]), RELEASE)
def test_each_fault_covers_its_ranges_of_releases(name, release):
    found = versions.faults(name, written(release))
    for fault in versions.FAULTS:
        covers = fault.name == name and any(first <= release < fixed for first, fixed in fault.releases)
        assert (fault in found) == covers
    assert (versions.problem(name, written(release), "_V") is None) == (not any(fault.refused for fault in found))


@pytest.mark.parametrize("text", ["main", "v1", "", "latest"])
def test_text_that_is_no_release_is_not_newer_and_has_no_known_fault(text):
    assert not versions.newer(text, versions.KUEUE)
    assert versions.warnings("Kueue", text) == []


def test_page_lists_every_known_fault():
    page = (resources.folder("kueue") / "README.md").read_text(encoding="utf-8")
    for fault in versions.FAULTS:
        assert fault.link in page
