"""Samples from the lines of hosts and from their pods."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.gke_world import time
from tpukit.cluster.verify import evidence
from tpukit.cluster.verify.evidence import Evidence, Heard
from tpukit.host import probe

AT = 1_700_000_000.0


def heard(host="0-0", at=AT, arrived=AT + 1, **more):
    document = {"host": host, "at": at, "values": {"chips": 4}, "unseen": {}, "done": True, **more}
    return Heard(document, arrived)


def pod(host="0-0", placed=AT, started=AT + 20, waiting=None, **metadata):
    state = {"waiting": waiting} if waiting else {"running": {"startedAt": time(started)}}
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": time(placed)}
    return {
        "metadata": {"name": f"verify-abc-slice-{host}-xyz12", **metadata},
        "spec": {"nodeName": f"node-{host}"},
        "status": {"conditions": [condition], "containerStatuses": [{"name": "host", "state": state}]},
    }


def sample(*lines, pods=(), asked=None, **more):
    (found,) = evidence.samples("verify-abc", Evidence(lines, pods, asked, **more))
    return found


def test_program_and_reader_agree_on_the_prefix_of_lines(capsys):
    report = probe.Report("1-0")
    report.measure("chips", lambda: 4)
    report.print(done=True)
    found = evidence.parse(capsys.readouterr().out.rstrip(), AT)
    assert (found.host, found.document["values"], found.told) == ("1-0", {"chips": 4}, None)
    assert evidence.LINE == probe.LINE


@given(st.text())
def test_other_lines_and_damaged_ones_are_no_evidence(text):
    assert evidence.parse(text, AT) is None or text.startswith(evidence.LINE)
    assert evidence.parse(f"{evidence.LINE}{text}", AT) is None or text.startswith("{")


@pytest.mark.parametrize("document", ["[]", "{}", '{"host": "0-0"}', '{"host": "0-0", "at": "x"}', '{"host": 1'])
def test_document_without_host_and_time_is_no_evidence(document):
    assert evidence.parse(evidence.LINE + document, AT) is None


def test_last_line_of_a_host_counts_and_its_delay_is_that_of_the_fastest():
    early = heard(at=AT, arrived=AT + 9, values={"chips": "not yet"}, done=False)
    found = sample(heard(at=AT + 10, arrived=AT + 12), early)
    assert found.values == {"chips": 4, "logs": 2.0}
    assert evidence.complete([early]) == set()


def test_line_that_seems_to_come_before_it_was_printed_has_no_delay():
    assert sample(heard(at=AT, arrived=AT - 0.5)).values["logs"] == 0


@given(st.dictionaries(st.text(max_size=5), st.one_of(st.none(), st.booleans(), st.lists(st.integers()))))
def test_values_that_are_neither_numbers_nor_texts_are_left_out(values):
    assert set(sample(heard(values=values)).values) == {"logs"}


def test_image_takes_from_the_node_to_the_start_of_the_container():
    assert sample(heard(), pods=[pod()]).values["image"] == 20
    assert sample(pods=[pod()]).values == {"image": 20}, "a host that prints nothing"


def test_image_that_cannot_be_pulled_has_the_words_of_the_node():
    refused = pod(waiting={"reason": "ImagePullBackOff", "message": "403"})
    assert sample(pods=[refused]).values == {"image": "ImagePullBackOff: 403"}
    assert not evidence.samples("verify-abc", Evidence((), [pod(waiting={"reason": "ContainerCreating"})]))


def test_notice_counts_from_the_deletion_of_the_pod_or_else_from_the_stop():
    told = heard(told=AT + 33, done=True)
    assert sample(told, asked=AT + 30).values["notice"] == 3
    leaving = pod(deletionTimestamp=time(AT + 62), deletionGracePeriodSeconds=30)
    assert sample(told, pods=[leaving], asked=AT + 30).values["notice"] == 1


def test_host_without_a_line_about_sigterm_is_not_seen_rather_than_failed():
    found = sample(heard(), asked=AT)
    assert "notice" not in found.values
    assert "SIGTERM" in found.unseen["notice"]
    assert not sample(heard()).unseen, "nothing asked it to leave"


def test_end_of_the_job_that_decides_a_check_is_a_sample_too():
    (found,) = evidence.samples("verify-abc", Evidence(refused={"chips": "denied"}))
    assert found.values == {"chips": "denied"}
