"""Compute Engine's machine types, to tell existing types from unknown ones.

For families that Google still extends, and for families missing from the table, only the form is checked; a type of the
right form is assumed to exist. https://cloud.google.com/compute/docs/machine-resource
"""

from __future__ import annotations

import re

_FAMILIES: dict[str, dict[str, str]] = {
    "a2": {"highgpu": "1g 2g 4g 8g", "megagpu": "16g", "ultragpu": "1g 2g 4g 8g"},
    "c2": {"standard": "4 8 16 30 60"},
    "c2d": dict.fromkeys(("standard", "highmem", "highcpu"), "2 4 8 16 32 56 112"),
    "c3": dict.fromkeys(("standard", "highmem", "highcpu"), "4 8 22 44 88 176 192"),
    "c3d": dict.fromkeys(("standard", "highmem", "highcpu"), "4 8 16 30 60 90 180 360"),
    "e2": {"standard": "2 4 8 16 32", "highmem": "2 4 8 16", "highcpu": "2 4 8 16 32"},
    "g2": {"standard": "4 8 12 16 24 32 48 96"},
    "m1": {"megamem": "96", "ultramem": "40 80 160"},
    "m2": {"megamem": "416", "hypermem": "416", "ultramem": "208 416"},
    "m3": {"megamem": "64 128", "ultramem": "32 64 128"},
    "n1": {
        "standard": "1 2 4 8 16 32 64 96",
        "highmem": "2 4 8 16 32 64 96",
        "highcpu": "2 4 8 16 32 64 96",
        "megamem": "96",
        "ultramem": "40 80 160",
    },
    "n2": {
        "standard": "2 4 8 16 32 48 64 80 96 128",
        "highmem": "2 4 8 16 32 48 64 80 96 128",
        "highcpu": "2 4 8 16 32 48 64 80 96",
    },
    "n2d": {
        "standard": "2 4 8 16 32 48 64 80 96 128 224",
        "highmem": "2 4 8 16 32 48 64 80 96",
        "highcpu": "2 4 8 16 32 48 64 80 96 128 224",
    },
    "t2a": {"standard": "1 2 4 8 16 32 48"},
    "t2d": {"standard": "1 2 4 8 16 32 48 60"},
}
"""Complete families: sizes by class."""
_SHARED = frozenset(("e2-micro", "e2-small", "e2-medium", "f1-micro", "g1-small"))
_CUSTOM = re.compile(r"([a-z][0-9]+[a-z]*-)?custom-(micro|small|medium|[0-9]+)-[0-9]+(-ext)?")
_SIZED = re.compile(r"(?P<family>[a-z][0-9]+[a-z]*)-(?P<kind>[a-z]+)-(?P<size>[0-9]+[gt]?)(-[a-z0-9]+)*")
"""The form of a sized type. The suffix names local disks (-lssd) or bare metal (-metal)."""


def exists(machine_type: str) -> bool:
    """Return True if the type is known or plausible. TPU machine types are in tpukit's catalogue."""
    if machine_type in _SHARED or _CUSTOM.fullmatch(machine_type):
        return True
    match = _SIZED.fullmatch(machine_type)
    if match is None:
        return False
    family = _FAMILIES.get(match["family"])
    return family is None or match["size"] in family.get(match["kind"], "").split()
