locals {
  # These families boot from Hyperdisk alone: https://github.com/nextflow-io/nextflow/issues/6614
  hyperdisk = contains(["c4", "c4a", "c4d", "n4", "n4a", "n4d"], split("-", var.machine_type)[0])
}

resource "google_container_node_pool" "this" {
  project  = var.project_id
  location = var.region
  # By its name, as a pool that was imported has it: another spelling would replace that pool. Cut out of the id, which is
  # unknown while the cluster is being replaced.
  cluster           = reverse(split("/", var.cluster))[0]
  name              = var.name
  node_locations    = [var.zone]
  node_count        = var.node_count
  max_pods_per_node = var.max_pods_per_node

  node_config {
    machine_type      = var.machine_type
    disk_type         = coalesce(var.disk_type, local.hyperdisk ? "hyperdisk-balanced" : "pd-standard")
    disk_size_gb      = var.disk_size
    service_account   = var.node_service_account
    oauth_scopes      = ["https://www.googleapis.com/auth/cloud-platform"]
    resource_labels   = var.labels
    boot_disk_kms_key = var.disk_kms_key
    tags              = var.network_tags
    # By this the queues and the pods that need no TPU find the pool.
    labels = { "tpukit.dev/pool" = "cpu" }

    gcfs_config {
      enabled = true
    }
    shielded_instance_config {
      enable_secure_boot          = true
      enable_integrity_monitoring = true
    }
    workload_metadata_config {
      mode = "GKE_METADATA"
    }
  }

  management {
    auto_repair  = true
    auto_upgrade = var.auto_upgrade
  }

  upgrade_settings {
    max_surge       = 1
    max_unavailable = 0
  }

  timeouts {
    create = "60m"
    update = "60m"
    delete = "60m"
  }
}
