"""A JobSet deleted after submission, on any machine, is not sent again; nor is a job that is to stop."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from support.fake_cluster import Killed
from support.gke_driving import Driving, place_on
from tpukit.jobs.controller.driver import Driver
from tpukit.jobs.reasons import State
from tpukit.jobs.records import JOBS
from tpukit.kernel.store import Holder, change
from tpukit.kernel.store.process import this_process
from tpukit.places.gke.attempts import Position


@pytest.fixture
def driving(tmp_path):
    driving = Driving(tmp_path)
    yield driving
    driving.close()


def second_driver(driving):
    """Return a driver on another machine that shares the store."""
    me = this_process()
    place = place_on(driving.cluster, driving.folder / "other")
    return Driver(driving.store, {"gke": place}, driving.clock, Holder("other", "other-machine", me.pid, me.started))


def created(driving):
    return driving.cluster.log.count("create JobSet")


def test_detached_job_whose_jobset_another_machine_deleted_before_it_was_observed_is_not_sent_again(driving):
    job_id = driving.send()
    driving.tick()
    driving.cluster.forget(job_id)
    driving.new_driver()
    job = driving.until(job_id, State.CANCELLED, State.FAILED)
    assert (created(driving), job.state) == (1, State.CANCELLED)
    driving.tick(5)
    assert created(driving) == 1


def test_record_names_the_jobset_once_it_is_sent(driving):
    job_id = driving.send()
    driving.tick()
    known = Position.of(driving.job(job_id).attempt.learned)
    assert known == Position(driving.cluster.jobset(job_id)["metadata"]["uid"])


def test_driver_that_is_killed_between_sending_and_writing_leaves_a_job_that_runs_once(driving):
    job_id = driving.send()
    put = driving.store.put

    def killed(kind, entry, value, **options):
        if value.attempts and value.attempts[-1].learned:
            driving.store.put = put
            raise Killed
        return put(kind, entry, value, **options)

    driving.store.put = killed
    driving.tick()
    driving.run(job_id)
    assert (created(driving), driving.job(job_id).state) == (1, State.RUNNING)


def test_stop_that_comes_while_a_jobset_is_sent_is_not_lost(driving):
    job_id = driving.send()
    asked = []

    def meanwhile():
        if driving.cluster.log[-1:] == ["create JobSet"] and not asked:
            asked.append(True)
            driving.stop(job_id)

    created_by = driving.cluster.create

    def create(document, **options):
        made = created_by(document, **options)
        meanwhile()
        return made

    driving.cluster.create = create
    driving.tick()
    assert asked
    assert (driving.job(job_id).wanted, bool(driving.job(job_id).attempt.learned)) == ("stop", True)
    driving.tick()
    driving.cluster.leave(job_id)
    assert driving.until(job_id, State.CANCELLED)
    assert created(driving) == 1


@pytest.mark.parametrize("ended", [False, True])
def test_driver_that_was_paused_before_its_submit_sends_nothing_of_a_job_that_was_stopped_meanwhile(driving, ended):
    job_id = driving.send()
    other = second_driver(driving)
    paused = []

    def pause():
        if driving.job(job_id).attempts and not paused:
            paused.append(True)
            driving.stop(job_id)
            if ended:
                driving.clock.sleep(3600.0)
                for _ in range(5):
                    other.round()
                assert driving.job(job_id).state is State.CANCELLED

    driving.cluster.meanwhile = pause
    driving.tick()
    driving.cluster.meanwhile = lambda: None
    assert paused
    if ended:
        assert created(driving) == 0
    driving.tick(3)
    driving.cluster.leave(job_id) if driving.cluster.jobset(job_id) else None
    assert driving.until(job_id, State.CANCELLED)
    assert not driving.cluster.live(job_id)
    count = created(driving)
    driving.tick(5)
    assert created(driving) == count


def test_stop_between_the_observation_and_a_repeated_submit_sends_nothing(driving):
    job_id = driving.send()
    driving.tick()  # sent
    driving.cluster.forget(job_id)
    change(  # as left by a driver that was killed between sending and writing
        driving.store,
        JOBS,
        job_id,
        lambda job: replace(job, attempts=(replace(job.attempts[0], learned={}),)),
    )
    stopped = []

    def stop():
        if driving.cluster.log[-1:] == ["list JobSet"] and not stopped:
            stopped.append(True)
            driving.stop(job_id)

    driving.cluster.meanwhile = stop
    driving.tick(3)
    assert stopped
    assert created(driving) == 1
    assert driving.until(job_id, State.CANCELLED)
