"""Permissions of the roles that training environments grant, as patterns.

A model of Google's tables by service, not by permission: wide enough to run the environment with the roles that it
grants, narrow enough to detect a missing role. An unlisted role allows nothing, except a project's custom role, which
allows the permissions that it lists. https://cloud.google.com/iam/docs/roles-permissions
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from tpubox.google.wire.cloud import Cloud

_SEE = ("*.get", "*.list")

ROLES: dict[str, tuple[str, ...]] = {
    "roles/owner": ("*",),
    "roles/viewer": _SEE,
    "roles/aiplatform.admin": ("aiplatform.*",),
    "roles/aiplatform.user": ("aiplatform.*",),
    "roles/artifactregistry.admin": ("artifactregistry.*",),
    "roles/artifactregistry.reader": (
        *("artifactregistry.*.get", "artifactregistry.*.list", "artifactregistry.repositories.downloadArtifacts"),
    ),
    "roles/artifactregistry.repoAdmin": (
        *("artifactregistry.*.get", "artifactregistry.*.list", "artifactregistry.repositories.*Artifacts"),
        *("artifactregistry.dockerImages.*", "artifactregistry.packages.*", "artifactregistry.tags.*"),
    ),
    "roles/artifactregistry.writer": (
        *("artifactregistry.*.get", "artifactregistry.*.list"),
        *("artifactregistry.repositories.downloadArtifacts", "artifactregistry.repositories.uploadArtifacts"),
        *("artifactregistry.dockerImages.*", "artifactregistry.packages.*"),
    ),
    "roles/cloudbuild.builds.viewer": ("cloudbuild.builds.get", "cloudbuild.builds.list"),
    "roles/cloudkms.cryptoKeyEncrypterDecrypter": ("cloudkms.cryptoKeyVersions.*",),
    "roles/compute.instanceAdmin.v1": (
        *("compute.instances.*", "compute.instanceGroup*", "compute.resourcePolicies.*", "compute.disks.*"),
        *("compute.*.get", "compute.*.list"),
    ),
    "roles/compute.networkAdmin": (
        *("compute.networks.*", "compute.subnetworks.*", "compute.routers.*", "compute.routes.*"),
        *("compute.*.get", "compute.*.list"),
    ),
    "roles/compute.osAdminLogin": ("compute.instances.osLogin", "compute.instances.osAdminLogin", "compute.*.get"),
    "roles/compute.osLogin": ("compute.instances.osLogin", "compute.*.get"),
    "roles/compute.securityAdmin": ("compute.firewalls.*", "compute.*.get", "compute.*.list"),
    "roles/container.admin": ("container.*",),
    "roles/container.clusterViewer": ("container.*.get", "container.*.list", "container.clusters.connect"),
    "roles/container.defaultNodeServiceAccount": ("logging.logEntries.create", "monitoring.timeSeries.create"),
    "roles/datastore.owner": ("datastore.*",),
    "roles/datastore.user": ("datastore.databases.get", "datastore.databases.list", "datastore.entities.*"),
    "roles/iam.serviceAccountAdmin": (
        *("iam.serviceAccounts.create", "iam.serviceAccounts.delete", "iam.serviceAccounts.update"),
        *("iam.serviceAccounts.get", "iam.serviceAccounts.list", "iam.serviceAccounts.*IamPolicy"),
        *("iam.serviceAccounts.enable", "iam.serviceAccounts.disable"),
    ),
    "roles/iam.serviceAccountTokenCreator": ("iam.serviceAccounts.getAccessToken", "iam.serviceAccounts.signBlob"),
    "roles/iam.serviceAccountUser": (
        "iam.serviceAccounts.actAs",
        "iam.serviceAccounts.get",
        "iam.serviceAccounts.list",
    ),
    "roles/iam.serviceAccountViewer": (
        *("iam.serviceAccounts.get", "iam.serviceAccounts.list", "iam.serviceAccounts.getIamPolicy"),
    ),
    "roles/iam.workloadIdentityUser": ("iam.serviceAccounts.getAccessToken", "iam.serviceAccounts.get"),
    "roles/logging.configWriter": ("logging.logMetrics.*", "logging.sinks.*", "logging.*.get", "logging.*.list"),
    "roles/logging.logWriter": ("logging.logEntries.create",),
    "roles/logging.viewer": ("logging.*.get", "logging.*.list"),
    "roles/monitoring.editor": ("monitoring.*",),
    "roles/monitoring.metricWriter": ("monitoring.timeSeries.create",),
    "roles/resourcemanager.projectIamAdmin": ("resourcemanager.projects.*",),
    "roles/serviceusage.serviceUsageAdmin": ("serviceusage.*",),
    "roles/serviceusage.serviceUsageConsumer": (
        "serviceusage.services.get",
        "serviceusage.services.list",
        "serviceusage.services.use",
    ),
    "roles/storage.admin": ("storage.*",),
    "roles/storage.bucketViewer": ("storage.buckets.get", "storage.buckets.list"),
    "roles/storage.legacyBucketReader": ("storage.buckets.get", "storage.objects.list"),
    "roles/storage.legacyBucketWriter": (
        *("storage.buckets.get", "storage.objects.list", "storage.objects.create", "storage.objects.delete"),
    ),
    "roles/storage.legacyObjectReader": ("storage.objects.get",),
    "roles/storage.objectAdmin": ("storage.objects.*", "storage.managedFolders.*"),
    "roles/storage.objectCreator": ("storage.objects.create",),
    "roles/storage.objectUser": (
        *("storage.objects.create", "storage.objects.delete", "storage.objects.get", "storage.objects.list"),
        *("storage.objects.update", "storage.managedFolders.create", "storage.managedFolders.delete"),
        *("storage.managedFolders.get", "storage.managedFolders.list"),
    ),
    "roles/storage.objectViewer": (
        *("storage.objects.get", "storage.objects.list"),
        *("storage.managedFolders.get", "storage.managedFolders.list"),
    ),
    "roles/tpu.admin": ("tpu.*",),
    "roles/tpu.viewer": ("tpu.*.get", "tpu.*.list"),
}


def allows(role: str, permission: str) -> bool:
    return any(fnmatchcase(permission, pattern) for pattern in ROLES.get(role, ()))


def is_custom(role: str) -> bool:
    return role.startswith("projects/")


def exists(cloud: Cloud, role: str) -> bool:
    """Return True if the custom role exists and is not deleted."""
    found = cloud.state.get("role", role)
    return found is not None and not found.get("deleted")


def permissions(cloud: Cloud, role: str) -> tuple[str, ...]:
    """Return the permissions of a custom role. A deleted or disabled one allows nothing."""
    found = cloud.state.get("role", role) if is_custom(role) else None
    if found is None or found.get("deleted") or found.get("stage") == "DISABLED":
        return ()
    return tuple(found.get("includedPermissions", ()))
