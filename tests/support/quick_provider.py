"""Terraform's provider without the waiting times that Google Cloud needs."""

from __future__ import annotations

from pathlib import Path

_TUNED = 'provider "google" {\n  poll_interval = "100ms"\n  batching {\n    send_after = "200ms"\n  }\n}\n'


def quicken(modules: Path) -> None:
    """Tune a copy of the root module: Terraform merges override files such as this one."""
    (modules / "tuned_override.tf").write_text(_TUNED, encoding="utf-8")
