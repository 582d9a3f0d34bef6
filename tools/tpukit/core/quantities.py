"""Quantities in the notation of Kubernetes, and counts for display."""

from __future__ import annotations

from decimal import Decimal

LONGEST_SECONDS = 1e10
"""Three centuries: a longer difference means that one of the times was invalid."""
_UNITS: dict[str, int | Decimal] = {
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
    "Ei": 2**60,
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "E": 10**18,
}


def amount(quantity: str | float) -> Decimal:
    """Return the number that `8`, `500m`, `407G` or `16Gi` stands for."""
    text = str(quantity)
    unit = next((unit for unit in _UNITS if text.endswith(unit)), "")
    return Decimal(text.removesuffix(unit)) * _UNITS.get(unit, 1)


def quantity(number: Decimal | int) -> str:
    """Return the number as Kubernetes itself writes it.

    In any other notation, resending a document would count as a change of it.
    """
    if number != int(number):
        return f"{int(number * 1000)}m"
    whole, suffixes = int(number), iter("kMGTPE")
    suffix = ""
    while whole and whole % 1000 == 0:
        whole, suffix = whole // 1000, next(suffixes)
    return f"{whole}{suffix}"


def duration(seconds: float) -> str:
    """Format a duration in at most two units: `3s`, `12m 5s`, `4h 0m`. Return `-` for an invalid one."""
    if not 0 <= seconds < LONGEST_SECONDS:
        return "-"
    total = int(seconds)
    for unit, size, below in (("d", 86400, 3600), ("h", 3600, 60), ("m", 60, 1)):
        if total >= size:
            smaller = {"d": "h", "h": "m", "m": "s"}[unit]
            return f"{total // size}{unit} {total % size // below}{smaller}"
    return f"{total}s"


def counted(number: int, one: str, many: str = "") -> str:
    """Return `1 host` or `4 hosts`; `many`: the plural, where it is not `one` with an s."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"
