"""Rules that generate `tpus.json` and its copy for Terraform. Do not edit those files by hand.

    python -m tpukit.catalogue.shapes --write    writes both
    python -m tpukit.catalogue.shapes --check    exits 1 if one differs from the rules

A slice is a box of chips as close to a cube (or a square) as its size allows. From 64 chips on, the generations wired
in three dimensions build it from cubes of 4x4x4 with optical switches between them, so each edge is a multiple of 4.
Names count TensorCores in the generations that have two per chip (v4-32 has 16 chips), chips in the others.

Sources of the figures:
- chips: the pages of each generation under https://cloud.google.com/tpu/docs/system-architecture-tpu-vm
- machine types, labels, placement: https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus
- zones: https://cloud.google.com/tpu/docs/regions-zones. A hint, not a guarantee: Google moves TPUs, and some zones
  serve single customers. Ask the Cloud TPU API before relying on one. A zone that is not on that page is listed when
  two independent sources report those TPUs there (SkyPilot's copy of the TPU API,
  https://github.com/skypilot-org/skypilot-catalog, is one). A zone with one such source is left out, because the API
  also shows capacity of single customers, and so is one whose second source is a list of machine types. The page's
  us-central1-ai1 is us-central1-ai1a, as in Google's page about AI zones and in the commands of GKE.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tpukit.catalogue import zones
from tpukit.core import resources

FILE = Path(__file__).with_name("tpus.json")
# A folder of Terraform files is uploaded alone, so it cannot read our file.
TERRAFORM_FILE = resources.folder("terraform") / "modules" / "tpu_shapes" / "tpus.json"

_CUBE = 64  # chips of a 4x4x4 cube
_LONGEST = 64  # cubes along one edge
_BELOW_A_CUBE = {1: "1x1x1", 4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4"}


@dataclass(frozen=True, slots=True)
class Host:
    """A machine with TPU chips. Without a machine type it is offered by the Cloud TPU API only, not by GKE."""

    machine_type: str | None
    accelerator: str | None  # value of the node label cloud.google.com/gke-tpu-accelerator
    chips: int
    vcpus: int | None
    memory_gb: int | None
    zones: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Generation:
    name: str
    prefix: str  # of accelerator names
    alias: str | None  # the other prefix in common use
    axes: int
    cores_per_chip: int
    devices_per_chip: int  # JAX devices: v4 and v5p join both cores of a chip into one ("megacore")
    tflops_bf16: float  # per chip, peak
    hbm_gib: float  # per chip
    hbm_gbps: float  # per chip
    alone: tuple[Host, ...]  # hosts that are a slice by themselves
    together: Host  # the host that larger slices are made of
    placement: str  # how GKE keeps the hosts of a larger slice together
    sizes: tuple[int, ...]  # chips


def _cubes(most: int) -> Iterator[int]:
    """Yield the sizes, in chips, of slices of whole cubes up to `most` chips that respect the longest edge."""
    return (cubes * _CUBE for cubes in range(1, most // _CUBE + 1) if _box(cubes))


def _box(cubes: int) -> tuple[int, ...]:
    """Return the edges, shortest first, of the box nearest to a cube, or () if every box is too long."""
    boxes = [
        (a, b, cubes // (a * b))
        for a in range(1, cubes + 1)
        if cubes % a == 0
        for b in range(a, cubes // a + 1)
        if cubes // a % b == 0 and b <= cubes // (a * b) <= _LONGEST
    ]
    return min(boxes, key=sum, default=())


def topology(chips: int, axes: int) -> str:
    if axes == 2:
        long = chips.bit_length() // 2
        return f"{chips >> long}x{1 << long}"
    if chips < _CUBE:
        return _BELOW_A_CUBE[chips]
    return "x".join(str(4 * edge) for edge in _box(chips // _CUBE))


_V5E_ZONES = ("us-central1-a", "us-south1-a", "us-west1-c", "us-west4-a", "us-west4-b", "europe-west4-b")
_V6E_ZONES = (
    *("us-central1-b", "us-central1-ai1a", "us-east1-d", "us-east5-a", "us-east5-b", "us-south1-ai1b"),
    *("europe-west4-a", "asia-northeast1-b", "southamerica-west1-a"),
)
_V5P_ZONES = (
    *("us-central1-a", "us-east1-d", "us-east5-a", "us-east5-b", "us-east5-c", "us-south1-a"),
    *("europe-west1-b", "europe-west1-d", "europe-west4-b"),
)
_TPU7X_ZONES = ("us-central1-c", "us-central1-ai1a")
_V3_POD = Host("ct3p-hightpu-4t", "tpu-v3-slice", 4, 48, 340, ("europe-west4-a",))
_V4 = Host("ct4p-hightpu-4t", "tpu-v4-podslice", 4, 240, 407, ("us-central2-b",))
_V5E_4T = Host("ct5lp-hightpu-4t", "tpu-v5-lite-podslice", 4, 112, 192, _V5E_ZONES)
_V5P = Host("ct5p-hightpu-4t", "tpu-v5p-slice", 4, 208, 448, _V5P_ZONES)
_V6E_4T = Host("ct6e-standard-4t", "tpu-v6e-slice", 4, 180, 720, _V6E_ZONES)
_TPU7X_4T = Host("tpu7x-standard-4t", "tpu7x", 4, 224, 960, _TPU7X_ZONES)

GENERATIONS = (
    Generation(
        *("v2", "v2", None, 2, 2, 2, 45, 16, 700),
        alone=(
            Host(
                *(None, None, 4, None, None),
                zones=("us-central1-b", "us-central1-c", "us-central1-f", "europe-west4-a", "asia-east1-c"),
            ),
        ),
        together=Host(None, None, 4, None, None, ("us-central1-a", "europe-west4-a")),
        placement="compact",
        sizes=(4, 16, 64, 128, 256),
    ),
    Generation(
        *("v3", "v3", None, 2, 2, 2, 123, 32, 900),
        alone=(
            Host("ct3-hightpu-4t", "tpu-v3-device", 4, 96, 340, ("us-central1-a", "us-central1-b", "europe-west4-a")),
        ),
        together=_V3_POD,
        placement="compact",
        sizes=(4, 16, 32, 64, 128, 256, 512, 1024),
    ),
    Generation(
        *("v4", "v4", None, 3, 2, 1, 275, 32, 1200),
        alone=(_V4,),
        together=_V4,
        placement="compact",
        sizes=(4, 8, 16, 32, 64, 128, 192, 256, 512, 768, 1024, 2048, 4096),
    ),
    Generation(
        *("v5e", "v5litepod", "v5e", 2, 1, 1, 197, 16, 819),
        alone=(
            Host("ct5lp-hightpu-1t", "tpu-v5-lite-podslice", 1, 24, 48, _V5E_ZONES),
            _V5E_4T,
            Host("ct5lp-hightpu-8t", "tpu-v5-lite-podslice", 8, 224, 384, _V5E_ZONES),
        ),
        together=_V5E_4T,
        placement="compact",
        sizes=(1, 4, 8, 16, 32, 64, 128, 256),
    ),
    Generation(
        *("v5p", "v5p", None, 3, 2, 1, 459, 95, 2765),
        alone=(_V5P,),
        together=_V5P,
        placement="compact",
        # The documentation stops at 6144 chips; Google's own launcher also lists the last two.
        sizes=(4, 8, 16, 32, *_cubes(6144), 6912, 8960),
    ),
    Generation(
        *("v6e", "v6e", None, 2, 1, 1, 918, 32, 1638),
        alone=(
            Host("ct6e-standard-1t", "tpu-v6e-slice", 1, 44, 176, _V6E_ZONES),
            _V6E_4T,
            Host("ct6e-standard-8t", "tpu-v6e-slice", 8, 180, 1440, _V6E_ZONES),
        ),
        together=_V6E_4T,
        placement="compact",
        sizes=(1, 4, 8, 16, 32, 64, 128, 256),
    ),
    Generation(
        *("tpu7x", "tpu7x", "v7x", 3, 2, 2, 2307, 192, 7380),
        alone=(Host("tpu7x-standard-1t", "tpu7x", 1, None, None, _TPU7X_ZONES), _TPU7X_4T),
        together=_TPU7X_4T,
        # The pool names a workload policy; older generations set compact placement in the pool itself.
        placement="policy",
        sizes=(1, 4, 8, 16, 32, *_cubes(6144), 6912, 8192, 8960, 9216),
    ),
)


def _hosts(generation: Generation, chips: int) -> Iterator[Host]:
    """Yield the hosts that can form a slice of so many chips, the default first."""
    yield from (host for host in generation.alone if host.chips == chips)
    if chips > generation.together.chips:
        yield generation.together


def _slices(generation: Generation) -> Iterator[dict[str, object]]:
    for chips in generation.sizes:
        number = chips * generation.cores_per_chip
        for host in _hosts(generation, chips):
            hosts = chips // host.chips
            yield {
                "generation": generation.name,
                "name": f"{generation.prefix}-{number}",
                "aliases": [f"{generation.alias}-{number}"] if generation.alias else [],
                "topology": topology(chips, generation.axes),
                "chips": chips,
                "chips_per_host": host.chips,
                "hosts": hosts,
                "machine_type": host.machine_type,
                "accelerator": host.accelerator,
                "placement": None if host.machine_type is None else "none" if hosts == 1 else generation.placement,
                "host_vcpus": host.vcpus,
                "host_memory_gb": host.memory_gb,
                "zones": host.zones,
            }


def _figures(generation: Generation) -> dict[str, object]:
    return {
        "cores_per_chip": generation.cores_per_chip,
        "devices_per_chip": generation.devices_per_chip,
        "tflops_bf16": generation.tflops_bf16,
        "hbm_gib": generation.hbm_gib,
        "hbm_gbps": generation.hbm_gbps,
    }


def document() -> str:
    """Return the text of `tpus.json`, one slice per line so that a diff shows the slices that changed."""
    generations = (f"    {json.dumps(g.name)}: {json.dumps(_figures(g))}" for g in GENERATIONS)
    slices = (f"    {json.dumps(slice_)}" for g in GENERATIONS for slice_ in _slices(g))
    places = (
        f"    {json.dumps({'name': name, 'cpu_families': None if row is None else row.split()})}"
        for name, row in zones.CPU_FAMILIES.items()
    )
    return '{{\n  "generations": {{\n{}\n  }},\n  "zones": [\n{}\n  ],\n  "slices": [\n{}\n  ]\n}}\n'.format(
        *map(_lines, (generations, places, slices))
    )


def _lines(items: Iterable[str]) -> str:
    return ",\n".join(items)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tpukit.catalogue.shapes", description="Write or check tpus.json.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true", help="write tpus.json and its copy from the rules")
    what.add_argument("--check", action="store_true", help="exit 1 when one of them differs from the rules")
    files, text = (FILE, TERRAFORM_FILE), document()
    if parser.parse_args(argv).write:
        for file in files:
            file.write_text(text, encoding="utf-8")
        return 0
    stale = [file for file in files if file.read_text(encoding="utf-8") != text]
    for file in stale:
        print(f"{file} is not what its rules say: run python -m tpukit.catalogue.shapes --write")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
