"""The job file: all settings of a job. The place where it runs is chosen when it is sent, not written here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from tpukit import catalogue
from tpukit.catalogue import Slice
from tpukit.core.errors import Invalid
from tpukit.jobs.spec import durations
from tpukit.jobs.spec.field_kinds import Choice, Flag, Integer, Items, Kind, Named
from tpukit.jobs.spec.fields import (
    BUCKET,
    CONFIG,
    DURATION,
    ENV_NAME,
    FOLDER,
    IMAGE,
    LABEL,
    MOUNT_PATH,
    NAME,
    PROGRESS,
    RESERVATION,
    TAG,
    TEAM,
    TEXT,
    WORKDIR,
    Duration,
)
from tpukit.jobs.spec.forms import Path, Refusal, Violation, refuse, shown
from tpukit.jobs.spec.model import Model, Sub, digest, field
from tpukit.jobs.spec.words import either

Rule = Literal["pass", "resume", "rerun", "reapply", "pre"]

_LONGEST_ARGUMENT = 131_071  # bytes of one argument or environment value; Linux starts no program with more
_LONGEST_FLEX_START = 7 * 86400  # https://cloud.google.com/kubernetes-engine/docs/concepts/dws
_ONE_SLICE_ONLY = ("v2", "v3")  # https://cloud.google.com/tpu/docs/multislice-introduction
_CAPACITY = ("on-demand", "spot", "flex-start")
_PREEMPTIBLE = ("spot", "flex-start")


class Tpu(Model):
    """A slice, by the name or by the shape that the user wrote."""

    type: str | None = field(TEXT, "Accelerator name.", "v4-32", default=None)
    generation: str | None = field(TEXT, "TPU generation.", "v4", default=None)
    topology: str | None = field(TEXT, "Chips along each axis.", "2x2x4", default=None)
    machine_type: str | None = field(
        TEXT, "Type of the hosts, where a slice comes on two.", "ct5lp-hightpu-4t", default=None
    )

    @classmethod
    def raw_fields(cls, value: Any) -> Mapping[str, Any]:
        if isinstance(value, str):
            return {"type": value}
        if not isinstance(value, Mapping):
            refuse(f"{shown(value)} is not the name of a TPU", "write the name of one: v4-32")
        return value

    def validate(self) -> None:
        by_name, by_shape = self.type is not None, (self.generation is not None, self.topology is not None)
        if by_name == any(by_shape) or (not by_name and not all(by_shape)):
            hint = "write tpu: v4-32, or tpu: {generation: v4, topology: 2x2x4}"
            refuse("name a slice by its type, or by its generation and topology", hint)
        try:
            self.find()
        except Invalid as error:
            raise Refusal([((), problem.what, problem.hint) for problem in error.problems]) from error

    def find(self) -> Slice:
        if self.type is not None:
            return catalogue.find(self.type, machine_type=self.machine_type)
        assert self.generation is not None
        assert self.topology is not None
        return catalogue.find_shape(self.generation, self.topology, machine_type=self.machine_type)

    def to_json(self, *, given: bool = False) -> Any:
        """Return the slice as it was written: a name alone is a word."""
        words = super().to_json(given=given)
        return words["type"] if list(words) == ["type"] else words

    @classmethod
    def schema(cls) -> dict[str, Any]:
        names = list(dict.fromkeys(name for s in catalogue.slices() for name in s.spellings))
        name, text = {"type": "string", "enum": names}, {"type": "string"}
        machine = {"type": "string", "enum": sorted({s.machine_type for s in catalogue.slices() if s.machine_type})}
        by_shape = {"generation": text, "topology": text, "machine_type": machine}
        return {
            "description": cls.__doc__,
            "anyOf": [
                name,
                _object({"type": name, "machine_type": machine}, ["type"]),
                _object(by_shape, ["generation", "topology"]),
            ],
        }


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


class Reservation(Model):
    """Capacity that was bought ahead."""

    reservation: str = field(RESERVATION, "Name of the reservation.", "my-reservation")


class _Capacity(Kind):
    """The kind of capacity. A wrong value is one problem, whatever the number of kinds."""

    inner = (Sub(Reservation),)

    def read(self, value: Any, path: Path, wrong: list[Violation]) -> str | Reservation:
        if isinstance(value, Reservation) or (isinstance(value, str) and value in _CAPACITY):
            return value
        if isinstance(value, Mapping) and list(value) == ["reservation"] and isinstance(value["reservation"], str):
            assert RESERVATION.form
            return Reservation.unchecked(reservation=RESERVATION.form.check(value["reservation"]))
        wrong_one = f"there is no {value!r}" if isinstance(value, str) else f"{shown(value)} is not a capacity"
        raise Refusal([((), wrong_one, f"write {either([*_CAPACITY, '{reservation: NAME}'])}")])

    def json(self, value: str | Reservation) -> Any:
        return value if isinstance(value, str) else value.to_json()

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [Choice(*_CAPACITY).schema(), *(kind.schema() for kind in self.inner)]}


def _short_grace(seconds: int) -> int:
    if seconds > 3600:
        refuse(f"{durations.write(seconds)} is longer than GKE allows", "write 60m or less")
    return seconds


class Max(Model):
    """Bounds of a job."""

    runtime: int | None = field(DURATION, "Longest time one attempt may run.", "12h", default=None)
    restarts: int = field(
        Integer(0, 100), "Restarts after failures of the program. Lost hardware is not counted.", 20, default=0
    )
    stall: int = field(
        DURATION,
        "Time without a new step after which the job counts as hung. If you set it, it includes the time before the"
        " first step of a program that calls tpukit.host.start(), and the time before the second step that a program"
        " prints. If not, up to an hour is left out in which a program with tpukit.host computes or saves.",
        "10m",
        default=600,
    )
    grace: int = field(
        Duration(_short_grace),
        "Time between SIGTERM and SIGKILL, for saving.",
        "30s",
        default=30,
    )
    unattended: int = field(
        Duration(zero=True),
        "Time without a driver after which hardware created for the job is released; 0s: never.",
        "24h",
        default=86400,
    )


class Mount(Model):
    """A Cloud Storage bucket as a folder, through GCS FUSE."""

    bucket: str = field(BUCKET, "Name of the bucket.", "my-data")
    path: str = field(MOUNT_PATH, "Folder at which the program sees the bucket.", "/data")
    read_only: bool = field(Flag(), "True if the program may only read.", True, default=True)


def _command_that_starts(command: tuple[str, ...]) -> tuple[str, ...]:
    if not command or not command[0]:
        refuse("the command is empty", "write command: [python, train.py]")
    for index, argument in enumerate(command):
        if len(argument.encode()) > _LONGEST_ARGUMENT:
            what = "the argument is longer than 128 KiB"
            raise Refusal([((index,), what, "write it to a file and pass the file's name")])
    return command


def _env_that_starts(env: dict[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if len(name) + 1 + len(value.encode()) > _LONGEST_ARGUMENT:
            what = "the value is longer than 128 KiB"
            raise Refusal([((name,), what, "write it to a file and pass the file's name")])
    return env


def _once(tags: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tags))


def _apart(mounts: tuple[Mount, ...]) -> tuple[Mount, ...]:
    paths = [mount.path for mount in mounts]
    for index, path in enumerate(paths):
        if any(f"{path}/".startswith(f"{other}/") for other in paths[:index] + paths[index + 1 :]):
            raise Refusal([((index, "path"), f"{path} lies in another mount", "give each mount a path of its own")])
    return mounts


class JobSpec(Model):
    """A job as a user describes it. Only name, tpu and command are required."""

    name: str = field(NAME, "Name of the job; its id starts with it.", "pretrain")
    tpu: Tpu = field(Sub(Tpu), "The slice, by name or by generation and topology.", "v4-32")
    slices: int = field(Integer(1, 256), "Number of slices that train together.", 2, default=1)
    command: tuple[str, ...] = field(
        Items(TEXT, 1024, _command_that_starts, least=1),
        "Program and arguments, run on every host without a shell.",
        ["python", "train.py", "--steps=500"],
    )
    code: str | None = field(
        FOLDER, "Folder that is staged with its commit id; .gitignore is honoured.", ".", default=None
    )
    image: str | None = field(
        IMAGE, "Container image, for places that run containers.", "us-docker.pkg.dev/p/r/train:1", default=None
    )
    team: str | None = field(TEAM, "Team whose quota is used: a namespace and its queue.", "research", default=None)
    priority: str | None = field(LABEL, "Priority class in the queue.", "high", "medium", "low", default=None)
    config: dict[str, Any] = field(
        CONFIG,
        "Settings of the program, given to it as flags --config.NAME=VALUE. Short names expand (lr, bs).",
        {"lr": 0.01},
        default={},
    )
    env: dict[str, str] = field(
        Named(ENV_NAME, TEXT, _env_that_starts),
        "Environment of the program.",
        {"LIBTPU_INIT_ARGS": "--flag"},
        default={},
    )
    workdir: str | None = field(
        WORKDIR, "Folder for checkpoints, logs and TensorBoard data.", "gs://bucket/runs/pretrain", default=None
    )
    tensorboard: bool = field(Flag(), "Whether TensorBoard data is uploaded while it runs.", True, default=False)
    capacity: Literal["on-demand", "spot", "flex-start"] | Reservation = field(
        _Capacity(), "How the hardware is bought.", "spot", {"reservation": "my-reservation"}, default="on-demand"
    )
    rule: Rule = field(
        Choice("pass", "resume", "rerun", "reapply", "pre"),
        "Rule after a preemption or the loss of a peer. Default: pre on spot and flex-start, else pass.",
        "pre",
        default="pass",
    )
    max: Max = field(Sub(Max), "Bounds of the job.", {"runtime": "12h", "restarts": 20}, default=Max())
    progress: str | None = field(
        PROGRESS,
        "Pattern (Python) with groups step, loss, saved, for lines of a program that tpukit does not recognize.",
        r"it=(?P<step>\d+) L=(?P<loss>\S+)|flushed (?P<saved>\d+)",
        default=None,
    )
    tags: tuple[str, ...] = field(Items(TAG, 32, _once), "Tags, to find the job by.", ["sweep-3"], default=())
    mounts: tuple[Mount, ...] = field(
        Items(Sub(Mount), 16, _apart),
        "Buckets that the program sees as folders.",
        [{"bucket": "my-data", "path": "/data"}],
        default=(),
    )
    access: Literal["restricted", "tpu", "privileged"] = field(
        Choice("restricted", "tpu", "privileged"),
        "How its hosts open their chips, on GKE: without extra rights; as root with SYS_RESOURCE; or, as a last "
        "resort, with all rights. Its team must allow the latter two.",
        "tpu",
        default="restricted",
    )
    root: bool = field(
        Flag(), "Whether the program runs as root, on GKE. Its team must allow that.", True, default=False
    )

    fit: str | None = field(
        TEXT,
        "Function that gives `tpu fit` the step and its abstract arguments, where the program cannot be run up to it.",
        "train.py:step_for_fit",
        default=None,
    )

    @classmethod
    def raw_fields(cls, value: Any) -> Mapping[str, Any]:
        raw = super().raw_fields(value)
        if raw.get("rule") is not None:
            return raw
        return {**raw, "rule": "pre" if raw.get("capacity") in _PREEMPTIBLE else "pass"}

    @classmethod
    def between(cls, good: Mapping[str, Any], raw: Mapping[str, Any]) -> Iterator[Violation]:
        tpu, bounds = good.get("tpu"), good.get("max")
        if tpu and good.get("slices", 1) > 1 and (generation := tpu.find().generation) in _ONE_SLICE_ONLY:
            yield ("slices",), f"{generation} slices cannot train together", "write slices: 1, or another tpu: v4-32"
        if good.get("capacity") == "flex-start" and bounds and (bounds.runtime or 0) > _LONGEST_FLEX_START:
            yield (
                ("max", "runtime"),
                f"{durations.write(bounds.runtime)} is longer than flex-start runs",
                "write 7d or less",
            )

    @property
    def slice(self) -> Slice:
        return self.tpu.find()

    @property
    def preemptible(self) -> bool:
        return self.capacity in _PREEMPTIBLE

    @property
    def digest(self) -> str:
        """Digest of the request, without the folder of the code on this machine and the function for `tpu fit`."""
        return digest({key: value for key, value in self.to_json().items() if key not in ("code", "fit")})
