"""Logs for people: from the pods, from this machine, from Cloud Logging; and the message when there are none."""

from __future__ import annotations

import pytest

from support.fake_cluster import DirectLister
from support.gke_driving import Driving
from tpukit.core.errors import Denied, NotFound
from tpukit.jobs.reasons import State
from tpukit.places.base import Handle, Line
from tpukit.places.gke.log_reading import LogReader


@pytest.fixture
def driving(tmp_path):
    driving = Driving(tmp_path)
    yield driving
    driving.close()


def reader(driving, archive=lambda handle, host: iter(())):
    lister = DirectLister(driving.cluster, driving.clock)
    return LogReader(lister, driving.clock, driving.place._cache, archive)


def lines(driving, job_id, number=None, host="", follow=False, **options):
    logs = reader(driving, **options).logs(Handle.of(driving.job(job_id), number), host, follow=follow)
    return [f"{line.host.removeprefix(job_id + '-')}: {line.text}" for line in logs]


def say(driving, job_id, text):
    for one in driving.cluster.pods(job_id):
        driving.cluster.say(one, text)


def test_logs_of_a_running_attempt_come_from_its_pods_each_line_once(driving):
    job_id = driving.send()
    driving.run(job_id)
    say(driving, job_id, "one")
    driving.tick(2)
    say(driving, job_id, "two")
    say(driving, job_id, 'tpukit-progress {"step": 1}')
    shown = lines(driving, job_id)
    assert sorted(shown) == sorted(
        f"slice-{part}-{host}: {text}" for part in (0, 1) for host in (0, 1) for text in ("one", "two")
    )
    assert lines(driving, job_id, host=f"{job_id}-slice-1-0") == ["slice-1-0: one", "slice-1-0: two"]


def test_logs_of_an_earlier_attempt_come_from_this_machine_when_its_pods_are_gone(driving):
    job_id = driving.send(rule="pre")
    driving.run(job_id)
    say(driving, job_id, "first attempt")
    driving.tick(2)
    driving.cluster.fail(job_id, "preempted")
    driving.cluster.restart(job_id)
    driving.cluster.start(job_id)
    driving.until(job_id, State.RUNNING)
    driving.tick(2)
    say(driving, job_id, "second attempt")
    driving.tick(2)
    assert {line.partition(": ")[2] for line in lines(driving, job_id, 0)} == {"first attempt"}
    assert {line.partition(": ")[2] for line in lines(driving, job_id)} == {"second attempt"}


def test_logs_that_nobody_read_come_from_cloud_logging(driving):
    job_id = driving.send()
    driving.run(job_id)
    driving.cluster.complete(job_id)
    driving.until(job_id, State.COMPLETED)
    driving.cluster.forget(job_id)

    def archive(handle, host):
        yield Line(f"{job_id}-slice-0-0", "from the archive")

    assert lines(driving, job_id, archive=archive) == ["slice-0-0: from the archive"]


def test_logs_that_are_nowhere_say_what_was_tried(driving):
    job_id = driving.send()
    driving.run(job_id)
    driving.cluster.complete(job_id)
    driving.until(job_id, State.COMPLETED)
    driving.cluster.forget(job_id)
    with pytest.raises(
        NotFound,
        match=r"pods were deleted, this machine has no copy of their logs, and Cloud Logging has no lines of it",
    ):
        lines(driving, job_id)

    def archive(handle, host):
        raise Denied("Cloud Logging denies you the logs", hint="ask its owner")
        yield

    with pytest.raises(NotFound, match="denies you the logs") as raised:
        lines(driving, job_id, archive=archive)
    assert raised.value.hint == "ask its owner"


@pytest.mark.parametrize("seed", range(5))
def test_logs_followed_through_broken_connections_have_each_line_once_until_the_end(tmp_path, seed):
    driving = Driving(tmp_path, seed)
    job_id = driving.send()
    driving.run(job_id)
    cluster = driving.cluster
    said = []

    def live() -> None:
        number = len(said)
        if number < 30:
            said.append(f"line {number}")
            for one in cluster.pods(job_id):
                cluster.say(one, said[-1])
        elif cluster.jobset(job_id)["status"]["conditions"] == []:
            cluster.complete(job_id)
        if cluster.dice.random() < 0.2:
            cluster.faults[cluster.calls] = "refused"

    logs = reader(driving).logs(Handle.of(driving.job(job_id)), "", follow=True)
    say(driving, job_id, "line -1")
    first = next(logs)
    cluster.meanwhile = live
    seen = [first, *logs]
    for name in {line.host for line in seen}:
        assert [line.text for line in seen if line.host == name] == ["line -1", *said]
    assert len({line.host for line in seen}) == 4
    driving.close()


def test_tail_comes_from_the_pod_and_from_this_machine_when_the_pod_is_gone(driving):
    job_id = driving.send(rule="pre")
    driving.run(job_id)
    for number in range(60):
        say(driving, job_id, f"line {number}")
    driving.tick(2)
    handle = Handle.of(driving.job(job_id))
    host = f"{job_id}-slice-0-0"
    assert reader(driving).tail(handle, host, 20) == ["line 58", "line 59"]
    driving.cluster.fail(job_id, "preempted")
    driving.cluster.restart(job_id)
    assert reader(driving).tail(handle, host, 20)[-1] == "line 59"
