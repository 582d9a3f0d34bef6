"""Stop jobs, wait for their ends, and begin ended ones again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpukit.core.errors import TpukitError, Transient
from tpukit.jobs import person_requests

if TYPE_CHECKING:
    from tpukit.jobs.records import Job
    from tpukit.jobs.use_cases.session import Session

WAIT_SECONDS = 0.1
ASK_SECONDS = 1.0


def stop(session: Session, job_id: str) -> None:
    """Mark the job to be stopped. Its driver stops it."""
    person_requests.stop(session.store, job_id, session.owner, session.clock.now())


def again(session: Session, record: Job, wanted: str) -> Job:
    """Mark an ended job to `resume` from its last checkpoint, or to `rerun` from the beginning, and claim it.

    Raises:
        Conflict: The job has not ended.
        Invalid: Its code was removed.
    """
    person_requests.asked(record, wanted)
    person_requests.check_code(session.places, record)
    session.claim(record.id)
    return person_requests.again(session.store, record.id, wanted, session.owner, session.clock.now())


def stop_once(session: Session, job_id: str) -> Job:
    """Request the stop from the place of a job that no process drives, and return the record afterwards."""
    driver = session.driver()
    driver.round([job_id])
    driver.close()
    return session.get(job_id)


def wait_for_ends(session: Session, job_ids: Sequence[str]) -> None:
    """Wait for the jobs to end, and drive those that no other process drives."""
    said: set[tuple[str, str]] = set()

    def say(job_id: str, text: str) -> None:
        if (job_id, text) not in said:
            said.add((job_id, text))
            session.say(job_id, text)

    def complain(name: str, text: str) -> None:
        job_id = name if name in job_ids else job_ids[0]
        say(job_id, f"{text}\n  retrying; if its hosts are gone for good, `tpu job forget {job_id}` closes the job")

    driver = session.driver(complain=complain)
    asked = 0.0
    left = list(job_ids)
    while True:
        try:
            if not driver.round(left):
                break
            left = [job_id for job_id in left if not session.get(job_id).state.ended] or left[:1]
            if session.clock.monotonic() - asked > ASK_SECONDS:
                asked = session.clock.monotonic()
                for job_id in left:
                    if driven_by := session.driven_by_another(job_id):
                        say(job_id, f"{driven_by} is stopping the job")
        except Transient as error:
            complain(left[0], str(error))
            session.clock.sleep(ASK_SECONDS)
        except TpukitError:
            driver.close()
            raise
        session.clock.sleep(WAIT_SECONDS)
    driver.close()
