"""Prepare a project for Terraform: APIs, a bucket for the state, accounts that builds run as.

Every step can be repeated and leaves what exists unchanged. Independent steps run in parallel.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tpukit.cluster import gcloud, grants, programs, propagation
from tpukit.cluster.grants import Grant
from tpukit.cluster.programs import Command
from tpukit.cluster.spec import ClusterSpec
from tpukit.core import paths
from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, Denied

BUILD_ACCOUNT = "tpu-cluster-build"
MANAGER_ACCOUNT = "infrastructure-manager-sa"
IMAGE_ACCOUNT = "tpu-image-build"
"""Account that runs Dockerfiles: it may read their source, write its log and push, and nothing else."""
_BUILDERS = (BUILD_ACCOUNT, MANAGER_ACCOUNT)
_ENABLE_SECONDS = 600.0
_SOURCE_LIFECYCLE = Path(__file__).with_name("source_lifecycle.json")
_API_OFF = re.compile(r"SERVICE_DISABLED|has not been used in project|accessNotConfigured", re.IGNORECASE)
_MADE_MEANWHILE = re.compile(r"Service account \S+ already exists|you already own it", re.I)

APIS = (
    "aiplatform",
    "artifactregistry",
    "cloudbuild",
    "cloudresourcemanager",
    "cloudtrace",
    "compute",
    "config",  # Infrastructure Manager
    "container",
    "containerfilesystem",  # streams images to nodes
    "iam",
    "iamcredentials",
    "logging",
    "monitoring",
    "serviceusage",
    "storage",
)

ROLES = (
    # Permissions for what the modules create, and no more. None lets its holder become an owner or another account:
    # accounts are created here, with the permissions of the caller.
    "roles/aiplatform.user",  # TensorBoard
    "roles/artifactregistry.admin",
    "roles/cloudbuild.builds.viewer",  # a build reads its own timeout before it begins
    "roles/compute.networkAdmin",
    "roles/compute.securityAdmin",  # firewall rules
    "roles/container.admin",
    "roles/logging.logWriter",
    "roles/serviceusage.serviceUsageConsumer",
    "roles/storage.admin",
)

# Earlier versions granted these for the whole project. Each lets its holder become any account of the project.
WITHDRAWN = ("roles/iam.serviceAccountAdmin", "roles/iam.serviceAccountUser", "roles/resourcemanager.projectIamAdmin")


@dataclass(frozen=True, slots=True)
class Step:
    """A resource to have, the command that checks for it, and the commands that create it."""

    title: str
    make: tuple[Command, ...]
    probe: Command | None = None
    limit: float = gcloud.LIMIT_SECONDS  # seconds for each command

    def lines(self) -> list[str]:
        first, *rest = self.make
        return [f"{self.probe} || {first}" if self.probe else str(first), *map(str, rest)]


def lines(spec: ClusterSpec) -> list[str]:
    """Return the command lines of `run`."""
    policy = [str(grants.read(spec.project_id)), "# unless the policy says so, tpu adds to it that"]
    policy += [f"#   {grant}" for grant in _grants(spec)]
    policy += [f"# and takes away that {grant}" for grant in _withdrawn(spec)]
    made = [*_apis(spec).lines(), *(line for step in _resources(spec) for line in step.lines())]
    return [*made, *policy, str(grants.write(spec.project_id, _policy_file(spec))), *_after(spec)]


def _after(spec: ClusterSpec) -> list[str]:
    return [line for step in (_reads_source(spec), *_account_grants(spec)) for line in step.lines()]


def run(spec: ClusterSpec, clock: Clock, say: Callable[[str], None]) -> None:
    """Prepare the project. Safe to repeat and to interrupt."""
    have(_apis(spec), clock, say)
    programs.side_by_side([partial(have, step, clock, say) for step in _resources(spec)])

    def grant() -> None:
        wanted, withdrawn = _grants(spec), _withdrawn(spec)
        file = _policy_file(spec)
        changed = gcloud.settled(lambda: grants.apply(spec.project_id, wanted, file, withdrawn), clock)
        say(f"roles of builds: {'done' if changed else 'already there'}")

    own = [partial(have, step, clock, say) for step in (_reads_source(spec), *_account_grants(spec))]
    programs.side_by_side([grant, *own])
    propagation.note(spec, clock)


def missing(spec: ClusterSpec) -> list[str]:
    """Return the buckets and accounts that `run` would create, without changing anything."""
    lacking: list[str] = []

    def look(step: Step) -> None:
        assert step.probe is not None
        try:
            there = gcloud.exists(step.probe, f"bootstrap: {step.title}", limit=step.limit)
        except Denied as error:
            if not _API_OFF.search(str(error)):
                raise
            there = False
        if not there:
            lacking.append(step.title)

    programs.side_by_side([partial(look, step) for step in _resources(spec)])
    return sorted(lacking)


def source_bucket(project: str) -> str:
    """Return the bucket that holds the source of builds for a week."""
    return f"{_in_names(project)}-image-source"


def have(step: Step, clock: Clock, say: Callable[[str], None]) -> None:
    """Create what is missing of a step, retrying until Google has propagated the steps before it."""
    doing, probe = f"bootstrap: {step.title}", step.probe
    there = probe is not None and gcloud.settled(lambda: gcloud.exists(probe, doing, limit=step.limit), clock)
    first, *rest = step.make
    if not there:
        try:
            gcloud.settled(partial(gcloud.read, first, doing, limit=step.limit), clock)
        except Conflict as error:
            if not _MADE_MEANWHILE.search(error.message):
                raise
    for order in rest:
        gcloud.settled(partial(gcloud.read, order, doing, limit=step.limit), clock)
    say(f"{step.title}: {'exists already' if there else 'done'}")


def _apis(spec: ClusterSpec) -> Step:
    wanted = {
        "binaryauthorization": spec.binary_authorization,
        "cloudkms": bool(spec.kms_keys),
        "containersecurity": spec.security_posture not in (None, "DISABLED"),
        "firestore": spec.firestore_database is not None,
    }
    names = sorted({*APIS, *(name for name, needed in wanted.items() if needed)})
    full = (f"{name}.googleapis.com" for name in names)
    order = gcloud.command("services", "enable", *full, f"--project={spec.project_id}")
    return Step("APIs", (order,), limit=_ENABLE_SECONDS)


def _resources(spec: ClusterSpec) -> list[Step]:
    # Older versions of the state are the only way to recover from a bad one.
    versions = gcloud.command("storage", "buckets", "update", f"gs://{spec.state_bucket}", "--versioning")
    # A build needs its source for minutes. Without a rule, each upload is kept.
    forget = gcloud.command(
        *("storage", "buckets", "update", f"gs://{source_bucket(spec.project_id)}"),
        *(f"--lifecycle-file={_SOURCE_LIFECYCLE}", "--clear-soft-delete"),
    )
    state, source = _bucket(spec, spec.state_bucket), _bucket(spec, source_bucket(spec.project_id))
    return [
        Step(f"state bucket gs://{spec.state_bucket}", (state[1], versions), state[0]),
        Step(f"bucket gs://{source_bucket(spec.project_id)}", (source[1], forget), source[0]),
        *(_account(spec, name, title) for name, title in _accounts(spec).items()),
    ]


def _accounts(spec: ClusterSpec) -> dict[str, str]:
    """Return account names and their titles. The accounts of nodes and workloads serve all clusters of the project."""
    builds = "Builds TPU training environments"
    made = {BUILD_ACCOUNT: builds, MANAGER_ACCOUNT: builds, IMAGE_ACCOUNT: "Builds images"}
    if not spec.create_service_accounts:
        made |= {spec.gke_sa_name: "Nodes of TPU training clusters", spec.tpu_sa_name: "Training workloads on TPUs"}
    return made


def _bucket(spec: ClusterSpec, name: str) -> tuple[Command, Command]:
    return (
        gcloud.command("storage", "buckets", "describe", f"gs://{name}", "--format=value(name)"),
        gcloud.command(
            *("storage", "buckets", "create", f"gs://{name}"),
            *(f"--project={spec.project_id}", f"--location={spec.region}"),
            *("--uniform-bucket-level-access", "--public-access-prevention"),
        ),
    )


def _account(spec: ClusterSpec, name: str, title: str) -> Step:
    project = f"--project={spec.project_id}"
    email = gcloud.email(name, spec.project_id)
    return Step(
        f"account {name}",
        (gcloud.command("iam", "service-accounts", "create", name, project, f"--display-name={title}"),),
        gcloud.command("iam", "service-accounts", "describe", email, project, "--format=value(email)"),
    )


def _grants(spec: ClusterSpec) -> list[Grant]:
    """Return the grants on the project. Grants on one bucket or repository are created with that resource."""
    made = [Grant(_member(spec, IMAGE_ACCOUNT), "roles/logging.logWriter")]
    for name in _BUILDERS:
        made += [Grant(_member(spec, name), role) for role in _roles(spec, name)]
    if spec.create_service_accounts:
        return made
    for name, roles in ((spec.gke_sa_name, spec.gke_sa_roles), (spec.tpu_sa_name, spec.tpu_sa_roles)):
        on_project = sorted(role for role in roles if not role.startswith("roles/storage."))
        made += [Grant(_member(spec, name), role) for role in on_project]
    if database := spec.firestore_database:
        only = f'resource.name == "projects/{spec.project_id}/databases/{database}"'
        made.append(Grant(_member(spec, spec.tpu_sa_name), "roles/datastore.user", f"only {database}", only))
    return made


def _withdrawn(spec: ClusterSpec) -> list[Grant]:
    return [Grant(_member(spec, name), role) for name in _BUILDERS for role in WITHDRAWN]


def _account_grants(spec: ClusterSpec) -> list[Step]:
    """Return the grants of builds on single accounts.

    Builds run nodes as the node account, and let a namespace act as the workload account. The latter lets them act as
    it too, which can do less than they can.
    """
    if spec.create_service_accounts:
        return []
    wanted = (
        (spec.gke_sa_name, "roles/iam.serviceAccountUser"),
        (spec.tpu_sa_name, "roles/iam.serviceAccountAdmin"),
    )
    return [
        Step(f"builds have {role} on {name}", tuple(_on_account(spec, name, role, who) for who in _BUILDERS))
        for name, role in wanted
    ]


def _on_account(spec: ClusterSpec, name: str, role: str, who: str) -> Command:
    return gcloud.command(
        *("iam", "service-accounts", "add-iam-policy-binding", gcloud.email(name, spec.project_id)),
        *(f"--project={spec.project_id}", f"--member={_member(spec, who)}", f"--role={role}"),
        *("--condition=None", "--format=none"),
    )


def _reads_source(spec: ClusterSpec) -> Step:
    order = gcloud.command(
        *("storage", "buckets", "add-iam-policy-binding", f"gs://{source_bucket(spec.project_id)}"),
        *(f"--member={_member(spec, IMAGE_ACCOUNT)}", "--role=roles/storage.objectViewer", "--format=none"),
    )
    return Step(f"{IMAGE_ACCOUNT} reads gs://{source_bucket(spec.project_id)}", (order,))


def _member(spec: ClusterSpec, account: str) -> str:
    return f"serviceAccount:{gcloud.email(account, spec.project_id)}"


def _policy_file(spec: ClusterSpec) -> Path:
    return paths.data() / "clusters" / spec.project_id.replace(":", "_") / spec.cluster_name / "policy.json"


def _in_names(project: str) -> str:
    return project.replace(":", "-").replace(".", "-")


def _roles(spec: ClusterSpec, name: str) -> list[str]:
    extra = ["roles/config.agent"] if name == MANAGER_ACCOUNT else []
    if spec.firestore_database:
        extra.append("roles/datastore.owner")
    if spec.queue_monitoring_team:  # dashboards and alerts; the metric of failures, which is made of logs
        extra += ["roles/monitoring.editor", "roles/logging.configWriter"]
    if any(shape.placement == "policy" for shape in spec.shapes.values()):
        extra.append("roles/compute.instanceAdmin.v1")  # workload policies
    return sorted({*ROLES, *extra})
