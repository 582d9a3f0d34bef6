"""Run `tpu WORDS` and kill it at a fault point: `python tests/support/fault_points.py POINT WORDS...`.

There is a fault point before and after each call that changes or reads state. The process is killed at the first
occurrence, without any cleanup.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from tpukit.google.gke import Client, Gke
from tpukit.kube import Cluster

EXIT = 9
CALLS = {
    **{name: Client for name in vars(Gke) if not name.startswith("_")},
    # Events; the failure message on the JobSet; other pods on a pool that is about to be removed.
    **dict.fromkeys(("create", "patch", "list"), Cluster),
}
POINTS = [f"{when} {name}" for name in CALLS for when in ("before", "after")]


def main() -> None:
    point = sys.argv.pop(1)
    if point not in POINTS:
        raise SystemExit(f"there is no fault point {point!r}; there are {', '.join(POINTS)}")

    def reach(one: str) -> None:
        if one == point:
            os._exit(EXIT)

    def around(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(self: Any, *words: Any, **more: Any) -> Any:
            if name == "create" and words[0].get("kind") != "Event":
                return call(self, *words, **more)
            reach(f"before {name}")
            answer = call(self, *words, **more)
            reach(f"after {name}")
            return answer

        return called

    for name, owner in CALLS.items():
        setattr(owner, name, around(name, getattr(owner, name)))

    from tpukit.__main__ import main as tpu

    tpu()


if __name__ == "__main__":
    main()
