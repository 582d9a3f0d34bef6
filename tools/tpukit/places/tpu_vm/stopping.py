"""Stop an attempt on hosts that a driver cannot reach.

It is unknown whether a program runs on such a host. TPU VMs that tpukit created for the job can be deleted without
contact to their hosts. TPU VMs that the user named are not ours to delete.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tpukit.core.clock import Clock
from tpukit.core.errors import Transient
from tpukit.places.base import Handle
from tpukit.places.tpu_vm import target

UNREACHABLE_SECONDS = 180.0
"""Time without an answer to a stop after which TPU VMs that tpukit created are deleted through the API."""


@dataclass(frozen=True, slots=True)
class Stopping:
    clock: Clock
    since: dict[tuple[str, int], float] = field(default_factory=dict)  # attempts whose hosts do not answer

    def note(self, handle: Handle, unreachable: Sequence[str], release: Callable[[], None]) -> None:
        """Record the hosts that did not answer a stop, and `release` the hardware when the time is over.

        Raises:
            Transient: Hosts do not answer. The message has the consequences.
        """
        key = handle.plan.id, handle.attempt.number
        if not unreachable:
            self.since.pop(key, None)
            return
        now = self.clock.elapsed()
        words = f"{', '.join(unreachable)} not reachable over SSH: whether the program runs there is not known"
        nodes = ", ".join(target.nodes(handle.plan))
        if not target.is_own(handle.plan):
            raise Transient(
                f"{words}; tpukit did not create {nodes} and does not delete it",
                hint=f"restore SSH access, or run `tpu vm delete {target.nodes(handle.plan)[0]}`",
            )
        left = self.since.setdefault(key, now) + UNREACHABLE_SECONDS - now
        if left > 0:
            raise Transient(f"{words}; {nodes} will be deleted through the API in {left:.0f} s")
        release()
        raise Transient(f"{words}; {nodes} were deleted through the API after {UNREACHABLE_SECONDS:.0f} s")
