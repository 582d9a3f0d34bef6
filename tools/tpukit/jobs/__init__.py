"""Jobs: from a job file to its attempts, their ends, and what people ask of them.

The package can be called, so that `tpukit.jobs()` lists jobs: the name of a subpackage and of a function would
otherwise shadow each other.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Jobs(ModuleType):
    def __call__(self, **filters: Any) -> Any:
        """Return jobs of the store, newest first. See `tpukit.jobs.api.jobs`."""
        from tpukit.jobs import api

        return api.jobs(**filters)


sys.modules[__name__].__class__ = _Jobs
