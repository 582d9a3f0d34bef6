# One pool is one slice: its hosts are made, repaired and deleted together. Pools are told apart by name, so that taking one
# away leaves the others alone.

locals {
  # These boot from Hyperdisk only, which the older machines do not have.
  hyperdisk = ["v6e", "tpu7x"]

  # Flex-start slices always come with the jobs that want them.
  scaled = { for name, pool in var.pools : name => var.autoscaling || pool.capacity == "flex-start" }

  own_policy = { for name, pool in var.pools : name => pool if pool.placement == "policy" && pool.workload_policy == null }
}

# The provider would change topology, machine type and number of hosts in place, and GKE refuses that for a slice.
# Through this, a changed shape replaces its pool.
resource "terraform_data" "shape" {
  for_each = var.pools

  input = {
    machine_type = each.value.machine_type
    topology     = each.value.topology
    hosts        = each.value.hosts
  }
}

# It would switch autoscaling in place too: a pool that is empty at that moment would then have no hosts for ever, because
# a slice must not be resized. By itself, because one that only comes into being replaces nothing.
resource "terraform_data" "autoscaling" {
  for_each = var.pools

  input = local.scaled[each.key]
}

# Slices of several hosts are wired by the topology on older generations, and by such a policy on newer ones.
resource "google_compute_resource_policy" "workload" {
  for_each = local.own_policy

  project = var.project_id
  region  = var.region
  # Clusters of one region share these names.
  name = "${each.key}-${substr(sha1(var.cluster), 0, 8)}"

  workload_policy {
    type                 = "HIGH_THROUGHPUT"
    accelerator_topology = each.value.topology
  }
}

resource "google_container_node_pool" "this" {
  # checkov:skip=CKV_GCP_9:off for flex-start alone, where GKE refuses it: such a slice is given back, not repaired
  for_each = var.pools

  project  = var.project_id
  location = var.region
  # By its name, as a pool that was imported has it: another spelling would replace that pool. Cut out of the id, which is
  # unknown while the cluster is being replaced.
  cluster           = reverse(split("/", var.cluster))[0]
  name              = each.key
  node_locations    = [var.zone]
  max_pods_per_node = var.max_pods_per_node
  # Zero where jobs bring the slice into being.
  initial_node_count = local.scaled[each.key] ? 0 : each.value.hosts

  # A slice scales from nothing to all of its hosts and back.
  dynamic "autoscaling" {
    for_each = local.scaled[each.key] ? [each.value.hosts] : []
    content {
      min_node_count  = 0
      max_node_count  = autoscaling.value
      location_policy = "ANY"
    }
  }

  # Nodes come only for a ProvisioningRequest, which the queue makes for a job: all of its slices, or none yet.
  # https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest
  dynamic "queued_provisioning" {
    for_each = each.value.capacity == "flex-start" && var.queued_provisioning ? [each.key] : []
    content {
      enabled = true
    }
  }

  dynamic "placement_policy" {
    for_each = each.value.placement == "compact" ? [each.value.topology] : []
    content {
      type         = "COMPACT"
      tpu_topology = placement_policy.value
    }
  }

  dynamic "placement_policy" {
    for_each = each.value.placement == "policy" ? [each.key] : []
    content {
      # The API takes no type beside a policy, and the provider insists on one: empty is what both agree on.
      type        = ""
      policy_name = each.value.workload_policy == null ? google_compute_resource_policy.workload[each.key].name : each.value.workload_policy
    }
  }

  node_config {
    machine_type      = each.value.machine_type
    disk_type         = contains(local.hyperdisk, each.value.generation) ? "hyperdisk-balanced" : "pd-balanced"
    disk_size_gb      = var.disk_size
    service_account   = var.node_service_account
    oauth_scopes      = ["https://www.googleapis.com/auth/cloud-platform"]
    resource_labels   = var.labels
    boot_disk_kms_key = var.disk_kms_key
    tags              = var.network_tags
    # No label with the number of pools: it would change every pool when one comes or goes.
    labels = { MultisliceGroup = var.multislice_group_name }

    spot             = each.value.capacity == "spot"
    flex_start       = each.value.capacity == "flex-start"
    max_run_duration = each.value.capacity == "flex-start" ? var.max_run_duration : null

    dynamic "reservation_affinity" {
      for_each = each.value.capacity == "reservation" ? [each.value.reservation_name] : []
      content {
        consume_reservation_type = "SPECIFIC_RESERVATION"
        key                      = "compute.googleapis.com/reservation-name"
        values                   = [reservation_affinity.value]
      }
    }

    dynamic "reservation_affinity" {
      for_each = each.value.capacity == "flex-start" ? [each.key] : []
      content {
        consume_reservation_type = "NO_RESERVATION"
      }
    }

    # GKE taints spot nodes only where it makes the pool itself. Without it, pods that did not ask for spot land there.
    # https://cloud.google.com/kubernetes-engine/docs/concepts/spot-vms
    dynamic "taint" {
      for_each = each.value.capacity == "spot" ? [each.key] : []
      content {
        key    = "cloud.google.com/gke-spot"
        value  = "true"
        effect = "NO_SCHEDULE"
      }
    }

    # How long pods may take to save when Google takes the slice back. GKE takes it for spot machines alone.
    # https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/NodeKubeletConfig
    dynamic "kubelet_config" {
      for_each = each.value.capacity == "spot" && var.spot_shutdown_seconds != null ? [var.spot_shutdown_seconds] : []
      content {
        shutdown_grace_period_seconds               = kubelet_config.value
        shutdown_grace_period_critical_pods_seconds = min(15, kubelet_config.value)
      }
    }

    gvnic {
      enabled = true
    }
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
    auto_repair  = each.value.capacity != "flex-start"
    auto_upgrade = var.auto_upgrade
  }

  # There is no spare slice to surge into.
  upgrade_settings {
    max_surge       = 0
    max_unavailable = 1
  }

  timeouts {
    create = "120m"
    update = "120m"
    delete = "120m"
  }

  lifecycle {
    replace_triggered_by = [terraform_data.shape[each.key], terraform_data.autoscaling[each.key]]
    # What GKE reports here follows the size of the pool.
    ignore_changes = [initial_node_count]

    # https://github.com/AI-Hypercomputer/xpk/pull/900 has the refusal, and
    # https://github.com/GoogleCloudPlatform/cluster-toolkit/pull/5218 the two generations that are served.
    precondition {
      condition     = !(var.queued_provisioning && each.value.capacity == "flex-start") || contains(["v6e", "tpu7x"], each.value.generation)
      error_message = "Google serves no ${each.value.generation} by queued provisioning. Leave flex_start_queued out: slices then come by autoscaling."
    }
  }
}
