"""The cluster file: the training environment's settings, under the variable names of the Terraform modules.

Omitted fields get Terraform's own defaults. A wrong zone, type or range is refused here, before any request to a
cloud.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from tpukit.catalogue import Slice
from tpukit.cluster import checks, existing, ip_ranges, pool_shapes, state_prefix
from tpukit.core.errors import Invalid, Problem
from tpukit.jobs.render import PoolKind
from tpukit.jobs.render.node_labels import whole_reservation
from tpukit.jobs.spec import located_yaml, overrides
from tpukit.jobs.spec.field_kinds import Choice, Flag, Integer, Items, Named, Text
from tpukit.jobs.spec.fields import LABEL, RESERVATION_PART, TEXT
from tpukit.jobs.spec.forms import Form, Violation, dashed, refuse
from tpukit.jobs.spec.located_yaml import Node
from tpukit.jobs.spec.model import Model, Sub, field
from tpukit.jobs.spec.settings import PROJECT, REGION, ZONE

FILE = "cluster.yaml"

_BEYOND_TERRAFORM = ("tf_state_bucket", "tf_state_prefix", "any_zone")
_NAME = r"[a-z](?:[-a-z0-9]*[a-z0-9])?"
# Roles for data, telemetry and node operation. The same list as in variables.tf.
_GRANTABLE = re.compile(
    r"(?:projects|organizations)/[^/]+/roles/[A-Za-z0-9_.]+|roles/(?:aiplatform|artifactregistry|autoscaling|bigquery"
    r"|cloudprofiler|cloudtrace|container\.defaultNodeServiceAccount$|datastore|logging|monitoring|pubsub"
    r"|secretmanager\.secretAccessor$|serviceusage\.serviceUsageConsumer$|storage|tpu)\b.*"
)
_POWERFUL = re.compile(r"admin|owner|editor", re.I)


def _named(longest: int) -> Text:
    words = f"use at most {longest} of a-z, 0-9 and -, a letter first and no - last"
    return Text(Form(_NAME, words, longest, dashed))


def _range(text: str) -> str:
    try:
        ip_ranges.parse(text)
    except ValueError as error:
        refuse(*str(error).split("\n"))
    return text


def _role(role: str) -> str:
    if not _GRANTABLE.fullmatch(role) or _POWERFUL.search(role.replace("objectAdmin", "")):
        hint = "write roles of data and telemetry, such as roles/logging.logWriter, or a custom role"
        refuse(f"{role} is not a role for jobs and nodes", hint)
    return role


def _not_the_internet(text: str) -> str:
    return (
        refuse("this range is the whole Internet", "leave it out, and use the DNS endpoint")
        if text.endswith("/0")
        else text
    )


def _new_enough(version: str) -> str:
    if int(version.split(".")[1]) < 32:
        refuse(f"GKE no longer creates clusters of {version}", "leave it out to use the version of the release channel")
    return version


def _shutdown(seconds: int) -> int:
    return (
        seconds
        if seconds in (0, 30, 120)
        else refuse(f"GKE does not offer a delay of {seconds} seconds", "write 0, 30 or 120")
    )


_COUNT = Integer(0)
_BUCKET = Text(Form(r"[a-z0-9][-a-z0-9_.]{1,61}[a-z0-9]", "write 3 to 63 of a-z, 0-9, -, _ and ., without gs://", 63))
_ACCOUNT = Text(Form(r"[a-z][-a-z0-9]{4,28}[a-z0-9]", "use 6 to 30 of a-z, 0-9 and -, a letter first", 30))
_ROLES = Items(
    Text(
        Form(r"(?:(?:projects|organizations)/[-a-z0-9.:]+/)?roles/[A-Za-z0-9_.]+", "write roles/SERVICE.NAME", 200),
        _role,
    ),
    100,
)
_RANGE = Text(None, _range)
_NETWORK = Text(None, _not_the_internet, _range)
_VERSION = Text(
    Form(r"1\.[0-9]{1,3}(?:\.[0-9]{1,5}(?:-gke\.[0-9]{1,9})?)?", "write one like 1.34.1-gke.3084001", 40), _new_enough
)
_LOCATION = Text(Form(r"us|europe|asia|[a-z]+-[a-z]+[0-9]+", "write a region, or us, europe or asia", 32))
_CAPACITY = Choice("on-demand", "spot", "reservation", "flex-start")
_PREFIX = Text(
    Form(r"[A-Za-z0-9][-A-Za-z0-9_.]*(?:/[A-Za-z0-9][-A-Za-z0-9_.]*)*", "write words with / between them", 200)
)

Capacity = Literal["on-demand", "spot", "reservation", "flex-start"]


def _alert(what: str) -> str:
    known = ("failed_per_hour", "longest_seconds", "waiting_seconds", "chips")
    return what if what in known else refuse(f"there is no alert for {what}", f"write one of {', '.join(known)}")


def _with_system(names: tuple[str, ...]) -> tuple[str, ...]:
    ours = "SYSTEM_COMPONENTS" in names
    return names if ours else refuse("GKE does not store workloads alone", "add SYSTEM_COMPONENTS")


def _encrypted(what: str) -> str:
    known = ("cluster", "disks", "bucket", "images", "metrics", "jobs")
    return what if what in known else refuse(f"{what} cannot have a key", f"write one of {', '.join(known)}")


_CHANNEL = Text(
    Form(r"projects/[^/]+/notificationChannels/[^/]+", "write projects/PROJECT/notificationChannels/NUMBER", 256)
)
_KMS_KEY = Text(
    Form(
        r"projects/[^/\s]+/locations/[^/\s]+/keyRings/[^/\s]+/cryptoKeys/[^/\s]+",
        "write projects/P/locations/L/keyRings/R/cryptoKeys/K",
        400,
    )
)


class Pool(Model):
    """A pool by its name: its differences from the common slices."""

    tpu_type: str | None = field(TEXT, "Type of the slice.", "v4-32", default=None)
    tpu_machine_type: str | None = field(TEXT, "Machine type.", "ct4p-hightpu-4t", default=None)
    tpu_topology: str | None = field(TEXT, "Topology.", "2x2x4", default=None)
    tpu_num_nodes: int | None = field(_COUNT, "Hosts.", 4, default=None)
    capacity: Capacity | None = field(_CAPACITY, "How it is bought.", "spot", default=None)
    reservation_name: str | None = field(
        RESERVATION_PART, "The reservation, or a block of it.", "my-reservation", default=None
    )


class ClusterSpec(Model):
    """The requested environment; seven names are required."""

    project_id: str = field(PROJECT, "Project of the environment.", "my-project-1")
    region: str = field(REGION, "Region of the cluster, the network and the bucket.", "us-central2")
    zone: str = field(ZONE, "Zone of the slices.", "us-central2-b")
    cpu_zone: str | None = field(
        ZONE,
        "Zone of the nodes without TPUs (default: that of the slices, or the parent of an AI zone).",
        "us-central2-b",
        default=None,
    )
    any_zone: bool = field(Flag(), "Whether to accept a zone that is not known to have the TPUs.", True, default=False)
    artifact_repository_bucket_name: str = field(_BUCKET, "Bucket for datasets, checkpoints and logs.", "my-artifacts")
    network_name: str = field(_named(52), "Name of the network.", "tpu-network")
    subnet_name: str = field(_named(52), "Name of the subnet.", "tpu-subnet")
    cluster_name: str = field(_named(40), "Name of the cluster.", "tpu-cluster")
    create_network: bool = field(
        Flag(), "Whether to create the network; false: use an existing one without changing it.", False, default=True
    )
    create_subnet: bool = field(
        Flag(),
        "Whether to create the subnet; false: use an existing one with two ranges for clusters.",
        False,
        default=True,
    )
    create_nat: bool | None = field(
        Flag(), "Whether to create a NAT for the subnet (default: if the network is created).", True, default=None
    )
    network_project_id: str | None = field(
        PROJECT, "Host project of a Shared VPC that network and subnet are of.", "my-host-project", default=None
    )
    pods_range_name: str | None = field(_named(63), "Range of the pods in an existing subnet.", "pods", default=None)
    services_range_name: str | None = field(
        _named(63), "Range of the services in an existing subnet.", "services", default=None
    )
    create_bucket: bool = field(
        Flag(), "Whether to create the bucket; false: use an existing one without changing it.", False, default=True
    )
    tf_state_bucket: str | None = field(
        _BUCKET, "Bucket of Terraform's state (default: PROJECT-tf-state).", "my-tf-state", default=None
    )
    tf_state_prefix: str | None = field(
        _PREFIX, "Folder in that bucket (default: one for each cluster).", "gke-tpu-training-environment", default=None
    )
    tpu_type: str | None = field(TEXT, "Type of the slices.", "v4-32", default=None)
    tpu_machine_type: str | None = field(
        TEXT, "Machine type of the hosts, without a tpu_type.", "ct4p-hightpu-4t", default=None
    )
    tpu_topology: str | None = field(TEXT, "Topology of the slices, without a tpu_type.", "2x2x4", default=None)
    tpu_num_nodes: int | None = field(_COUNT, "Hosts of a slice, without a tpu_type.", 4, default=None)
    num_tpu_pools: int = field(Integer(0, checks.MOST_POOLS), "Number of slices.", 2, default=1)
    tpu_pools: dict[str, Pool] | None = field(
        Named(_named(40), Sub(Pool)),
        "Pools by name, instead of num_tpu_pools.",
        {"tpu-node-pool-1": {}},
        default=None,
    )
    capacity: Capacity = field(_CAPACITY, "How the slices are bought.", "spot", default="on-demand")
    reservation_name: str | None = field(
        RESERVATION_PART,
        "The reservation, or a block of it, with capacity: reservation.",
        "my-reservation/reservationBlocks/block-1",
        default=None,
    )
    flex_start_duration: str = field(
        Text(Form("[1-9][0-9]{0,5}s", "write seconds with an s: 86400s", 7)),
        "Longest life of a flex-start slice.",
        "86400s",
        default="604800s",
    )
    flex_start_queued: bool = field(
        Flag(), "Whether flex-start slices come by queued provisioning: v6e and tpu7x only.", True, default=False
    )
    spot_shutdown_seconds: int | None = field(
        Integer(0, 120, _shutdown),
        "How long a spot slice delays its shutdown, so that pods can save.",
        120,
        default=None,
    )
    tpu_workload_policy: str | None = field(TEXT, "Workload policy of tpu7x slices.", "mine", default=None)
    enable_tpu_autoscaling: bool = field(
        Flag(), "Whether slices are created and deleted with jobs.", True, default=False
    )
    tpu_node_pool_name_prefix: str = field(
        _named(38), "Prefix of the names of pools.", "tpu-node-pool", default="tpu-node-pool"
    )
    multislice_group_name: str = field(
        Text(Form("[A-Za-z0-9](?:[-_.A-Za-z0-9]*[A-Za-z0-9])?", "use letters, digits, -, _ and .", 63)),
        "Label of the hosts of every slice.",
        "multi-slice-group",
        default="multi-slice-group",
    )
    tpu_max_pods_per_node: int = field(Integer(15, 256), "Pods on a TPU host.", 16, default=16)
    tpu_disk_size: int = field(Integer(10), "Boot disk of TPU hosts in GB.", 100, default=100)
    num_of_chips: int | None = field(_COUNT, "Total of chips (default: computed from the slices).", 32, default=None)
    cpu_pool_node_count: int = field(Integer(1, 1000), "Nodes without TPUs.", 3, default=3)
    cpu_pool_machine_type: str = field(
        _named(63), "Machine type of the nodes without TPUs.", "n2-standard-4", default="n2-standard-4"
    )
    cpu_pool_disk_type: str | None = field(
        _named(63),
        "Type of the boot disks of nodes without TPUs (default: by their machine type).",
        "pd-balanced",
        default=None,
    )
    cpu_pool_disk_size: int = field(Integer(10), "Size of those boot disks in GB.", 200, default=200)
    cpu_pool_max_pods_per_node: int = field(Integer(32, 256), "Pods on such a node.", 64, default=64)
    subnet_ip_range: str = field(_RANGE, "Addresses of the nodes.", "10.129.0.0/20", default="10.129.0.0/20")
    pods_ip_range: str = field(_RANGE, "Addresses of the pods.", "192.168.64.0/20", default="192.168.64.0/20")
    additional_pods_ip_ranges: tuple[str, ...] = field(
        Items(_RANGE, 20), "More addresses of pods, for a cluster that outgrew its range.", ["10.64.0.0/16"], default=()
    )
    additional_pods_range_names: tuple[str, ...] = field(
        Items(_named(63), 20), "More ranges of the pods in an existing subnet.", ["more-pods"], default=()
    )
    services_ip_range: str = field(_RANGE, "Addresses of the services.", "192.168.80.0/20", default="192.168.80.0/20")
    authorized_networks: dict[str, str] = field(
        Named(TEXT, _NETWORK),
        "Networks that may reach the control plane by its address.",
        {"office": "203.0.113.0/24"},
        default={},
    )
    cluster_description: str = field(
        TEXT, "Its description.", "for training", default="GKE cluster for running TPU training workloads"
    )
    gke_version: str | None = field(
        _VERSION, "Version of GKE (default: that of the release channel).", "1.34.1-gke.3084001", default=None
    )
    release_channel: Literal["RAPID", "REGULAR", "STABLE", "EXTENDED", "UNSPECIFIED"] = field(
        Choice("RAPID", "REGULAR", "STABLE", "EXTENDED", "UNSPECIFIED"),
        "Release channel.",
        "REGULAR",
        default="REGULAR",
    )
    logging_components: tuple[str, ...] = field(
        Items(Choice("SYSTEM_COMPONENTS", "WORKLOADS"), 2, _with_system),
        "What Cloud Logging stores; without WORKLOADS, not what jobs print.",
        ["SYSTEM_COMPONENTS"],
        default=("SYSTEM_COMPONENTS", "WORKLOADS"),
    )
    deletion_protection: bool = field(
        Flag(), "Whether the cluster is protected against deletion.", False, default=False
    )
    labels: dict[str, str] = field(Named(LABEL, TEXT), "Labels.", {"team": "research"}, default={})
    create_service_accounts: bool = field(
        Flag(), "Whether Terraform creates both accounts; otherwise bootstrap does.", False, default=False
    )
    tpu_sa_name: str = field(_ACCOUNT, "Account of the workloads.", "cloud-tpu-sa", default="cloud-tpu-sa")
    tpu_sa_roles: tuple[str, ...] = field(
        _ROLES,
        "Its roles.",
        ["roles/logging.logWriter"],
        default=(
            *("roles/aiplatform.user", "roles/logging.logWriter"),
            *("roles/monitoring.metricWriter", "roles/storage.objectUser"),
        ),
    )
    gke_sa_name: str = field(_ACCOUNT, "Account of the nodes.", "gke-sa", default="gke-sa")
    gke_sa_roles: tuple[str, ...] = field(
        _ROLES,
        "Its roles.",
        ["roles/container.defaultNodeServiceAccount"],
        default=("roles/container.defaultNodeServiceAccount", "roles/serviceusage.serviceUsageConsumer"),
    )
    tpu_namespace: str = field(LABEL, "Namespace of the workloads.", "tpu-training", default="tpu-training")
    force_destroy: bool = field(Flag(), "Whether destroy may delete the bucket's data.", False, default=False)
    artifact_registry_name: str | None = field(
        _named(63), "Repository for images (default: the cluster's name).", "images", default=None
    )
    create_artifact_registry: bool = field(
        Flag(), "Whether to create the repository for images; false: use an existing one.", False, default=True
    )
    artifact_registry_location: str | None = field(
        _LOCATION, "Region or multi-region of the repository (default: services_region).", "us", default=None
    )
    enable_tensorboard: bool = field(Flag(), "Whether there is a TensorBoard instance.", True, default=True)
    tensorboard_region: str | None = field(
        REGION, "Region of TensorBoard (default: near the cluster).", "us-central1", default=None
    )
    firestore_database: str | None = field(
        _named(63), "Firestore database for the job queue.", "tpu-jobs", default=None
    )
    queue_monitoring_team: str | None = field(
        LABEL, "Team whose queued jobs get a dashboard and alerts.", "research", default=None
    )
    queue_alert_limits: dict[str, int] = field(
        Named(Text(None, _alert), Integer(1)), "Alerts of the job queue to enable.", {"chips": 64}, default={}
    )
    queue_notification_channels: tuple[str, ...] = field(
        Items(_CHANNEL, 16),
        "Notification channels of Cloud Monitoring for alerts of the job queue.",
        ["projects/my-project-1/notificationChannels/123"],
        default=(),
    )
    services_region: str | None = field(
        REGION, "Region of images and Firestore, and of TensorBoard where available.", "us-central1", default=None
    )
    kms_keys: dict[str, str] = field(
        Named(Text(None, _encrypted), _KMS_KEY),
        "Keys that encrypt stored data.",
        {"bucket": "projects/p/locations/us-central2/keyRings/r/cryptoKeys/k"},
        default={},
    )
    binary_authorization: bool = field(
        Flag(), "Whether Binary Authorization decides which images run.", True, default=False
    )
    security_posture: Literal["DISABLED", "BASIC", "ENTERPRISE"] | None = field(
        Choice("DISABLED", "BASIC", "ENTERPRISE"),
        "Mode of GKE's security posture scanning of workloads.",
        "BASIC",
        default=None,
    )
    immutable_tags: bool = field(Flag(), "Whether tags of images never move.", True, default=False)

    @classmethod
    def between(cls, good: Mapping[str, Any], raw: Mapping[str, Any]) -> Iterator[Violation]:
        """Yield violations between fields, from the raw values, so that they appear even if single fields are wrong."""
        defaults = {name: item.fallback() for name, item in cls.fields.items() if not item.required}
        given = {key: item for key, item in raw.items() if item is not None}
        yield from checks.problems(defaults | given)
        yield from existing.problems(defaults | given, given)

    @property
    def state_bucket(self) -> str:
        return self.tf_state_bucket or f"{self.project_id.replace(':', '-').replace('.', '-')}-tf-state"

    @property
    def state_prefix(self) -> str:
        return self.tf_state_prefix or state_prefix.of(self.cluster_name)

    @property
    def context(self) -> str:
        """The cluster's name in a kubeconfig, as gcloud writes it."""
        return f"gke_{self.project_id}_{self.region}_{self.cluster_name}"

    @property
    def shapes(self) -> dict[str, Slice]:
        """The slice of every pool, by the pool's name."""
        return {name: pool_shapes.resolve(pool) for name, pool in checks.pools(self.to_json()).items()}

    @property
    def kinds(self) -> list[PoolKind]:
        """The slice of every pool, and how it is bought."""
        found = []
        for pool in checks.pools(self.to_json()).values():
            capacity = pool["capacity"]
            way = (
                f"reservation:{whole_reservation(pool['reservation_name'])}" if capacity == "reservation" else capacity
            )
            found.append(PoolKind(pool_shapes.resolve(pool), way))
        return found

    @property
    def common_shape(self) -> Slice:
        """The slice of pools without their own shape, whether or not there are any."""
        return pool_shapes.resolve(self.to_json())

    def variables(self) -> dict[str, Any]:
        """Return the variables for Terraform: only those that the user wrote."""
        return {name: item for name, item in self.to_json(given=True).items() if name not in _BEYOND_TERRAFORM}


def load(path: Path | None, sets: Sequence[str] = ()) -> ClusterSpec:
    """Load the cluster from a file, from `--set` alone, or from both."""
    root, found = located_yaml.parse(located_yaml.read(path, "cluster"), str(path)) if path else (Node({}, ""), [])
    if root.value is None:
        root.value = {}
    if not isinstance(root.value, dict):
        hint = "start with the line project_id: my-project-1"
        raise Invalid(Problem(root.where, "a cluster file has lines of the form key: value", hint))
    found += overrides.apply(root, [_quoted(item) for item in sets], {})
    return ClusterSpec.from_node(root, found)


def _quoted(item: str) -> str:
    """Quote the value of a text field, so that `gke_version=1.34` is not read as a number."""
    key, equals, text = item.partition("=")
    known = ClusterSpec.fields.get(key)
    plain = known is not None and isinstance(known.kind, Text) and text[:1] not in ('"', "'")
    return f"{key}={json.dumps(text)}" if equals and plain else item
