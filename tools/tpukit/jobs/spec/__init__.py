"""Specs: users' job files and settings, checked completely before use.

A spec is frozen and independent of the place where it runs. Every problem is reported at once, with the file, the line,
what is wrong and what to write instead.
"""

from __future__ import annotations

from tpukit.jobs.spec.job import JobSpec, Max, Mount, Reservation, Rule, Tpu
from tpukit.jobs.spec.loading import load, loads
from tpukit.jobs.spec.program_config import ALIASES
from tpukit.jobs.spec.schema import json_schema
from tpukit.jobs.spec.settings import Settings

__all__ = [
    "ALIASES",
    "JobSpec",
    "Max",
    "Mount",
    "Reservation",
    "Rule",
    "Settings",
    "Tpu",
    "json_schema",
    "load",
    "loads",
]
