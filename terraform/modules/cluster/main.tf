resource "google_container_cluster" "this" {
  # checkov:skip=CKV_GCP_21:the root module labels it with the name of the cluster; checkov does not see through the merge of labels
  # checkov:skip=CKV_GCP_65:groups for RBAC need a Workspace domain, which a project need not have
  # checkov:skip=CKV_GCP_66:a variable turns Binary Authorization on; it needs one more API and a policy that belongs to the whole project, not to this cluster
  project             = var.project_id
  location            = var.region
  node_locations      = [var.zone]
  name                = var.name
  description         = var.description
  min_master_version  = var.gke_version
  deletion_protection = var.deletion_protection
  resource_labels     = var.labels

  # Every pool is a resource of its own. GKE wants one node to begin with: it runs as our account, then goes.
  remove_default_node_pool = true
  initial_node_count       = 1

  network                     = var.network
  subnetwork                  = var.subnet
  datapath_provider           = "ADVANCED_DATAPATH"
  enable_intranode_visibility = true
  enable_shielded_nodes       = true
  enable_multi_networking     = var.multi_networking ? true : null
  default_max_pods_per_node   = var.max_pods_per_node

  ip_allocation_policy {
    cluster_secondary_range_name  = var.pods_range_name
    services_secondary_range_name = var.services_range_name

    # A range in use cannot grow. GKE gives each new pool the range that has the most room.
    dynamic "additional_pod_ranges_config" {
      for_each = length(var.additional_pod_ranges) > 0 ? [var.additional_pod_ranges] : []
      content {
        pod_range_names = additional_pod_ranges_config.value
      }
    }
  }

  # Dataplane V2 enforces network policies by itself and refuses this switch; it is written out for those who look for it.
  network_policy {
    enabled = false
  }

  private_cluster_config {
    enable_private_nodes = true
  }

  control_plane_endpoints_config {
    dns_endpoint_config {
      allow_external_traffic = true
    }
    ip_endpoints_config {
      enabled = length(var.authorized_networks) > 0
    }
  }

  dynamic "master_authorized_networks_config" {
    for_each = length(var.authorized_networks) > 0 ? [var.authorized_networks] : []
    content {
      gcp_public_cidrs_access_enabled = false

      dynamic "cidr_blocks" {
        for_each = master_authorized_networks_config.value
        content {
          display_name = cidr_blocks.key
          cidr_block   = cidr_blocks.value
        }
      }
    }
  }

  master_auth {
    client_certificate_config {
      issue_client_certificate = false
    }
  }

  dynamic "database_encryption" {
    for_each = var.kms_key == null ? [] : [var.kms_key]
    content {
      state    = "ENCRYPTED"
      key_name = database_encryption.value
    }
  }

  dynamic "binary_authorization" {
    for_each = var.binary_authorization ? ["PROJECT_SINGLETON_POLICY_ENFORCE"] : []
    content {
      evaluation_mode = binary_authorization.value
    }
  }

  dynamic "security_posture_config" {
    for_each = var.security_posture == null ? [] : [var.security_posture]
    content {
      mode = security_posture_config.value
    }
  }

  workload_identity_config {
    workload_pool = "${var.project_id}.svc.id.goog"
  }

  release_channel {
    channel = var.release_channel
  }

  maintenance_policy {
    recurring_window {
      start_time = var.maintenance_window.start_time
      end_time   = var.maintenance_window.end_time
      recurrence = var.maintenance_window.recurrence
    }

    # Patches of the control plane still come. Nodes stay as they are, because an upgrade would end the training on them.
    dynamic "maintenance_exclusion" {
      for_each = var.release_channel == "UNSPECIFIED" ? {} : var.maintenance_exclusions
      content {
        exclusion_name = maintenance_exclusion.key
        start_time     = maintenance_exclusion.value.start_time
        end_time       = maintenance_exclusion.value.end_time

        exclusion_options {
          scope             = maintenance_exclusion.value.scope
          end_time_behavior = maintenance_exclusion.value.end_time == null ? "UNTIL_END_OF_SUPPORT" : null
        }
      }
    }
  }

  addons_config {
    gcs_fuse_csi_driver_config {
      enabled = var.addons.gcs_fuse
    }
    http_load_balancing {
      disabled = !var.addons.http_load_balancing
    }

    dynamic "gcp_filestore_csi_driver_config" {
      for_each = var.addons.filestore ? [true] : []
      content {
        enabled = true
      }
    }

    dynamic "lustre_csi_driver_config" {
      for_each = var.addons.lustre ? [true] : []
      content {
        enabled = true
      }
    }
  }

  # The hosts of large jobs find each other by the records of a headless service: more than kube-dns serves well.
  dns_config {
    cluster_dns       = "CLOUD_DNS"
    cluster_dns_scope = "CLUSTER_SCOPE"
  }

  logging_config {
    enable_components = var.logging_components
  }

  monitoring_config {
    enable_components = var.monitoring_components
    managed_prometheus {
      enabled = true
    }
  }

  cost_management_config {
    enabled = true
  }

  node_config {
    machine_type      = var.first_node_machine_type
    service_account   = var.node_service_account
    oauth_scopes      = ["https://www.googleapis.com/auth/cloud-platform"]
    boot_disk_kms_key = var.disk_kms_key
    tags              = var.network_tags

    shielded_instance_config {
      enable_secure_boot          = true
      enable_integrity_monitoring = true
    }
    workload_metadata_config {
      mode = "GKE_METADATA"
    }
  }

  timeouts {
    create = "90m"
    update = "90m"
    delete = "90m"
  }

  lifecycle {
    # Both describe the node that is gone.
    ignore_changes = [initial_node_count, node_config]

    precondition {
      condition     = startswith(var.zone, "${var.region}-")
      error_message = "Zone ${var.zone} is not in region ${var.region}. Write region = \"${replace(var.zone, "/-[^-]*$/", "")}\", or a zone of ${var.region}."
    }
  }
}
