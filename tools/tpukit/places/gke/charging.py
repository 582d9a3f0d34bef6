"""The verdict on a failed attempt, held back while lost hardware may still turn out to be its cause."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tpukit.clock import Clock
from tpukit.places.base import Handle
from tpukit.places.gke import doubt, failure
from tpukit.places.gke.evidence import Evidence
from tpukit.places.gke.hosts import Records
from tpukit.places.gke.jobsets import Doc
from tpukit.places.verdict import Verdict
from tpukit.reasons import MEANINGS, Budget

DOUBTED = "doubted"
"""In what an attempt's record learns: when a charge was first held back."""


@dataclass(frozen=True, slots=True)
class Judged:
    records: Records
    verdict: Verdict | None  # None: wait for evidence
    waits_for: str = ""  # the host
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class Judge:
    evidence: Evidence
    clock: Clock

    def judge(
        self,
        handle: Handle,
        records: Records,
        pods: Sequence[Doc],
        later: Sequence[Doc],
        failed_at: float,
        say: Callable[[failure.Hosts], Verdict],
    ) -> Judged:
        """`pods` are those of the attempt as they are now, `later` those of attempts after it."""
        names = handle.plan.host_names
        said = say({name: records.get(name) for name in names})
        if MEANINGS[said.reason].budget is not Budget.USER:
            return Judged(records, said)
        around = self.evidence.lister.surroundings(handle.plan.team)
        failed_at = min((one.ended for one in records.values() if one.failed and one.ended), default=failed_at)
        others = frozenset(str(pod["metadata"]["uid"]) for pod in later)
        records = doubt.with_lost_nodes(names, records, around.nodes, around.events, failed_at, others)
        said = say({name: records.get(name) for name in names})
        waits_for = doubt.unsettled(pods)
        if MEANINGS[said.reason].budget is not Budget.USER or not waits_for:
            return Judged(records, said)
        now = self.clock.now()
        since = min(float(handle.attempt.learned.get(DOUBTED) or now), now)
        if now - since >= doubt.NODE_SECONDS:
            return Judged(records, said)
        return Judged(records, None, waits_for, since)
