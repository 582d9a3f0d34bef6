"""Submission of a job: from the job file to the plan, its id, its code, and its record."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tpukit import places
from tpukit.core import retry
from tpukit.core.errors import Conflict, Invalid, NotYet, Problem, Transient
from tpukit.jobs.use_cases import session as sessions

if TYPE_CHECKING:
    from tpukit.jobs.plan import Plan
    from tpukit.jobs.use_cases.session import Session
    from tpukit.places.base import Place

PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds between retries to share the code of a job, and to record the job."""
CHECKS_AT_ONCE = 8


def make_plan(
    file: Path,
    sets: Sequence[str],
    place: str,
    tags: Sequence[str] = (),
    aliases: Mapping[str, str] | None = None,
) -> Plan:
    """Return the plan for the job in `file`. `tags` and `aliases` extend those of the job and the settings."""
    from tpukit.jobs import plan, spec
    from tpukit.jobs.spec import settings

    check_place(place)
    own = settings.load()
    job = spec.load(file, sets, {**own.aliases, **(aliases or {})})
    return plan.make(job.replace(tags=tuple(dict.fromkeys((*job.tags, *tags)))), own, place)


def on_machines(session: Session, plan: Plan, names: str) -> Plan:
    """Return the plan for the machines in `names`, separated by commas. Empty: the place chooses."""
    from tpukit.jobs.plan import VmTarget

    if not names:
        return plan
    if not session.places[plan.place].capabilities.named_machines:
        raise Invalid(Problem("--on", f"{plan.place} does not let you choose machines", "leave out --on"))
    return replace(plan, target=VmTarget("", "", "", tuple(name.strip() for name in names.split(","))))


def check_place(place: str) -> None:
    """Raise Invalid for an unknown place. Empty means any place."""
    if place and place not in places.NAMES:
        raise Invalid(Problem("--place", f"there is no place {place!r}", f"write one of {', '.join(places.NAMES)}"))


def check_tags(where: str, tags: Sequence[str]) -> None:
    from tpukit.jobs.spec.fields import TAG_FORM

    if wrong := [tag for tag in tags if not TAG_FORM.fits(tag)]:
        raise Invalid([Problem(where, f"{tag!r} is not allowed", TAG_FORM.words) for tag in wrong])


def settle(session: Session, plan: Plan) -> Plan:
    """Return the plan as it would be sent now, with additions of its place and a free id.

    Raise Invalid if the place would refuse it.
    """
    place = session.places[plan.place]
    return _with_free_id(session, place, place.prepare(plan))


def settle_all(session: Session, plans: Sequence[Plan]) -> tuple[list[Plan], list[tuple[int, Problem]]]:
    """Settle several plans, and return the problems with the number of their plan.

    The ids in use are read once per team. The first job is checked alone, so that what the jobs share is read once;
    then the others are checked concurrently.
    """
    from concurrent.futures import ThreadPoolExecutor

    from tpukit.jobs import plan as planning

    named: list[tuple[int, Plan]] = []
    problems: list[tuple[int, Problem]] = []
    taken: dict[str, frozenset[str]] = {}  # ids by team
    for number, plan in enumerate(plans):
        place = session.places[plan.place]
        try:
            prepared = place.prepare(plan)
            if plan.team not in taken:
                taken[plan.team] = _taken(session, place, prepared)
            named.append((number, planning.with_fresh_id(prepared, taken[plan.team])))
            taken[plan.team] |= {named[-1][1].id}
        except Invalid as error:
            problems += [(number, one) for one in error.problems]

    def checked(one: Plan) -> Plan | Invalid:
        try:
            return _checked(session, session.places[one.place], one)
        except Invalid as error:
            return error

    with ThreadPoolExecutor(CHECKS_AT_ONCE) as pool:
        results = [*map(checked, (plan for _, plan in named[:1])), *pool.map(checked, (plan for _, plan in named[1:]))]
    settled = [one for one in results if not isinstance(one, Invalid)]
    for (number, _), one in zip(named, results, strict=True):
        problems += [(number, problem) for problem in one.problems] if isinstance(one, Invalid) else []
    return settled, sorted(problems, key=lambda one: one[0])


def inspect(plan: Plan) -> Plan:
    """Return the plan with its current code, without storing anything. Raise Invalid if the code cannot be staged."""
    from tpukit.jobs import snapshots as stage

    if not plan.spec.code:
        return plan
    code = stage.inspect(Path(plan.spec.code), _own_folders())
    if code.problems:
        raise Invalid(code.problems)
    return replace(plan, snapshot=code.snapshot)


def stage_code(plan: Plan) -> Plan:
    from tpukit.jobs import snapshots as stage

    if not plan.spec.code:
        return plan
    return replace(plan, snapshot=stage.snapshot(Path(plan.spec.code), sessions.shelf(), _own_folders()))


def warn(session: Session, plan: Plan) -> None:
    """Say how long hardware lasts without a driver, and warn about risks of losing work, before the job is sent."""
    from tpukit.jobs.report import risks

    place = session.places[plan.place]
    if limit := place.limit(plan):
        session.warn(f"{plan.id}: {limit}")
    for text in risks.of(plan, place.workdir(plan, 0), this_machine=place.capabilities.uses_this_machine):
        session.warn(f"warning: {text}")


