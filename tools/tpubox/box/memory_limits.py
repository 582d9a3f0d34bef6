"""Memory limits of the components of a sandbox, and their enforcement.

Go programs collect garbage continuously before they exceed their limit: they become slow, and exceed it if all of it is
in use, because a control plane cannot discard its state. Python programs cannot return memory, so they exit, with a
message in their log; `tpu sandbox status` shows which do not run, and `tpu sandbox up` restarts them with their
previous state. Pods outlive the agent, JobSet and Kueue outlive their starter, and TPU VMs recover as after a power
cut. Memory of child processes does not count.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "TPUKIT_MEMORY_LIMIT"
_LOOK_SECONDS = 1.0
_KILLED = 137  # as the kernel leaves a process that exceeded its memory
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limit:
    mib: int
    garbage: int = 0  # percent of live memory that Go leaves as garbage before it collects; 0: a Python program

    @property
    def environment(self) -> dict[str, str]:
        if self.garbage:
            return {"GOGC": str(self.garbage), "GOMEMLIMIT": f"{self.mib}MiB"}
        return {VARIABLE: str(self.mib)}


# Go's default is 100 %. Half of that saves an eighth of the memory, for half a second of a start. The API server, which
# all others wait for at start, may leave more, and has more to hold.
LIMITS = {
    "etcd": Limit(512, garbage=50),
    "kube-apiserver": Limit(1024, garbage=140),
    "kube-controller-manager": Limit(512, garbage=50),
    "kube-scheduler": Limit(512, garbage=50),
    "jobset": Limit(512, garbage=50),
    "kueue": Limit(512, garbage=50),
    "kwok": Limit(512, garbage=50),
    "addons": Limit(512),
    "google": Limit(1024),
    "agent": Limit(1024),
}


def environment(component: str) -> dict[str, str]:
    """Return the variables that tell a component its limit."""
    limit = LIMITS.get(component)
    return limit.environment if limit else {}


def keep() -> None:
    """Exit this process from now on if it exceeds its limit. Linux only, like the limits of pods."""
    limit = int(os.environ.get(VARIABLE, "0"))
    if limit and sys.platform == "linux":
        threading.Thread(target=_watch, args=(limit,), daemon=True).start()


def _watch(limit: int) -> None:
    while (held := _resident()) <= limit:
        time.sleep(_LOOK_SECONDS)
    told = f"this component uses {held} MiB, more than its limit of {limit} MiB, and is stopped"
    print(f"{told}; `tpu sandbox up` starts it again with the state that it had", file=sys.stderr, flush=True)
    os._exit(_KILLED)


def _resident() -> int:
    """Return the resident memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // _MIB
