"""Kinds of the fields of a spec."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tpukit.jobs.spec import durations, patterns, program_config
from tpukit.jobs.spec.field_kinds import Anything, Kind, Text
from tpukit.jobs.spec.forms import Form, Path, Violation, dashed, refuse, shown

_LONGEST = 365 * 86400
_BUCKET = r"[a-z0-9][-a-z0-9_.]{1,220}[a-z0-9]"
_GS = rf"gs://{_BUCKET}(?:/(?!\.{{1,2}}(?:/|$))[^/\x00-\x1f\x7f*?\[\]#]+)*/?"
_FOLDER = r"(?!.*://)[^\x00-\x1f\x7f]+"
_HOST = r"[a-zA-Z0-9][-a-zA-Z0-9]*(?:\.[a-zA-Z0-9][-a-zA-Z0-9]*)*(?::[0-9]{1,5})?"
_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_IMAGE = rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*(?::[A-Za-z0-9_][-A-Za-z0-9_.]{{0,127}})?(?:@sha256:[a-f0-9]{{64}})?"
_RESERVATION = r"(?:projects/[-a-z0-9.:]+/reservations/)?[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?"
_PART = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_OF_THE_SYSTEM = frozenset({"bin", "boot", "dev", "etc", "lib", "lib64", "proc", "run", "sbin", "sys", "usr"})
_RESERVED = ("TPUKIT_", "TPU_WORKER_", "TPU_PROCESS_", "MEGASCALE_", "JAX_COORDINATOR_")
_RESERVED_NAMES = frozenset({"TPU_TOPOLOGY", "TPU_ACCELERATOR_TYPE", "TPU_SKIP_MDS_QUERY", "JOB_COMPLETION_INDEX"})


class Duration(Kind):
    """A duration as users write it (12h), held in seconds. `zero`: 0s is allowed."""

    def __init__(self, *rules: Callable[[int], int], zero: bool = False) -> None:
        super().__init__(*rules)
        self._least = 0 if zero else 1

    def read(self, value: Any, path: Path, wrong: list[Violation]) -> int:
        if not isinstance(value, str):
            whole = isinstance(value, int) and not isinstance(value, bool)
            hint = f"write {value}s for seconds" if whole else "write 90s, 30m or 12h"
            refuse(f"{shown(value)} is not a duration", hint)
        try:
            seconds = durations.parse(value)
        except ValueError:
            refuse(f"{shown(value)} is not a duration", "write a whole number and one of s, m, h, d: 90s or 12h")
        if not self._least <= seconds <= _LONGEST:
            hint = f"write a duration between {self._least}s and {durations.write(_LONGEST)}"
            refuse(f"{value} is out of bounds", hint)
        return seconds

    def json(self, value: int) -> str:
        return durations.write(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": durations.PATTERN}


def _without_last_slash(path: str) -> str:
    return path.rstrip("/") or "/"


def _free_name(name: str) -> str:
    if name.startswith(_RESERVED) or name in _RESERVED_NAMES:
        refuse("this name is reserved", "leave it out; tpukit sets this variable for each host")
    return name


def _free_path(path: str) -> str:
    if path.split("/")[1] in _OF_THE_SYSTEM:
        refuse(f"{path} belongs to the system", "mount it elsewhere, such as at /data")
    return path


def _not_kubernetes(team: str) -> str:
    if team.startswith("kube-"):
        refuse(f"{shown(team)} is not allowed", "names that start with kube- belong to Kubernetes: use another")
    return team


TAG_FORM = Form(
    r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?",
    "use at most 63 letters, digits, dashes, dots and underscores, with a letter or digit first and last",
    63,
)
_LABEL = Form(
    r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", "use at most 63 of a-z, 0-9 and -, with no - first or last", 63, dashed
)

TEXT = Text()
NAME = Text(
    Form(r"[a-z](?:[-a-z0-9]*[a-z0-9])?", "use at most 32 of a-z, 0-9 and -, a letter first and no - last", 32, dashed)
)
LABEL = Text(_LABEL)
TEAM = Text(_LABEL, _not_kubernetes)
TAG = Text(TAG_FORM)
ENV_NAME = Text(Form(r"[A-Za-z_][A-Za-z0-9_]*", "use letters, digits and _, with no digit first", 256), _free_name)
IMAGE = Text(Form(_IMAGE, "write HOST/PATH:TAG or HOST/PATH@sha256:DIGEST, the path in lower case", 512))
FOLDER = Text(Form(_FOLDER, "write the path of a folder on this machine", 1024))
BUCKET_PATH = Text(Form(_GS, "write gs://BUCKET or gs://BUCKET/PATH", 1024), _without_last_slash)
WORKDIR = Text(
    Form(rf"{_GS}|{_FOLDER}", "write gs://BUCKET/PATH, or a folder on this machine", 1024), _without_last_slash
)
BUCKET = Text(Form(_BUCKET, "write the name of the bucket alone, without gs://", 222))
MOUNT_PATH = Text(
    Form(
        r"(?:/(?!\.{1,2}(?:/|$))[-A-Za-z0-9._]+)+",
        "write an absolute path of letters, digits, dots, dashes and underscores, such as /data",
        255,
    ),
    _free_path,
)
RESERVATION = Text(Form(_RESERVATION, "write NAME, or projects/PROJECT/reservations/NAME", 255))
RESERVATION_PART = Text(
    Form(
        rf"{_RESERVATION}(?:/reservationBlocks/{_PART}(?:/reservationSubBlocks/{_PART})?)?",
        "write NAME, NAME/reservationBlocks/BLOCK or NAME/reservationBlocks/BLOCK/reservationSubBlocks/SUB_BLOCK",
        400,
    )
)
"""A reservation, or one block of it, whose hosts are near each other."""
PROGRESS = Text(Form(r"[\s\S]+", "write a pattern such as " + patterns.EXAMPLE, 1000), patterns.check)
DURATION = Duration()
CONFIG = Anything(program_config.check)
