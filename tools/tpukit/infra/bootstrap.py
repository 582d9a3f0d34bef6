"""What a project needs before Terraform can work in it: APIs, a bucket for the state, accounts that builds run as.

Every step can be repeated: what is there is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tpukit.infra import gcloud
from tpukit.infra.programs import Command
from tpukit.infra.spec import ClusterSpec

BUILD_ACCOUNT = "tpu-cluster-build"
MANAGER_ACCOUNT = "infrastructure-manager-sa"

APIS = (
    "aiplatform",
    "artifactregistry",
    "cloudbuild",
    "cloudresourcemanager",
    "cloudtrace",
    "compute",
    "config",  # Infrastructure Manager
    "container",
    "iam",
    "iamcredentials",
    "logging",
    "monitoring",
    "serviceusage",
    "storage",
)

ROLES = (
    # What the modules create, and no more. None of these makes its holder an owner.
    "roles/aiplatform.user",  # TensorBoard
    "roles/artifactregistry.admin",
    "roles/cloudbuild.builds.viewer",  # a build asks how long it may run before it begins
    "roles/compute.networkAdmin",
    "roles/compute.securityAdmin",  # firewall rules
    "roles/container.admin",
    "roles/iam.serviceAccountAdmin",
    "roles/iam.serviceAccountUser",  # nodes run as an account that does not exist yet, so it cannot be named here
    "roles/logging.logWriter",
    "roles/serviceusage.serviceUsageConsumer",
    "roles/storage.admin",
)


@dataclass(frozen=True, slots=True)
class Step:
    """Something to have, the command that sees whether it is there, and the one that makes it."""

    title: str
    make: Command
    probe: Command | None = None

    def __str__(self) -> str:
        return f"{self.probe} || {self.make}" if self.probe else str(self.make)


def steps(spec: ClusterSpec) -> list[Step]:
    return [_apis(spec), *_bucket(spec), *_account(spec, BUILD_ACCOUNT), *_account(spec, MANAGER_ACCOUNT)]


def run(spec: ClusterSpec, say: Callable[[str], None]) -> None:
    for step in steps(spec):
        doing = f"bootstrap: {step.title}"
        if step.probe and gcloud.exists(step.probe, doing):
            say(f"{step.title}: already there")
            continue
        gcloud.read(step.make, doing)
        say(f"{step.title}: done")


def _apis(spec: ClusterSpec) -> Step:
    names = sorted({*APIS, *(("firestore",) if spec.firestore_database else ())})
    full = (f"{name}.googleapis.com" for name in names)
    return Step("APIs", gcloud.command("services", "enable", *full, f"--project={spec.project_id}"))


def _bucket(spec: ClusterSpec) -> list[Step]:
    url = f"gs://{spec.state_bucket}"
    return [
        Step(
            f"state bucket {url}",
            gcloud.command(
                *("storage", "buckets", "create", url, f"--project={spec.project_id}", f"--location={spec.region}"),
                *("--uniform-bucket-level-access", "--public-access-prevention"),
            ),
            gcloud.command("storage", "buckets", "describe", url, "--format=value(name)"),
        ),
        # Older versions of the state are the only way back from a bad one.
        Step(f"versions of {url}", gcloud.command("storage", "buckets", "update", url, "--versioning")),
    ]


def _account(spec: ClusterSpec, name: str) -> list[Step]:
    email = gcloud.email(name, spec.project_id)
    account = Step(
        f"account {name}",
        gcloud.command(
            *("iam", "service-accounts", "create", name, f"--project={spec.project_id}"),
            "--display-name=Builds TPU training environments",
        ),
        gcloud.command(
            "iam", "service-accounts", "describe", email, f"--project={spec.project_id}", "--format=value(email)"
        ),
    )
    roles = [Step(f"{name} has {role}", _grant(spec, email, role, "None")) for role in _roles(spec, name)]
    # It may hand out the roles that the modules hand out, and so cannot make itself an owner.
    admin = "roles/resourcemanager.projectIamAdmin"
    return [account, *roles, Step(f"{name} has {admin}, within bounds", _grant(spec, email, admin, _bounds(spec)))]


def _roles(spec: ClusterSpec, name: str) -> list[str]:
    extra = ["roles/config.agent"] if name == MANAGER_ACCOUNT else []
    if spec.firestore_database:
        extra.append("roles/datastore.owner")
    if any(shape.placement == "policy" for shape in spec.shapes.values()):
        extra.append("roles/compute.instanceAdmin.v1")  # workload policies
    return sorted({*ROLES, *extra})


def _bounds(spec: ClusterSpec) -> str:
    """An IAM condition: https://cloud.google.com/iam/docs/setting-limits-on-granting-roles"""
    granted = {role for role in (*spec.tpu_sa_roles, *spec.gke_sa_roles) if not role.startswith("roles/storage.")}
    granted |= {"roles/datastore.user"} if spec.firestore_database else set()
    listed = ", ".join(f"'{role}'" for role in sorted(granted))
    expression = f"api.getAttribute('iam.googleapis.com/modifiedGrantsByRole', []).hasOnly([{listed}])"
    return gcloud.pairs({"title": "roles of TPU training environments", "expression": expression})


def _grant(spec: ClusterSpec, email: str, role: str, condition: str) -> Command:
    return gcloud.command(
        *("projects", "add-iam-policy-binding", spec.project_id),
        *(f"--member=serviceAccount:{email}", f"--role={role}", f"--condition={condition}", "--format=none"),
    )
