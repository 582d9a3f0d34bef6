"""Store collections of the job manager."""

from __future__ import annotations

from typing import Any

from tpukit.kernel.store import Kind
from tpukit.sharing.inventory import VMS
from tpukit.sharing.tpu_aliases import ALIASES
from tpukit.sharing.users import USERS
from tpukit.sharing.windows import WINDOWS

KINDS: tuple[Kind[Any], ...] = (USERS, ALIASES, VMS, WINDOWS)
