"""Times as Kubernetes writes them."""

from __future__ import annotations

from datetime import UTC, datetime


def stamp(at: float) -> str:
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse(text: str) -> float:
    """Return seconds since the epoch, without digits after the sixth decimal place."""
    whole, _, part = text.removesuffix("Z").partition(".")
    moment = datetime.strptime(f"{whole}.{part[:6] or '0'}", "%Y-%m-%dT%H:%M:%S.%f")
    return moment.replace(tzinfo=UTC).timestamp()
