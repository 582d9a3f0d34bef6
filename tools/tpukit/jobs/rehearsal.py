"""Kill a host, to check that a job survives it before it runs on chips that cost money."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tpukit.core.errors import Invalid, Problem
from tpukit.places.base import HostView


@dataclass(frozen=True, slots=True)
class Loss:
    slice: int
    index: int
    step: int

    def victim(self, hosts: Sequence[HostView]) -> HostView | None:
        """Return the host to lose, once it has reached the step."""
        for host in hosts:
            due = host.step is not None and host.step >= self.step and host.state == "running"
            if (host.slice, host.index) == (self.slice, self.index) and due:
                return host
        return None


def parse(text: str, slices: int, hosts: int) -> Loss:
    """Parse `1-0@30`: host 0 of slice 1, when it reports step 30."""
    match = re.fullmatch(r"(\d{1,4})-(\d{1,4})@(\d{1,9})", text, re.ASCII)
    if not match:
        raise Invalid(Problem("--lose", f"{text!r} is not a host with a step", "write SLICE-HOST@STEP, such as 1-0@30"))
    loss = Loss(*(int(word) for word in match.groups()))
    if loss.slice >= slices or loss.index >= hosts:
        raise Invalid(
            Problem(
                "--lose",
                f"the job has no host {loss.slice}-{loss.index}",
                f"slices are 0 to {slices - 1}, the hosts of each 0 to {hosts - 1}",
            )
        )
    return loss
