"""Cloud Storage: valid bucket names.

https://cloud.google.com/storage/docs/buckets#naming
"""

from __future__ import annotations

import re

from tpubox.google.wire.sources import BUCKET_DOMAIN, BUCKET_NAME

_LOOKS_LIKE = str.maketrans("01", "ol")


def check(name: str) -> None:
    if not _is_valid(name):
        raise BUCKET_NAME.invalid(f"Invalid bucket name: '{name}'")
    if "." in name:
        # A name with dots is a domain that the caller must own; the emulator knows no owners.
        site = "https://www.google.com/webmasters/verification/verification?siteUrl="
        raise BUCKET_DOMAIN.refused(403, f"You must verify site or domain ownership at {site}{name}")


def _is_valid(name: str) -> bool:
    parts = name.split(".")
    return bool(
        re.fullmatch(r"[a-z0-9][-_.a-z0-9]{1,220}[a-z0-9]", name)
        and all(0 < len(part) <= 63 and not re.search(r"^-|-$", part) for part in parts)
        and not re.fullmatch(r"\d+\.\d+\.\d+\.\d+", name)
        and not name.startswith("goog")
        and "google" not in name.translate(_LOOKS_LIKE)
    )
