"""Two drivers of one store: the effect on a job when one of them is blind or suspended."""

from __future__ import annotations

import pytest

from support.gke_driving import Driving, place_on
from tpukit.core.errors import Denied, Transient
from tpukit.jobs.controller.driver import Driver
from tpukit.jobs.reasons import State
from tpukit.kernel.controller import BLIND_SECONDS
from tpukit.kernel.leases import SECONDS
from tpukit.kernel.store import Holder


@pytest.fixture
def driving(tmp_path):
    driving = Driving(tmp_path)
    yield driving
    driving.close()


def second_driver(driving: Driving) -> Driver:
    place = place_on(driving.cluster, driving.folder / "another-machine")
    return Driver(driving.store, {"gke": place}, driving.clock, Holder("second", "another machine"))


@pytest.mark.parametrize("error", [Transient("connection refused"), Denied("403: no rights")])
def test_blind_driver_of_a_running_job_lets_another_one_stop_it(driving, monkeypatch, error):
    job_id = driving.send()
    driving.run(job_id)

    def blind(*_: object) -> None:
        raise error

    monkeypatch.setattr(driving.place, "observe", blind)
    driving.stop(job_id)
    other = second_driver(driving)
    waited = 0
    while not driving.job(job_id).state.ended and waited < 600:
        driving.tick()
        driving.driver.leases.renew()  # as the background thread does
        other.round()
        driving.cluster.leave(job_id)
        waited += 1
    assert driving.job(job_id).state is State.CANCELLED
    assert waited <= 2 * BLIND_SECONDS + SECONDS
    assert len(driving.job(job_id).attempts) == 1


def test_blind_driver_writes_why_and_ends_nothing(driving, monkeypatch):
    job_id = driving.send()
    driving.run(job_id)

    def blind(*_: object) -> None:
        raise Denied("403: no rights")

    monkeypatch.setattr(driving.place, "observe", blind)
    driving.tick(3600)
    job = driving.job(job_id)
    assert (job.state, job.message, len(job.attempts)) == (State.RUNNING, "403: no rights", 1)
    assert driving.cluster.live(job_id)


def test_stop_during_the_back_off_of_a_broken_cluster_is_done_within_seconds(driving, monkeypatch):
    job_id = driving.send()
    driving.run(job_id)
    observe = driving.place.observe

    def blind(*_: object) -> None:
        raise Denied("403: no rights")

    monkeypatch.setattr(driving.place, "observe", blind)
    driving.tick(600)
    monkeypatch.setattr(driving.place, "observe", observe)
    driving.stop(job_id)
    driving.tick(2)
    driving.cluster.leave(job_id)
    assert driving.until(job_id, State.CANCELLED, most=5)


def test_stop_during_the_wait_between_two_attempts_is_done_within_seconds(driving):
    job_id = driving.send(rule="pre", max={"restarts": 20})
    driving.run(job_id)
    for _ in range(4):  # each restart waits longer
        driving.cluster.fail(job_id, "userError")
        driving.cluster.restart(job_id)
        driving.cluster.start(job_id)
        driving.tick(2)
    driving.stop(job_id)
    driving.tick(2)
    driving.cluster.leave(job_id)
    assert driving.until(job_id, State.CANCELLED, most=5)
