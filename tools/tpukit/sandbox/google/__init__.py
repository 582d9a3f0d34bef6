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
    cloud_build,
    clusters,
    compute,
    container,
    credentials,
    custom_roles,
    firestore,
    iam,
    log_entries,
    log_metrics,
    machines,
    managed_folders,
    monitoring,
    node_pools,
    objects,
    os_login,
    project_metadata,
    projects,
    queue,
    services,
    storage,
    tensorboard_data,
    tpu,
    updates,
    uploads,
    vertex,
    vm_faults,
    vms,
)

APIS = (
    compute.api,
    container.api,
    credentials.api,
    firestore.api,
    iam.api,
    log_entries.api,
    monitoring.api,
    os_login.api,
    projects.api,
    projects.billing,
    artifact_registry.api,
    cloud_build.api,
    services.api,
    storage.api,
    uploads.api,
    uploads.resumable,
    objects.download,
    objects.root,
    tpu.api,
    vertex.api,
)

PARTS = (
    clusters,
    custom_roles,
    log_metrics,
    machines,
    managed_folders,
    node_pools,
    project_metadata,
    queue,
    tensorboard_data,
    updates,
    vm_faults,
    vms,
)
"""Modules that add routes to an API that another one begins."""
