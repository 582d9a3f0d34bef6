"""Networks and clocks of chips, which the catalogue does not have, each with its source. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tpukit.catalogue import Slice

GBIT = 1e9 / 8


@dataclass(frozen=True, slots=True)
class Chip:
    """Figures of one chip. Bandwidths are bytes a second, in one direction."""

    flops: float  # bf16, from the catalogue
    hbm_bytes: float  # available to a program
    hbm_bandwidth: float
    ici_bandwidth: float | None
    dcn_bandwidth: float | None
    clock: float | None  # cycles a second
    sources: tuple[str, ...]


_V5E = "https://docs.cloud.google.com/tpu/docs/v5e"
_V5P = "https://docs.cloud.google.com/tpu/docs/v5p-training"
_V6E = "https://docs.cloud.google.com/tpu/docs/v6e"

# Google states ICI for both directions together; half of it leaves a chip.
_ICI = {"v5e": (400e9 / 2, _V5E), "v5p": (1200e9 / 2, _V5P), "v6e": (800e9 / 2, _V6E)}
# v5e and v6e: network of a Pod divided by its 256 chips (6.4 Tbps; 25.6 Tbps in the v6e page of 2025).
_DCN = {"v5e": (25 * GBIT, _V5E), "v5p": (50 * GBIT, _V5P), "v6e": (100 * GBIT, _V6E)}
# Operations a cycle of all matrix units (units x edge x edge x 2, from the same pages) divide the catalogue's peak.
_MXU = {
    "v5e": (4 * 128 * 128 * 2, _V5E),
    "v5p": (8 * 128 * 128 * 2, _V5P),
    "v6e": (2 * 256 * 256 * 2, _V6E),
}


def of(slice_: Slice) -> Chip:
    """Return the figures of a slice's chips. A figure is None if no source states it."""
    generation = slice_.generation
    peak = slice_.tflops_bf16 * 1e12
    ici, dcn, mxu = _ICI.get(generation), _DCN.get(generation), _MXU.get(generation)
    return Chip(
        flops=peak,
        hbm_bytes=slice_.hbm_gib * 2**30,
        hbm_bandwidth=slice_.hbm_gbps * 1e9,
        ici_bandwidth=ici[0] if ici else None,
        dcn_bandwidth=dcn[0] if dcn else None,
        clock=peak / mxu[0] if mxu else None,
        sources=tuple(dict.fromkeys(one[1] for one in (ici, dcn, mxu) if one)),
    )
