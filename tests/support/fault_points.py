"""python tests/support/fault_points.py POINT WORDS...: `tpu WORDS`, killed when it first comes to that fault point.

There is one before and one after each call that changes something or says what is there. Nothing of the process goes
on.
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
    # Events; what went wrong, on the JobSet; pods of others on a pool that is to be removed.
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
