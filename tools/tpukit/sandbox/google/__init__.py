"""Google Cloud's REST APIs on loopback, as far as training on TPUs needs them.

Unmodified Terraform with the real google provider, its gcs backend, gcloud and Google's Python clients over REST work
against it. It is honest: what Google would refuse is refused in Google's words, long operations take their time, quotas
and stock have an end, and it remembers everything through a kill. Nothing costs anything.

    from tpukit.sandbox.google.server import Emulator
    from tpukit.sandbox.google.emulator_settings import Settings

    with Emulator(folder, Settings(projects=("my-project",))) as google:
        subprocess.run(["terraform", "apply", ...], env={**os.environ, **google.environment()})
        google.cloud.requests(agent="Terraform")
"""

from __future__ import annotations

from tpukit.sandbox.google import (
    artifact_registry,
    bucket_policies,
    builds,
    cluster_updates,
    compute,
    compute_operations,
    compute_zones,
    container,
    credentials,
    custom_roles,
    firestore_databases,
    gke_clusters,
    iam,
    log_entries,
    log_metrics,
    log_writes,
    login_profiles,
    managed_folders,
    monitoring,
    node_pools,
    project_metadata,
    projects,
    queue_progress,
    queued_resources,
    services,
    storage,
    storage_objects,
    subnet_methods,
    tensorboard_data,
    tensorboards,
    tpu,
    tpu_maintenance,
    tpu_node_routes,
    updates,
    uploads,
    vm_faults,
)

APIS = (
    compute.api,
    container.api,
    credentials.api,
    firestore_databases.api,
    iam.api,
    log_entries.api,
    monitoring.api,
    login_profiles.api,
    projects.api,
    projects.billing,
    artifact_registry.api,
    builds.api,
    services.api,
    storage.api,
    uploads.api,
    uploads.resumable,
    storage_objects.download,
    storage_objects.root,
    tpu.api,
    tensorboards.api,
)

PARTS = (
    bucket_policies,
    cluster_updates,
    gke_clusters,
    custom_roles,
    log_metrics,
    log_writes,
    compute_operations,
    compute_zones,
    managed_folders,
    node_pools,
    project_metadata,
    queue_progress,
    queued_resources,
    subnet_methods,
    tensorboard_data,
    updates,
    vm_faults,
    tpu_maintenance,
    tpu_node_routes,
)
"""Modules that add routes to an API that another one begins."""
