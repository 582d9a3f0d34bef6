"""The verdict on a failed attempt, delayed while lost hardware may still turn out to be its cause."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tpukit.core.clock import Clock
from tpukit.jobs.reasons import MEANINGS, Budget
from tpukit.places.base import Handle
from tpukit.places.gke import doubt, failure
from tpukit.places.gke.evidence import Evidence
from tpukit.places.gke.hosts import Records
from tpukit.places.gke.jobsets import Doc
from tpukit.places.verdict import Verdict

DOUBTED = "doubted"
"""Key in what an attempt's record learns: when a charge was first held back."""


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
        """Return the verdict on a failed attempt, or the host that has to settle before the user is charged.

        `pods` are those of the attempt as they are now, `later` those of attempts after it.
        """
        names, team = handle.plan.host_names, handle.plan.team
        said = say({name: records.get(name) for name in names})
        if not _charges(said):
            return Judged(records, said)
        failed_at = min((one.ended for one in records.values() if one.failed and one.ended), default=failed_at)
        others = frozenset(str(pod["metadata"]["uid"]) for pod in later)
        waits_for, now = doubt.unsettled(pods), self.clock.now()
        since = min(float(handle.attempt.learned.get(DOUBTED) or now), now)
        if waits_for and now - since >= doubt.NODE_SECONDS:
            waits_for = ""
        # A node may have been lost and restored since the last list, with its pods gone. So a charge needs a list newer
        # than `pods`.
        lister = self.evidence.lister
        around = lister.surroundings(team) if waits_for else lister.nodes_and_events(team)
        records = doubt.with_lost_nodes(names, records, around.nodes, around.events, failed_at, others)
        said = say({name: records.get(name) for name in names})
        if waits_for and _charges(said):
            return Judged(records, None, waits_for, since)
        return Judged(records, said)


def _charges(said: Verdict) -> bool:
    return MEANINGS[said.reason].budget is Budget.USER
