"""Sweeps next to drivers and people: leftovers of a job are removed only while its lease is held."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from support.gke_driving import Driving
from tpukit.core import fence
from tpukit.core.errors import LeaseLost
from tpukit.jobs.controller.driver import Driver
from tpukit.jobs.reasons import State
from tpukit.jobs.records import JOBS
from tpukit.kernel.leases import SECONDS
from tpukit.kernel.store import Holder, change, mark
from tpukit.kernel.store.sqlite import SqliteStore
from tpukit.places.base import Claim, Known

OTHER = Holder("other", "another machine")


class Leftovers:
    """A place with leftovers of one job that belong to no active attempt."""

    name = "left"

    def __init__(self, job_id: str, before: Callable[[], object]) -> None:
        self._job, self._before = job_id, before

    def sweep(self, known: Callable[[], Known], complain: Callable[[str], None], claim: Claim) -> Sequence[str]:
        known()
        with claim(self._job) as free:
            if not free:
                return []
            self._before()
            fence.check()
            return [self._job]


@pytest.fixture
def driving(tmp_path):
    driving = Driving(tmp_path)
    yield driving
    driving.close()


def sweeper(driving: Driving, job_id: str, before: Callable[[], object] = lambda: None) -> Driver:
    places = {"left": Leftovers(job_id, before)}
    return Driver(driving.store, places, driving.clock, Holder("sweeper", "a third machine"))  # type: ignore[dict-item]


def ended(driving: Driving) -> str:
    job_id = driving.send()
    change(driving.store, JOBS, job_id, lambda job: replace(job, state=State.FAILED))
    return job_id


def test_sweep_of_an_ended_job_removes_what_is_left_and_releases_its_lease(driving):
    job_id = ended(driving)
    assert sweeper(driving, job_id).sweep() == [f"left: {job_id}"]
    assert driving.store.leases() == []


def test_sweep_of_a_job_that_the_store_does_not_know_removes_what_is_left(driving):
    assert sweeper(driving, "unknown-job").sweep() == ["left: unknown-job"]


def test_sweep_of_a_job_that_another_driver_holds_removes_nothing(driving):
    job_id = ended(driving)
    driving.store.acquire(f"jobs/{job_id}", OTHER, SECONDS)
    assert sweeper(driving, job_id).sweep() == []


def test_sweep_of_a_job_that_was_resumed_a_moment_ago_removes_nothing(driving):
    job_id = ended(driving)
    made = sweeper(driving, job_id)
    change(driving.store, JOBS, job_id, lambda job: replace(job, state=State.PENDING, wanted="resume"))
    assert made.sweep() == []


def test_job_cannot_begin_while_what_is_left_of_it_is_removed(driving):
    job_id = ended(driving)
    taken: list[object] = []
    made = sweeper(driving, job_id, lambda: taken.append(driving.store.acquire(f"jobs/{job_id}", OTHER, SECONDS)))
    assert made.sweep() == [f"left: {job_id}"]
    assert taken == [None]


def test_sweep_suspended_before_it_removes_sends_nothing_when_a_driver_took_the_job(driving):
    job_id = ended(driving)

    def suspended() -> None:
        driving.clock.suspend(SECONDS + 1)
        assert driving.store.acquire(f"jobs/{job_id}", OTHER, SECONDS)

    made = sweeper(driving, job_id, suspended)
    complaints: list[str] = []
    made._complain = lambda place, text: complaints.append(text)
    assert made.sweep() == []
    assert len(complaints) == 1
    assert driving.store.lease(f"jobs/{job_id}").holder == OTHER
    with pytest.raises(LeaseLost):
        made.leases.check(driving.store.lease(f"jobs/{job_id}"))


class Unclaimed(Leftovers):
    """A place that needs no claim: the leftovers are of an earlier attempt of an active job."""

    def sweep(self, known: Callable[[], Known], complain: Callable[[str], None], claim: Claim) -> Sequence[str]:
        known()
        return [self._job]


def test_sweep_by_a_driver_whose_store_was_moved_away_removes_nothing(driving, tmp_path):
    """The records that it reads are old: another driver has begun attempts since."""
    job_id = driving.send()
    target = SqliteStore(tmp_path / "new.db")
    target.address = "firestore://my-project-1"
    mark.begin_move(driving.store, target, ("own", "theirs"), active=True, at=1.0)
    said: list[str] = []
    places = {"left": Unclaimed(job_id, lambda: None)}
    complain = lambda name, text: said.append(text)  # noqa: E731
    driver = Driver(driving.store, places, driving.clock, Holder("sweeper"), complain=complain)  # type: ignore[dict-item]
    assert driver.sweep() == []
    assert "was moved to firestore://my-project-1" in said[0]
    target.close()
