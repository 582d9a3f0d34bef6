"""What copies TensorBoard data out of an attempt's workdir while the attempt runs. Sent to a host beside the supervisor:
standard library only. Its files are those of an attempt, in the folder `uploader` of the attempt that it belongs to."""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

NAME = "uploader"


def start(folder: str, argv: Sequence[str], mark: str, run_shim: Callable[[str], None]) -> None:
    """Run `argv` beside the attempt in `folder`, in its environment. It leaves by itself: when the attempt's lock is
    free, it makes its last pass."""
    own = os.path.join(folder, NAME)
    if os.path.exists(os.path.join(own, "pod.json")):
        return
    with open(os.path.join(folder, "pod.json"), encoding="utf-8") as file:
        pod: dict[str, Any] = json.load(file)
    workdir = pod["env"]["TPUKIT_WORKDIR"]
    more = ["--logdir", f"{workdir}/tensorboard", "--while-locked", os.path.join(folder, "lock")]
    os.makedirs(own, mode=0o700, exist_ok=True)
    new = os.path.join(own, "pod.json.new")
    with open(new, "w", encoding="utf-8") as file:
        json.dump({**pod, "argv": [*argv, *more], "env": {**pod["env"], mark: own}, "disks": []}, file)
    os.replace(new, os.path.join(own, "pod.json"))
    run_shim(own)
