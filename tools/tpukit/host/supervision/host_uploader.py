"""The process that copies TensorBoard data out of an attempt's workdir while the attempt runs.

Its files are like those of an attempt, in a folder inside that of the attempt.
"""

from __future__ import annotations

import json
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NAME = "uploader"


def start(folder: str, argv: Sequence[str], mark: str, run_shim: Callable[[str], None]) -> None:
    """Run `argv` beside the attempt in `folder`, in its environment.

    It exits by itself: once the attempt's lock is free, it makes its last pass.
    """
    attempt, own = Path(folder), Path(folder, NAME)
    if (own / "pod.json").exists():
        return
    pod = json.loads((attempt / "pod.json").read_text(encoding="utf-8"))
    more = ["--logdir", f"{pod['env']['TPUKIT_WORKDIR']}/tensorboard", "--while-locked", str(attempt / "lock")]
    made = {**pod, "argv": [*argv, *more], "env": {**pod["env"], mark: str(own)}, "disks": []}
    own.mkdir(mode=0o700, exist_ok=True)
    (own / "pod.json.new").write_text(json.dumps(made), encoding="utf-8")
    (own / "pod.json.new").replace(own / "pod.json")
    run_shim(str(own))
