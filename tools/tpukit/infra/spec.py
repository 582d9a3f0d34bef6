"""The cluster file: what the training environment is made of, under the variable names of the Terraform modules.

What is left out is left to Terraform's own defaults. A wrong zone, type or range is refused here, in a moment, before
any cloud is asked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin

from pydantic import AfterValidator, Field, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from tpukit.catalogue import Slice
from tpukit.errors import Invalid, Problem
from tpukit.infra import addresses, checks, shapes
from tpukit.spec import document, overrides
from tpukit.spec.document import Node
from tpukit.spec.fields import RESERVATION, Label, Text
from tpukit.spec.forms import Form, dashed, refusal, refuse
from tpukit.spec.model import Model
from tpukit.spec.settings import Project, Region, Zone

FILE = "cluster.yaml"

_BEYOND_TERRAFORM = ("tf_state_bucket", "tf_state_prefix", "any_zone")
_NAME = r"[a-z](?:[-a-z0-9]*[a-z0-9])?"
_BASIC = ("roles/owner", "roles/editor", "roles/viewer")


def _named(longest: int) -> Form:
    words = f"use at most {longest} of a-z, 0-9 and -, a letter first and no - last"
    return Form(_NAME, words, longest, dashed)


def _range(text: str) -> str:
    try:
        addresses.parse(text)
    except ValueError as error:
        refuse(*str(error).split("\n"))
    return text


def _role(role: str) -> str:
    if role in _BASIC or role.startswith("roles/iam."):
        refuse(f"{role} gives away the project", "write the roles it needs, such as roles/logging.logWriter")
    return role


def _not_the_internet(text: str) -> str:
    return (
        refuse("this is the whole Internet", "leave it out: the DNS endpoint is there") if text.endswith("/0") else text
    )


def _new_enough(version: str) -> str:
    if int(version.split(".")[1]) < 32:
        refuse(f"GKE no longer creates clusters of {version}", "leave it out, for the release channel's own")
    return version


Count = Annotated[int, Field(ge=0)]
BucketName = Annotated[
    str, Form(r"[a-z0-9][-a-z0-9_.]{1,61}[a-z0-9]", "write 3 to 63 of a-z, 0-9, -, _ and ., without gs://", 63)
]
Account = Annotated[str, Form(r"[a-z][-a-z0-9]{4,28}[a-z0-9]", "use 6 to 30 of a-z, 0-9 and -, a letter first", 30)]
Role = Annotated[
    str,
    Form(r"(?:(?:projects|organizations)/[-a-z0-9.:]+/)?roles/[A-Za-z0-9_.]+", "write roles/SERVICE.NAME", 200),
    AfterValidator(_role),
]
Roles = Annotated[tuple[Role, ...], Field(strict=False)]
Range = Annotated[str, AfterValidator(_range)]
Network = Annotated[str, AfterValidator(_not_the_internet), AfterValidator(_range)]
Version = Annotated[
    str,
    Form(r"1\.[0-9]{1,3}(?:\.[0-9]{1,5}(?:-gke\.[0-9]{1,9})?)?", "write one like 1.34.1-gke.3084001", 40),
    AfterValidator(_new_enough),
]
Capacity = Literal["on-demand", "spot", "reservation", "flex-start"]
Prefix = Annotated[
    str, Form(r"[A-Za-z0-9][-A-Za-z0-9_.]*(?:/[A-Za-z0-9][-A-Za-z0-9_.]*)*", "write words with / between them", 200)
]


class Pool(Model):
    """One pool by its name: what differs from the common slices."""

    tpu_type: Text | None = Field(None, description="Type of the slice.", examples=["v4-32"])
    tpu_machine_type: Text | None = Field(None, description="Machine type.", examples=["ct4p-hightpu-4t"])
    tpu_topology: Text | None = Field(None, description="Topology.", examples=["2x2x4"])
    tpu_num_nodes: Count | None = Field(None, description="Hosts.", examples=[4])
    capacity: Capacity | None = Field(None, description="How it is bought.", examples=["spot"])
    reservation_name: Annotated[str, RESERVATION] | None = Field(
        None, description="The reservation.", examples=["my-reservation"]
    )


class ClusterSpec(Model):
    """What a person asks for: seven names are required."""

    project_id: Project = Field(description="Project of the environment.", examples=["my-project-1"])
    region: Region = Field(description="Region of the cluster, the network and the bucket.", examples=["us-central2"])
    zone: Zone = Field(description="Zone of every node.", examples=["us-central2-b"])
    any_zone: bool = Field(
        False, description="Whether to take a zone that is not known to have the TPUs.", examples=[True]
    )
    artifact_repository_bucket_name: BucketName = Field(
        description="Bucket for datasets, checkpoints and logs.", examples=["my-artifacts"]
    )
    network_name: Annotated[str, _named(52)] = Field(description="Name of the network.", examples=["tpu-network"])
    subnet_name: Annotated[str, _named(52)] = Field(description="Name of the subnet.", examples=["tpu-subnet"])
    cluster_name: Annotated[str, _named(40)] = Field(description="Name of the cluster.", examples=["tpu-cluster"])
    tf_state_bucket: BucketName | None = Field(
        None, description="Bucket of Terraform's state; PROJECT-tf-state if left out.", examples=["my-tf-state"]
    )
    tf_state_prefix: Prefix | None = Field(
        None, description="Folder in it; one for each cluster if left out.", examples=["gke-tpu-training-environment"]
    )
    tpu_type: Text | None = Field(None, description="Type of the slices.", examples=["v4-32"])
    tpu_machine_type: Text | None = Field(
        None, description="Machine type of the hosts, without a tpu_type.", examples=["ct4p-hightpu-4t"]
    )
    tpu_topology: Text | None = Field(
        None, description="Topology of the slices, without a tpu_type.", examples=["2x2x4"]
    )
    tpu_num_nodes: Count | None = Field(None, description="Hosts of a slice, without a tpu_type.", examples=[4])
    num_tpu_pools: int = Field(1, ge=0, le=checks.MOST_POOLS, description="Number of slices.", examples=[2])
    tpu_pools: dict[Annotated[str, _named(40)], Pool] | None = Field(
        None, description="The pools by name, in place of num_tpu_pools.", examples=[{"tpu-node-pool-1": {}}]
    )
    capacity: Capacity = Field("on-demand", description="How the slices are bought.", examples=["spot"])
    reservation_name: Annotated[str, RESERVATION] | None = Field(
        None, description="The reservation, with capacity: reservation.", examples=["my-reservation"]
    )
    flex_start_duration: Annotated[str, Form(r"[1-9][0-9]{0,5}s", "write seconds with an s: 86400s", 7)] = Field(
        "604800s", description="Longest life of a flex-start slice.", examples=["86400s"]
    )
    tpu_workload_policy: Text | None = Field(None, description="Workload policy of tpu7x slices.", examples=["mine"])
    enable_tpu_autoscaling: bool = Field(False, description="Whether slices come and go with jobs.", examples=[True])
    tpu_node_pool_name_prefix: Annotated[str, _named(38)] = Field(
        "tpu-node-pool", description="What names of pools begin with.", examples=["tpu-node-pool"]
    )
    multislice_group_name: Annotated[
        str, Form(r"[A-Za-z0-9](?:[-_.A-Za-z0-9]*[A-Za-z0-9])?", "use letters, digits, -, _ and .", 63)
    ] = Field("multi-slice-group", description="Label of the hosts of every slice.", examples=["multi-slice-group"])
    tpu_max_pods_per_node: int = Field(16, ge=15, le=256, description="Pods on a TPU host.", examples=[16])
    tpu_disk_size: int = Field(100, ge=10, description="Boot disk of TPU hosts in GB.", examples=[100])
    num_of_chips: Count | None = Field(None, description="Chips of all slices; it follows from them.", examples=[32])
    cpu_pool_node_count: int = Field(3, ge=1, le=1000, description="Nodes without TPUs.", examples=[3])
    cpu_pool_machine_type: Annotated[str, _named(63)] = Field(
        "n1-standard-4", description="Machine type of the nodes without TPUs.", examples=["n1-standard-4"]
    )
    cpu_pool_disk_type: Annotated[str, _named(63)] = Field(
        "pd-standard", description="Boot disks of the nodes without TPUs.", examples=["pd-standard"]
    )
    cpu_pool_disk_size: int = Field(200, ge=10, description="Their size in GB.", examples=[200])
    cpu_pool_max_pods_per_node: int = Field(64, ge=32, le=256, description="Pods on such a node.", examples=[64])
    subnet_ip_range: Range = Field("10.129.0.0/20", description="Addresses of the nodes.", examples=["10.129.0.0/20"])
    pods_ip_range: Range = Field("192.168.64.0/20", description="Addresses of the pods.", examples=["192.168.64.0/20"])
    services_ip_range: Range = Field(
        "192.168.80.0/20", description="Addresses of the services.", examples=["192.168.80.0/20"]
    )
    authorized_networks: dict[Text, Network] = Field(
        default_factory=dict,
        description="Networks that may reach the control plane by its address.",
        examples=[{"office": "203.0.113.0/24"}],
    )
    cluster_description: Text = Field(
        "GKE cluster for running TPU training workloads", description="Its description.", examples=["for training"]
    )
    gke_version: Version | None = Field(
        None, description="Version of GKE; the channel's own if left out.", examples=["1.34.1-gke.3084001"]
    )
    release_channel: Literal["RAPID", "REGULAR", "STABLE", "EXTENDED", "UNSPECIFIED"] = Field(
        "REGULAR", description="Release channel.", examples=["REGULAR"]
    )
    deletion_protection: bool = Field(False, description="Whether the cluster is guarded.", examples=[False])
    labels: dict[Label, Text] = Field(default_factory=dict, description="Labels.", examples=[{"team": "research"}])
    tpu_sa_name: Account = Field("cloud-tpu-sa", description="Account of the workloads.", examples=["cloud-tpu-sa"])
    tpu_sa_roles: Roles = Field(
        (
            *("roles/aiplatform.user", "roles/logging.logWriter"),
            *("roles/monitoring.metricWriter", "roles/storage.objectUser"),
        ),
        description="Its roles.",
        examples=[["roles/logging.logWriter"]],
    )
    gke_sa_name: Account = Field("gke-sa", description="Account of the nodes.", examples=["gke-sa"])
    gke_sa_roles: Roles = Field(
        ("roles/container.defaultNodeServiceAccount",),
        description="Its roles.",
        examples=[["roles/container.defaultNodeServiceAccount"]],
    )
    tpu_namespace: Label = Field("tpu-training", description="Namespace of the workloads.", examples=["tpu-training"])
    force_destroy: bool = Field(False, description="Whether destroy may delete the bucket's data.", examples=[False])
    artifact_registry_name: Annotated[str, _named(63)] | None = Field(
        None, description="Repository for images; the cluster's name if left out.", examples=["images"]
    )
    enable_tensorboard: bool = Field(True, description="Whether there is a TensorBoard instance.", examples=[True])
    firestore_database: Annotated[str, _named(63)] | None = Field(
        None, description="Firestore database for the job queue.", examples=["tpu-jobs"]
    )
    services_region: Region | None = Field(
        None, description="Region of images, TensorBoard and Firestore.", examples=["us-central1"]
    )

    @model_validator(mode="wrap")
    @classmethod
    def _together(cls, value: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Rules between fields, and whatever is wrong with single fields, in one list."""
        wrong = checks.problems(_with_defaults(value)) if isinstance(value, Mapping) else []
        details = [_detail(path, what, hint) for path, what, hint in wrong]
        try:
            spec = handler(value)
        except ValidationError as error:
            details = [_again(found) for found in error.errors(include_url=False)] + details
        if details:
            raise ValidationError.from_exception_data(cls.__name__, details)
        return spec

    @property
    def state_bucket(self) -> str:
        return self.tf_state_bucket or f"{self.project_id.replace(':', '-').replace('.', '-')}-tf-state"

    @property
    def state_prefix(self) -> str:
        """Of its own for each cluster: two that shared one would delete each other."""
        return self.tf_state_prefix or f"gke-tpu-training-environment/{self.cluster_name}"

    @property
    def context(self) -> str:
        """The name under which gcloud puts the cluster into a kubeconfig."""
        return f"gke_{self.project_id}_{self.region}_{self.cluster_name}"

    @property
    def shapes(self) -> dict[str, Slice]:
        """The slice behind every pool, by the pool's name."""
        return {name: shapes.resolve(pool) for name, pool in checks.pools(self.model_dump()).items()}

    @property
    def common_shape(self) -> Slice:
        """The slice of pools that say nothing else, whether or not there are any."""
        return shapes.resolve(self.model_dump())

    def variables(self) -> dict[str, Any]:
        """For Terraform: what was written, and nothing else."""
        return self.model_dump(mode="json", exclude_unset=True, exclude=set(_BEYOND_TERRAFORM))


