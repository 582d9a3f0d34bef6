"""Submission of several job files together: all are checked before the first is sent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tpukit.core.errors import Invalid, Problem
from tpukit.jobs.use_cases import submission
from tpukit.jobs.use_cases.following import HAND_OVER_SECONDS, TICK_SECONDS

if TYPE_CHECKING:
    from tpukit.jobs.plan import Plan
    from tpukit.jobs.use_cases.session import Session


def plans(session: Session, files: Sequence[Path], sets: Sequence[str], place: str, tags: Sequence[str]) -> list[Plan]:
    """Return the plans of all files as they would be sent now.

    Raises:
        Invalid: Files are invalid, or the place would refuse their jobs. Has the problems of all, each with its file.
    """
    made, problems = [], list[Problem]()
    for file in files:
        try:
            made.append(submission.make_plan(file, sets, place, tags))
        except Invalid as error:
            problems += [_of(file, one) for one in error.problems]
    if problems:
        raise Invalid(problems)
    settled, refused = submission.settle_all(session, made)
    if refused:
        raise Invalid([_of(files[number], one) for number, one in refused])
    return settled


def hand_over(session: Session, job_ids: Sequence[str]) -> list[str]:
    """Drive the jobs until their place has accepted them and continues by itself.

    Return those that it did not accept in time.
    """
    place = session.places[session.get(job_ids[0]).place]
    driver = session.driver()
    due = session.clock.monotonic() + HAND_OVER_SECONDS
    left = list(job_ids)
    try:
        while place.capabilities.drives_itself and left:
            driver.round(left)
            left = [job_id for job_id in left if not _is_there(session, job_id)]
            if left and session.clock.monotonic() > due:
                return left
            if left:
                session.clock.sleep(TICK_SECONDS)
    finally:
        driver.close()
    return []


def _is_there(session: Session, job_id: str) -> bool:
    """Return True if the place has the job: the record of a started attempt tells where it runs."""
    job = session.get(job_id)
    return job.state.ended or bool(job.attempt and job.attempt.learned)


def _of(file: Path, problem: Problem) -> Problem:
    where = problem.where if problem.where.startswith(str(file)) else f"{file}: {problem.where}".rstrip(": ")
    return Problem(where, problem.what, problem.hint)
