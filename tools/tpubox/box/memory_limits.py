"""How much memory each component of a sandbox may take, and what happens where it wants more.

Go's programs collect garbage all the time before they take more than their limit: they become slow, and take it where
all of it is in use, because a control plane cannot forget what it holds. Programs in Python cannot give memory back, so
they end, with a sentence in their log; `tpu sandbox status` shows who does not run, and `tpu sandbox up` starts it
again with the state that it had. Pods outlive the agent, JobSet and Kueue outlive what started them, and TPU VMs come
back as after a power cut. What such a program starts is not its own memory.
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
_KILLED = 137  # as the kernel leaves a process that took too much
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limit:
    mib: int
    garbage: int = 0  # percent of what is in use that Go leaves lying before it collects; 0: a program in Python

    @property
    def environment(self) -> dict[str, str]:
        if self.garbage:
            return {"GOGC": str(self.garbage), "GOMEMLIMIT": f"{self.mib}MiB"}
        return {VARIABLE: str(self.mib)}


# Go would leave 100 % lying. Half of that is an eighth less memory, for half a second of a start. The API server, for
# which all others wait when a box starts, may leave more, and has more to hold.
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
    """What a component is told of its limit when it starts."""
    limit = LIMITS.get(component)
    return limit.environment if limit else {}


def keep() -> None:
    """From now on this process ends where it holds more than it was told that it may. Linux only, as pods' limits."""
    limit = int(os.environ.get(VARIABLE, "0"))
    if limit and sys.platform == "linux":
        threading.Thread(target=_watch, args=(limit,), daemon=True).start()


def _watch(limit: int) -> None:
    while (held := _resident()) <= limit:
        time.sleep(_LOOK_SECONDS)
    told = f"this component holds {held} MiB and may hold {limit}, so it ends"
    print(f"{told}; `tpu sandbox up` starts it again with the state that it had", file=sys.stderr, flush=True)
    os._exit(_KILLED)


def _resident() -> int:
    """MiB of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // _MIB
