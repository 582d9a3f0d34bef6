"""tpukit: multislice JAX training that survives preemption, from one machine to Google Cloud.

`submit`, `jobs` and `job` act on jobs from Python; `tpukit.jobs.api` documents them. They are loaded at their first
use, so that `import tpukit` stays instant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpukit.core.errors import TpukitError as TpukitError
    from tpukit.jobs.api import Job as Job
    from tpukit.jobs.api import job as job
    from tpukit.jobs.api import jobs as jobs
    from tpukit.jobs.api import submit as submit
    from tpukit.jobs.reasons import State as State

__version__ = "0.1.0"
__all__ = ["Job", "State", "TpukitError", "job", "jobs", "submit"]

_HOMES = {"State": "tpukit.jobs.reasons", "TpukitError": "tpukit.core.errors"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name == "jobs":  # the package can be called
        return import_module("tpukit.jobs")
    return getattr(import_module(_HOMES.get(name, "tpukit.jobs.api")), name)
