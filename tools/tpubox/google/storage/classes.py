"""Cloud Storage: storage classes of buckets and objects, by Google's names."""

from __future__ import annotations

from tpubox.google.wire.sources import CLASS_AND_LOCATION, STORAGE_CLASS

_CLASSES = (
    *("STANDARD", "NEARLINE", "COLDLINE", "ARCHIVE", "RAPID"),
    *("REGIONAL", "MULTI_REGIONAL", "DURABLE_REDUCED_AVAILABILITY"),  # older names, which Google still accepts
)
_LOCATION_TYPE = {"REGIONAL": "region", "MULTI_REGIONAL": "multi-region"}


def checked(name: str) -> str:
    """Return the class of that name. Accepting lower case is a guess."""
    if name.upper() not in _CLASSES:
        raise STORAGE_CLASS.invalid("Invalid storage class")
    return name.upper()


def check_location(name: str, location_type: str) -> None:
    """Refuse an older class name that implies another location type."""
    if _LOCATION_TYPE.get(name, location_type) != location_type:
        raise CLASS_AND_LOCATION.invalid(
            "The combination of locationConstraint and storageClass you provided is not supported for your project"
        )
