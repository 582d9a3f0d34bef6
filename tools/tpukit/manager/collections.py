"""All that the job manager remembers."""

from __future__ import annotations

from typing import Any

from tpukit.manager.inventory import VMS
from tpukit.manager.tpu_aliases import ALIASES
from tpukit.manager.users import USERS
from tpukit.manager.windows import WINDOWS
from tpukit.store import Kind

KINDS: tuple[Kind[Any], ...] = (USERS, ALIASES, VMS, WINDOWS)