def record(session: Session, plan: Plan, owner: str = "") -> Plan:
    """Record the job, and return the plan with its id. From here on any driver may drive it.

    Retries after a lost response still create one job: the record names the submission.
    """
    from msgspec.structs import replace as changed

    from tpukit.jobs.records import JOBS, Job
    from tpukit.kernel.store import Event

    _check_size(plan)
    _share_code(session, plan)
    now, owner, submission = session.clock.now(), owner or session.owner, secrets.token_hex(16)
    plan = replace(plan, owner=owner, sent=now)
    pauses = iter(PAUSES)
    while True:
        job = Job(plan.id, plan.place, plan.team, owner, now, plan.to_json(), tuple(plan.spec.tags))
        job = changed(job, submission=submission)
        try:
            session.claim(plan.id)
            session.store.create(JOBS, plan.id, job, events=[Event(now, f"sent to {plan.place} by {owner}")])
        except Conflict:
            there = _submission_of(session, plan.id)
            if there is None:
                raise
            if there != submission:
                session.unclaim(plan.id)
                plan = _with_free_id(session, session.places[plan.place], plan)  # another submission has the id
                _share_code(session, plan)
                continue
        except Transient as error:
            pause = next(pauses, None)
            if pause is None:
                hint = f"it may have been recorded: `tpu job show {plan.id}` shows it when the store is reachable again"
                raise Transient(
                    f"{plan.id} was sent, but the store did not confirm it: {error.message}", hint=hint
                ) from error
            session.clock.sleep(pause)
            continue
        return plan


def _share_code(session: Session, plan: Plan) -> None:
    """Upload the code for drivers on other machines. Once the job is recorded, this machine may be lost."""
    place = session.places[plan.place]
    passing = (Transient, NotYet)
    why = retry.call(
        lambda: place.share_code(plan), PAUSES, session.clock.sleep, lambda error, pause: isinstance(error, passing)
    )
    if why:
        words = f"the code of {plan.id} stays on this machine, so only a driver on this machine can start the job"
        session.warn(f"warning: {words}: {why}")


def _submission_of(session: Session, job_id: str) -> str | None:
    """Return the submission text in the record of this job, or None if there is no such job."""
    from tpukit.core.errors import NotFound
    from tpukit.jobs.records import JOBS

    try:
        return session.store.get(JOBS, job_id).value.submission
    except NotFound:
        return None
    except Conflict:
        return ""  # a newer version wrote it


def _check_size(plan: Plan) -> None:
    """Raise Invalid if the plan leaves no room for the record's history."""
    import msgspec

    from tpukit.jobs.records import PLAN_BYTES

    if (size := len(msgspec.json.encode(plan.to_json()))) > PLAN_BYTES:
        what = f"the job takes {size:,} bytes, and {PLAN_BYTES:,} are allowed"
        raise Invalid(
            Problem("", what, "put large values into files of `code` or into a bucket, and refer to them by name")
        )


def _taken(session: Session, place: Place, plan: Plan) -> frozenset[str]:
    from tpukit.jobs.records import JOBS

    return session.store.keys(JOBS) | place.taken(plan)


def _with_free_id(session: Session, place: Place, plan: Plan) -> Plan:
    from tpukit.jobs import plan as planning

    return _checked(session, place, planning.with_fresh_id(plan, _taken(session, place, plan)))


def _checked(session: Session, place: Place, plan: Plan) -> Plan:
    """Return the plan, or raise Invalid if the place would refuse it."""
    if problems := place.check(plan):
        raise Invalid(problems)
    return plan if plan.resume or not plan.spec.workdir else _in_free_workdir(session, place, plan)


def _in_free_workdir(session: Session, place: Place, plan: Plan) -> Plan:
    """Return the plan if its workdir holds no output of another job, else raise Invalid.

    The workdir of an ended job of this store that left no output is free too.
    """
    from tpukit.core.errors import TpukitError
    from tpukit.places.workdirs import Workdirs

    try:
        here = place.capabilities.uses_this_machine
        held = Workdirs().held(plan, place.workdir(plan, 0), this_machine=here)
    except (TpukitError, OSError) as error:
        said = getattr(error, "message", str(error))
        session.warn(f"could not check whether {plan.workdir} holds another job's output: {said}")
        return plan
    if held is None:
        return plan
    if held.output or not _has_ended(session, held.job):
        raise Invalid(held.problem)
    return replace(plan, resume=True)


def _has_ended(session: Session, job_id: str) -> bool:
    from tpukit.core.errors import NotFound
    from tpukit.jobs.records import JOBS

    try:
        return session.store.get(JOBS, job_id).value.state.ended
    except (NotFound, Conflict):  # a job of another store, or a record of a newer version
        return False


def _own_folders() -> tuple[Path, ...]:
    from tpukit.core import paths

    return paths.data(), paths.state()
