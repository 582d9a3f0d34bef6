"""Read what the hosts of a job print."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from tpukit.core.errors import NotFound

if TYPE_CHECKING:
    from tpukit.jobs.records import Job
    from tpukit.jobs.use_cases.session import Session
    from tpukit.places.base import Handle, Line


def of_job(
    session: Session,
    record: Job,
    *,
    host: str = "",
    attempt: int | None = None,
    follow: bool = False,
    tail: int | None = None,
) -> Iterator[Line]:
    """Yield the lines of an attempt (default: the newest), as `read` does. `host`: only this one, in any form."""
    handle = handle_of(record, attempt)
    name = host_name(handle, host)
    place = session.places[record.place]
    return read(lambda follow: place.logs(handle, name, follow=follow), follow=follow, tail=tail)


def handle_of(record: Job, attempt: int | None = None) -> Handle:
    from tpukit.places.base import Handle

    if not record.attempts:
        raise NotFound(
            f"{record.id} has no attempt yet", hint="no driver has started the job yet; `tpu serve` drives jobs"
        )
    if (attempt or 0) > (last := record.attempts[-1].number):
        raise NotFound(f"{record.id} has no attempt {attempt}", hint=f"the newest attempt is {last}")
    return Handle.of(record, attempt)


def host_name(handle: Handle, host: str) -> str:
    """Return the full name of a host given as SLICE-HOST or in full. An empty name stays empty."""
    from tpukit.jobs.plan import SLICE_JOB

    job_id = handle.plan.id
    prefix = f"{job_id}-{SLICE_JOB}-"
    name = f"{prefix}{host}" if host and not host.startswith(job_id) else host
    if name and name not in handle.plan.host_names:
        known = ", ".join(known.removeprefix(prefix) for known in handle.plan.host_names)
        raise NotFound(f"{job_id} has no host {host}", hint=f"its hosts: {known}")
    return name


def read(lines: Callable[[bool], Iterable[Line]], *, follow: bool, tail: int | None) -> Iterator[Line]:
    """Yield lines: all, or the last `tail` of each host. `follow`: then those that come, until the hosts end."""
    printed: Counter[str] = Counter()
    if tail is not None:
        last: dict[str, deque[Line]] = defaultdict(lambda: deque(maxlen=tail))
        for line in lines(False):  # noqa: FBT003 (a callback)
            printed[line.host] += 1
            last[line.host].append(line)
        for one in last.values():
            yield from one
        if not follow:
            return
    for line in lines(follow):
        if printed[line.host] > 0:  # yielded above, or before the tail
            printed[line.host] -= 1
        else:
            yield line
