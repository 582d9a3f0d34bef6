"""An emulator of Google Cloud's REST APIs on loopback, as far as training on TPUs needs them.

Unmodified Terraform with the real google provider, its gcs backend, gcloud and Google's Python clients over REST work
against it. It refuses what Google would refuse, in Google's words; long operations take time; quotas and stock are
limited; and all state survives a kill. Nothing costs anything.

    from tpubox.google.wire.server import Emulator
    from tpubox.google.wire.settings import Settings

    with Emulator(folder, Settings(projects=("my-project",))) as google:
        subprocess.run(["terraform", "apply", ...], env={**os.environ, **google.environment()})
        google.cloud.requests(agent="Terraform")
"""

from __future__ import annotations

from tpubox.google.artifacts import repositories as artifact_registry
from tpubox.google.builds import service as builds
from tpubox.google.compute import login_profiles, project_metadata, subnet_methods
from tpubox.google.compute import networks as compute
from tpubox.google.compute import operations as compute_operations
from tpubox.google.compute import zones as compute_zones
from tpubox.google.firestore import databases as firestore_databases
from tpubox.google.gke import cluster_updates, container, node_pools
from tpubox.google.gke import clusters as gke_clusters
from tpubox.google.gke import pool_updates as updates
from tpubox.google.iam import credentials, custom_roles
from tpubox.google.iam import service_accounts as iam
from tpubox.google.logging import entries as log_entries
from tpubox.google.logging import metrics as log_metrics
from tpubox.google.logging import writes as log_writes
from tpubox.google.monitoring import alerts as monitoring
from tpubox.google.projects import projects, services
from tpubox.google.storage import bucket_policies, managed_folders, uploads
from tpubox.google.storage import buckets as storage
from tpubox.google.storage import objects as storage_objects
from tpubox.google.tpu import maintenance as tpu_maintenance
from tpubox.google.tpu import node_routes as tpu_node_routes
from tpubox.google.tpu import queue_progress, queued_resources, vm_faults
from tpubox.google.tpu import service as tpu
from tpubox.google.vertex import tensorboard_data, tensorboards

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
"""Modules that add routes to an API that another module defines."""
