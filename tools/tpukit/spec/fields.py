"""The types of the fields of a spec."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, WithJsonSchema

from tpukit.spec import config, durations
from tpukit.spec.forms import Form, dashed, refuse, shown, sound

_LONGEST = 365 * 86400
_BUCKET = r"[a-z0-9][-a-z0-9_.]{1,220}[a-z0-9]"
_GS = rf"gs://{_BUCKET}(?:/(?!\.{{1,2}}(?:/|$))[^/\x00-\x1f\x7f*?\[\]#]+)*/?"
_FOLDER = r"(?!.*://)[^\x00-\x1f\x7f]+"
_HOST = r"[a-zA-Z0-9][-a-zA-Z0-9]*(?:\.[a-zA-Z0-9][-a-zA-Z0-9]*)*(?::[0-9]{1,5})?"
_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_IMAGE = rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*(?::[A-Za-z0-9_][-A-Za-z0-9_.]{{0,127}})?(?:@sha256:[a-f0-9]{{64}})?"
_RESERVATION = r"(?:projects/[-a-z0-9.:]+/reservations/)?[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?"
_OF_THE_SYSTEM = frozenset({"bin", "boot", "dev", "etc", "lib", "lib64", "proc", "run", "sbin", "sys", "usr"})
_RESERVED = ("TPUKIT_", "TPU_WORKER_", "TPU_PROCESS_", "MEGASCALE_", "JAX_COORDINATOR_")
_RESERVED_NAMES = frozenset({"TPU_TOPOLOGY", "TPU_ACCELERATOR_TYPE", "TPU_SKIP_MDS_QUERY", "JOB_COMPLETION_INDEX"})


def _duration(value: object) -> int:
    if not isinstance(value, str):
        whole = isinstance(value, int) and not isinstance(value, bool)
        refuse(f"{shown(value)} is not a duration", f"write {value}s for seconds" if whole else "write 90s, 30m or 12h")
    try:
        seconds = durations.parse(value)
    except ValueError:
        refuse(f"{shown(value)} is not a duration", "write a whole number and one of s, m, h, d: 90s or 12h")
    if not 1 <= seconds <= _LONGEST:
        refuse(f"{value} is out of bounds", f"write something between 1s and {durations.write(_LONGEST)}")
    return seconds


def _without_last_slash(path: str) -> str:
    return path.rstrip("/") or "/"


def _free_name(name: str) -> str:
    if name.startswith(_RESERVED) or name in _RESERVED_NAMES:
        refuse("this name is reserved", "leave it out: tpukit sets it for each host")
    return name


def _free_path(path: str) -> str:
    if path.split("/")[1] in _OF_THE_SYSTEM:
        refuse(f"{path} belongs to the system", "mount it elsewhere, at /data for one")
    return path


def _not_kubernetes(team: str) -> str:
    if team.startswith("kube-"):
        refuse(f"{shown(team)} is not allowed", "names that start with kube- belong to Kubernetes: use another")
    return team


Text = Annotated[str, AfterValidator(sound)]
Name = Annotated[
    str,
    Form(r"[a-z](?:[-a-z0-9]*[a-z0-9])?", "use at most 32 of a-z, 0-9 and -, a letter first and no - last", 32, dashed),
]
Label = Annotated[
    str,
    Form(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", "use at most 63 of a-z, 0-9 and -, with no - first or last", 63, dashed),
]
Team = Annotated[Label, AfterValidator(_not_kubernetes)]
TAG = Form(
    r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?",
    "use at most 63 letters, digits, dashes, dots and underscores, with a letter or digit first and last",
    63,
)
Tag = Annotated[str, TAG]
ENV_NAME = Form(r"[A-Za-z_][A-Za-z0-9_]*", "use letters, digits and _, with no digit first", 256)
EnvName = Annotated[str, ENV_NAME, AfterValidator(_free_name)]
Image = Annotated[str, Form(_IMAGE, "write HOST/PATH:TAG or HOST/PATH@sha256:DIGEST, the path in lower case", 512)]
Folder = Annotated[str, Form(_FOLDER, "write the path of a folder on this machine", 1024)]
BucketPath = Annotated[
    str, Form(_GS, "write gs://BUCKET or gs://BUCKET/PATH", 1024), AfterValidator(_without_last_slash)
]
Workdir = Annotated[
    str,
    Form(rf"{_GS}|{_FOLDER}", "write gs://BUCKET/PATH, or a folder on this machine", 1024),
    AfterValidator(_without_last_slash),
]
Bucket = Annotated[str, Form(_BUCKET, "write the name of the bucket alone, without gs://", 222)]
MountPath = Annotated[
    str,
    Form(
        r"(?:/(?!\.{1,2}(?:/|$))[-A-Za-z0-9._]+)+",
        "write an absolute path of letters, digits, dots, dashes and underscores, such as /data",
        255,
    ),
    AfterValidator(_free_path),
]
RESERVATION = Form(_RESERVATION, "write NAME, or projects/PROJECT/reservations/NAME", 255)
Seconds = Annotated[
    int,
    BeforeValidator(_duration),
    PlainSerializer(durations.write, return_type=str),
    WithJsonSchema({"type": "string", "pattern": durations.PATTERN}),
]
Config = Annotated[dict[str, Any], AfterValidator(config.check)]
