"""The job file: everything a job can say. Where it runs is chosen when it is sent and is not written here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from tpukit import catalogue
from tpukit.catalogue import Slice
from tpukit.errors import Invalid
from tpukit.spec import durations
from tpukit.spec.fields import (
    ENV_NAME,
    RESERVATION,
    Bucket,
    Config,
    EnvName,
    Folder,
    Image,
    Label,
    MountPath,
    Name,
    Seconds,
    Tag,
    Team,
    Text,
    Workdir,
)
from tpukit.spec.forms import refusal, refuse, shown
from tpukit.spec.model import Model, digest
from tpukit.spec.problems import either

Rule = Literal["pass", "resume", "rerun", "reapply", "pre"]

_LONGEST_ARGUMENT = 131_071  # bytes of one argument or environment value; Linux starts no program with more
_LONGEST_FLEX_START = 7 * 86400  # https://cloud.google.com/kubernetes-engine/docs/concepts/dws
_ONE_SLICE_ONLY = ("v2", "v3")  # https://cloud.google.com/tpu/docs/multislice-introduction
_CAPACITY = ("on-demand", "spot", "flex-start")
_PREEMPTIBLE = ("spot", "flex-start")


class Tpu(Model):
    """A slice, by the name or by the shape that the user wrote."""

    type: Text | None = Field(None, description="Accelerator name.", examples=["v4-32"])
    generation: Text | None = Field(None, description="TPU generation.", examples=["v4"])
    topology: Text | None = Field(None, description="Chips along each axis.", examples=["2x2x4"])
    machine_type: Text | None = Field(
        None, description="Type of the hosts, where a slice comes on two.", examples=["ct5lp-hightpu-4t"]
    )

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: object) -> object:
        if isinstance(value, str):
            return {"type": value}
        if not isinstance(value, (Mapping, Tpu)):
            refuse(f"{shown(value)} is not the name of a TPU", "write the name of one: v4-32")
        return value

    @model_validator(mode="after")
    def _is_in_the_catalogue(self) -> Tpu:
        by_name, by_shape = self.type is not None, (self.generation is not None, self.topology is not None)
        if by_name == any(by_shape) or (not by_name and not all(by_shape)):
            hint = "write tpu: v4-32, or tpu: {generation: v4, topology: 2x2x4}"
            refuse("name a slice by its type, or by its generation and topology", hint)
        try:
            self.find()
        except Invalid as error:
            raise refusal([((), problem.what, problem.hint) for problem in error.problems]) from error
        return self

    @model_serializer
    def _as_written(self) -> str | dict[str, str]:
        given = {name: value for name in type(self).model_fields if (value := getattr(self, name)) is not None}
        return given["type"] if list(given) == ["type"] else given

    def find(self) -> Slice:
        if self.type is not None:
            return catalogue.find(self.type, machine_type=self.machine_type)
        assert self.generation is not None
        assert self.topology is not None
        return catalogue.find_shape(self.generation, self.topology, machine_type=self.machine_type)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        names = {"type": "string", "enum": [name for s in catalogue.slices() for name in s.spellings]}
        names["enum"] = list(dict.fromkeys(names["enum"]))
        machine = {"type": "string", "enum": sorted({s.machine_type for s in catalogue.slices() if s.machine_type})}
        return {
            "anyOf": [
                names,
                _object({"type": names, "machine_type": machine}, ["type"]),
                _object(
                    {"generation": {"type": "string"}, "topology": {"type": "string"}, "machine_type": machine},
                    ["generation", "topology"],
                ),
            ]
        }


def _object(properties: dict[str, Any], required: list[str]) -> JsonSchemaValue:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


class Reservation(Model):
    """Capacity that was bought ahead."""

    reservation: Annotated[str, RESERVATION] = Field(
        description="Name of the reservation.", examples=["my-reservation"]
    )


def _capacity(value: object) -> str | Reservation:
    """Sees to it that a wrong capacity is one problem and not one for each kind there is."""
    if isinstance(value, Reservation) or (isinstance(value, str) and value in _CAPACITY):
        return value
    if isinstance(value, Mapping) and list(value) == ["reservation"] and isinstance(value["reservation"], str):
        return Reservation(reservation=RESERVATION.check(value["reservation"]))
    wrong = f"there is no {value!r}" if isinstance(value, str) else f"{shown(value)} is not a capacity"
    raise refusal([((), wrong, f"write {either([*_CAPACITY, '{reservation: NAME}'])}")])


class Max(Model):
    """Bounds of a job."""

    runtime: Seconds | None = Field(None, description="Longest time one attempt may run.", examples=["12h"])
    restarts: int = Field(
        0,
        ge=0,
        le=100,
        description="Attempts after a failure of the program. Lost hardware is not counted.",
        examples=[20],
    )
    stall: Seconds = Field(600, description="A job without a new step for this long hangs.", examples=["10m"])
    grace: Seconds = Field(
        30, description="Time between being told to leave and being killed, to save.", examples=["30s"]
    )

    @field_validator("grace")
    @classmethod
    def _short_grace(cls, seconds: int) -> int:
        if seconds > 3600:
            refuse(f"{durations.write(seconds)} is longer than GKE grants", "write 60m or less")
        return seconds


class Mount(Model):
    """A Cloud Storage bucket as a folder, through GCS FUSE."""

    bucket: Bucket = Field(description="Name of the bucket.", examples=["my-data"])
    path: MountPath = Field(description="Where the program finds it.", examples=["/data"])
    read_only: bool = Field(True, description="Whether the program may only read.", examples=[True])


class JobSpec(Model):
    """What a user asks for. Only name, tpu and command are required."""

    name: Name = Field(description="Name of the job; its id starts with it.", examples=["pretrain"])
    tpu: Tpu = Field(description="The slice, by name or by generation and topology.", examples=["v4-32"])
    slices: int = Field(1, ge=1, le=256, description="Number of slices that train together.", examples=[2])
    command: Annotated[tuple[Text, ...], Field(strict=False)] = Field(
        max_length=1024,
        json_schema_extra={"minItems": 1},  # checked below, where a wrong item does not make the list empty
        description="Program and arguments, run on every host. No shell reads it.",
        examples=[["python", "train.py", "--steps=500"]],
    )
    code: Folder | None = Field(
        None, description="Folder that is staged with its commit id; .gitignore is honoured.", examples=["."]
    )
    image: Image | None = Field(
        None, description="Container image, for places that run containers.", examples=["us-docker.pkg.dev/p/r/train:1"]
    )
    team: Team | None = Field(None, description="Whose quota pays: a namespace and its queue.", examples=["research"])
    priority: Label | None = Field(None, description="Priority class in the queue.", examples=["high", "medium", "low"])
    config: Config = Field(
        default_factory=dict,
        description="Settings of the program, given to it as flags --config.NAME=VALUE. Short names expand (lr, bs).",
        examples=[{"lr": 0.01}],
    )
    env: dict[EnvName, Text] = Field(
        default_factory=dict,
        description="Environment of the program.",
        examples=[{"LIBTPU_INIT_ARGS": "--flag"}],
        json_schema_extra={"propertyNames": {"pattern": f"^{ENV_NAME.pattern}$"}},
    )
    workdir: Workdir | None = Field(
        None, description="Home of checkpoints, logs and TensorBoard data.", examples=["gs://bucket/runs/pretrain"]
    )
    tensorboard: bool = Field(False, description="Whether TensorBoard data is uploaded while it runs.", examples=[True])
    capacity: Annotated[Literal["on-demand", "spot", "flex-start"] | Reservation, BeforeValidator(_capacity)] = Field(
        "on-demand", description="How the hardware is bought.", examples=["spot", {"reservation": "my-reservation"}]
    )
    rule: Rule = Field(
        "pass",
        description="What follows a preemption or the loss of a peer. Default: pre on spot and flex-start, else pass.",
        examples=["pre"],
    )
    max: Max = Field(Max(), description="Bounds of the job.", examples=[{"runtime": "12h", "restarts": 20}])
    tags: Annotated[tuple[Tag, ...], Field(strict=False)] = Field(
        (), max_length=32, description="Words to find the job by.", examples=[["sweep-3"]]
    )
    mounts: Annotated[tuple[Mount, ...], Field(strict=False)] = Field(
        (),
        max_length=16,
        description="Buckets that the program sees as folders.",
        examples=[[{"bucket": "my-data", "path": "/data"}]],
    )

    @model_validator(mode="before")
    @classmethod
    def _default_rule(cls, value: object) -> object:
        if isinstance(value, Mapping) and value.get("rule") is None:
            return {**value, "rule": "pre" if value.get("capacity") in _PREEMPTIBLE else "pass"}
        return value

    @field_validator("slices")
    @classmethod
    def _slices_that_join(cls, slices: int, info: ValidationInfo) -> int:
        tpu = info.data.get("tpu")
        if slices > 1 and tpu and (generation := tpu.find().generation) in _ONE_SLICE_ONLY:
            refuse(f"{generation} slices cannot train together", "write slices: 1, or another tpu: v4-32")
        return slices

    @field_validator("command")
    @classmethod
    def _command_that_starts(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        if not command or not command[0]:
            refuse("there is no program in it", "write command: [python, train.py]")
        for index, argument in enumerate(command):
            if len(argument.encode()) > _LONGEST_ARGUMENT:
                what = "the argument is longer than 128 KiB"
                raise refusal([((index,), what, "write it to a file and pass the file's name")])
        return command

    @field_validator("env")
    @classmethod
    def _env_that_starts(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if len(name) + 1 + len(value.encode()) > _LONGEST_ARGUMENT:
                raise refusal(
                    [((name,), "the value is longer than 128 KiB", "write it to a file and pass the file's name")]
                )
        return env

    @field_validator("max")
    @classmethod
    def _within_flex_start(cls, bounds: Max, info: ValidationInfo) -> Max:
        if info.data.get("capacity") == "flex-start" and (bounds.runtime or 0) > _LONGEST_FLEX_START:
            what = f"{durations.write(bounds.runtime or 0)} is longer than flex-start runs"
            raise refusal([(("runtime",), what, "write 7d or less")])
        return bounds

    @field_validator("tags")
    @classmethod
    def _tags_once(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(tags))

    @field_validator("mounts")
    @classmethod
    def _mounts_apart(cls, mounts: tuple[Mount, ...]) -> tuple[Mount, ...]:
        paths = [mount.path for mount in mounts]
        for index, path in enumerate(paths):
            if any(f"{path}/".startswith(f"{other}/") for other in paths[:index] + paths[index + 1 :]):
                raise refusal([((index, "path"), f"{path} lies in another mount", "give each mount a path of its own")])
        return mounts

    @property
    def slice(self) -> Slice:
        return self.tpu.find()

    @property
    def preemptible(self) -> bool:
        return self.capacity in _PREEMPTIBLE

    @property
    def digest(self) -> str:
        """Of what was asked for: where the code lay on this machine is no part of it."""
        return digest({key: value for key, value in self.to_json().items() if key != "code"})
