"""Estimates of a step: time by compiler cycles and by roofline, use of the chips, and cost. Pure.

The roofline takes each resource alone at full speed, as if the others cost nothing; the longest is the bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tpukit.fit.chips import Chip


@dataclass(frozen=True, slots=True)
class Estimate:
    """Figures of one step. Seconds are estimates; None if a figure of the chip or the compiler is unknown."""

    flops: float  # of the model, all chips
    repeated_flops: float  # added by rematerialisation, all chips
    bytes_read: float  # and written, one chip
    inside_bytes: float  # leaving one chip over ICI
    between_bytes: float  # leaving one chip over the data-centre network
    compute_seconds: float
    memory_seconds: float
    ici_seconds: float | None
    dcn_seconds: float | None
    roofline_seconds: float
    bound: str  # compute, memory, ICI, DCN
    compiler_seconds: float | None
    mfu: float  # at the roofline's time
    compiler_mfu: float | None
    tokens: int | None
    usd_per_step: float | None
    usd_per_billion_tokens: float | None

    @property
    def tokens_per_second(self) -> float | None:
        return self.tokens / self.roofline_seconds if self.tokens and self.roofline_seconds else None


def of(
    record: Mapping[str, Any], chip: Chip, chips: int, usd_per_hour: float | None, tokens: int | None = None
) -> Estimate:
    """Return the estimate for a compiled function of a job on `chips` chips."""
    used = record["chips"]
    hlo, work = record["hlo"], record["work"]
    flops, repeated = work["model"], work["repeated"]
    read = record["cost"].get("bytes accessed", 0.0) * hlo["loops"]
    compute = (flops + repeated) / used / chip.flops
    times = {
        "compute": compute,
        "memory": read / chip.hbm_bandwidth,
        "ICI": hlo["inside"] / chip.ici_bandwidth if chip.ici_bandwidth else None,
        "DCN": hlo["between"] / chip.dcn_bandwidth if chip.dcn_bandwidth else None,
    }
    known = {name: seconds for name, seconds in times.items() if seconds is not None}
    bound = max(known, key=lambda name: known[name])
    roofline = known[bound]
    cycles = hlo["cycles"] / chip.clock if chip.clock and hlo["cycles"] else None
    per_step = usd_per_hour / 3600 * roofline if usd_per_hour is not None else None
    return Estimate(
        flops,
        repeated,
        read,
        hlo["inside"],
        hlo["between"],
        compute,
        known["memory"],
        times["ICI"],
        times["DCN"],
        roofline,
        bound,
        cycles,
        flops / chips / chip.flops / roofline if roofline else 0.0,
        flops / chips / chip.flops / cycles if cycles else None,
        tokens,
        per_step,
        per_step / tokens * 1e9 if per_step is not None and tokens else None,
    )


def tokens(arguments: list[Mapping[str, Any]]) -> int | None:
    """Return the tokens of a step: the size of the largest integer argument with two axes or more.

    A batch that includes the token to predict (`[batch, length + 1]`) counts it.
    """
    found = [one for one in arguments if "int" in one["dtype"] and len(one["shape"]) >= 2]
    sizes = []
    for one in found:
        total = 1
        for size in one["shape"]:
            total *= size
        sizes.append(total)
    return max(sizes, default=None)
