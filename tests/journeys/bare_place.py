"""Trivial implementations of a place's methods, shared by simulated places."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tpukit.core.errors import Problem
from tpukit.jobs.plan import Plan
from tpukit.places.base import Claim, FollowUp, Handle, Known, Line, unclaimed


class BarePlace:
    name = "local"

    def prepare(self, plan: Plan) -> Plan:
        return plan

    def taken(self, plan: Plan) -> frozenset[str]:
        return frozenset()

    def check(self, plan: Plan) -> Sequence[Problem]:
        return ()

    def check_code(self, plan: Plan) -> None: ...

    def share_code(self, plan: Plan) -> str:
        return ""

    def group(self, plan: Plan) -> str | None:
        return ""

    def workdir(self, plan: Plan, origin: int) -> str:
        return plan.workdir_of(origin)

    def limit(self, plan: Plan) -> str:
        return ""

    def notes(self, plan: Plan) -> Sequence[str]:
        return ()

    def forget(self, handle: Handle) -> str:
        return "nothing"

    def logs(self, handle: Handle, host: str = "", *, follow: bool = False) -> Iterator[Line]:
        yield from ()

    def follow_up(self, handle: Handle, what: FollowUp) -> None: ...

    def tail(self, handle: Handle, host: str, size: int) -> Sequence[str]:
        return ()

    def sweep(
        self, known: Callable[[], Known], complain: Callable[[str], None] = lambda text: None, claim: Claim = unclaimed
    ) -> Sequence[str]:
        return ()
