"""python tests/fault_points.py N WORDS...: `tpu WORDS`, killed at its Nth fault point.

Those are before and after each call that changes something or says what is there. Nothing of the process goes on.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from typing import Any

from tpukit.cloud.gke import Client
from tpukit.kube import Cluster

EXIT = 9


def main() -> None:
    last, passed = int(sys.argv.pop(1)), itertools.count(1)

    def point() -> None:
        if next(passed) == last:
            os._exit(EXIT)

    def around(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(self: Any, *words: Any, **more: Any) -> Any:
            if call.__name__ == "create" and words[0].get("kind") != "Event":
                return call(self, *words, **more)
            point()
            answer = call(self, *words, **more)
            point()
            return answer

        return called

    for name in ("pools", "create_pool", "delete_pool"):
        setattr(Client, name, around(getattr(Client, name)))
    for name in ("create", "patch"):
        setattr(Cluster, name, around(getattr(Cluster, name)))

    from tpukit.__main__ import main as tpu

    tpu()


if __name__ == "__main__":
    main()