def _with_defaults(value: Mapping[str, Any]) -> dict[str, Any]:
    defaults = {name: field.get_default(call_default_factory=True) for name, field in ClusterSpec.model_fields.items()}
    return defaults | {key: item for key, item in value.items() if item is not None}


def _detail(path: tuple[str | int, ...], what: str, hint: str) -> InitErrorDetails:
    return InitErrorDetails(type=refusal([((), what, hint)]), loc=path, input=None)


def _again(found: Any) -> InitErrorDetails:
    kind, context = found["type"], found.get("ctx", {})
    if kind == "refused":
        kind = PydanticCustomError("refused", "refused", context)
    return InitErrorDetails(type=kind, loc=found["loc"], input=found["input"], ctx=context)


def load(path: Path | None, sets: Sequence[str] = ()) -> ClusterSpec:
    """The cluster in a file, in `--set` alone, or in both."""
    root, found = document.parse(document.read(path), str(path)) if path else (Node({}, ""), [])
    if root.value is None:
        root.value = {}
    if not isinstance(root.value, dict):
        hint = "start with the line project_id: my-project-1"
        raise Invalid(Problem(root.where, "a cluster file is made of lines such as key: value", hint))
    found += overrides.apply(root, [_quoted(item) for item in sets], {})
    return ClusterSpec.from_node(root, found)


def _quoted(item: str) -> str:
    """`gke_version=1.34` is text: on the command line nobody can tell by the look of it."""
    key, equals, text = item.partition("=")
    field = ClusterSpec.model_fields.get(key)
    plain = field is not None and _is_text(field.annotation) and text[:1] not in ('"', "'")
    return f"{key}={json.dumps(text)}" if equals and plain else item


def _is_text(annotation: Any) -> bool:
    """Whether a value of this type is a text or nothing."""
    if get_origin(annotation) in (UnionType, Union):
        return all(_is_text(kind) for kind in get_args(annotation))
    return annotation in (str, NoneType) or (get_origin(annotation) is Annotated and _is_text(get_args(annotation)[0]))
