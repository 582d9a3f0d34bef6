# Every other module by itself.

mock_provider "google" {
  # What Google answers where the provider checks the form of the answer. Everything else is made up by Terraform.
  mock_resource "google_service_account" {
    defaults = {
      name   = "projects/tpu-project/serviceAccounts/someone@tpu-project.iam.gserviceaccount.com"
      email  = "someone@tpu-project.iam.gserviceaccount.com"
      member = "serviceAccount:someone@tpu-project.iam.gserviceaccount.com"
    }
  }
}

variables {
  project_id = "tpu-project"
  region     = "us-central2"
  zone       = "us-central2-b"
  labels     = { tpu-cluster = "tpu-cluster" }

  network_name      = "tpu-network"
  subnet_name       = "tpu-subnet"
  subnet_ip_range   = "10.129.0.0/20"
  pods_ip_range     = "192.168.64.0/20"
  services_ip_range = "192.168.80.0/20"
  nodes             = [{ count = 3, max_pods_per_node = 64 }, { count = 4, max_pods_per_node = 16 }]

  description             = "for training"
  gke_version             = null
  release_channel         = "REGULAR"
  deletion_protection     = false
  network                 = "projects/tpu-project/global/networks/tpu-network"
  subnet                  = "projects/tpu-project/regions/us-central2/subnetworks/tpu-subnet"
  authorized_networks     = {}
  max_pods_per_node       = 64
  first_node_machine_type = "n2-standard-4"
  node_service_account    = "gke-sa@tpu-project.iam.gserviceaccount.com"
}

run "network_is_private_and_logged" {
  command = plan
  module {
    source = "./modules/network"
  }
  assert {
    condition     = google_compute_subnetwork.this[0].private_ip_google_access && length(google_compute_subnetwork.this[0].log_config) == 1 && !google_compute_network.this[0].auto_create_subnetworks
    error_message = "flow logs, private access to Google, no subnets in other regions"
  }
  assert {
    condition     = google_compute_router_nat.this[0].nat_ip_allocate_option == "AUTO_ONLY"
    error_message = "nodes without public addresses need a NAT"
  }
  assert {
    condition     = google_compute_firewall.webhooks[0].source_ranges == toset(["10.129.0.0/20"])
    error_message = "only the subnet reaches the webhooks"
  }
}

run "network_holds_slices_that_110_pods_a_node_would_not" {
  command = plan
  module {
    source = "./modules/network"
  }
  variables {
    # v5litepod-256 beside 3 nodes: 16 nodes were all that fitted into a /20 with GKE's default.
    nodes = [{ count = 3, max_pods_per_node = 64 }, { count = 64, max_pods_per_node = 16 }]
  }
  assert {
    condition     = google_compute_subnetwork.this[0].secondary_ip_range[0].ip_cidr_range == "192.168.64.0/20"
    error_message = "the guide's range holds 64 hosts"
  }
}

run "network_refuses_a_pods_range_that_is_too_small" {
  command = plan
  module {
    source = "./modules/network"
  }
  variables {
    nodes = [{ count = 3, max_pods_per_node = 110 }, { count = 16, max_pods_per_node = 110 }]
  }
  expect_failures = [google_compute_subnetwork.this]
}

run "network_takes_a_pods_range_that_just_fits" {
  command = plan
  module {
    source = "./modules/network"
  }
  variables {
    # 15 nodes and one to spare, 256 addresses each.
    nodes = [{ count = 3, max_pods_per_node = 110 }, { count = 12, max_pods_per_node = 110 }]
  }
  assert {
    condition     = local.pods_needed == local.pods_held
    error_message = "16 times 256 addresses are a /20"
  }
}

run "network_refuses_a_subnet_that_is_too_small" {
  command = plan
  module {
    source = "./modules/network"
  }
  variables {
    subnet_ip_range = "10.129.0.0/29"
  }
  expect_failures = [google_compute_subnetwork.this]
}

run "network_with_more_ranges_holds_more_pods" {
  command = plan
  module {
    source = "./modules/network"
  }
  variables {
    nodes                     = [{ count = 3, max_pods_per_node = 64 }, { count = 512, max_pods_per_node = 16 }]
    additional_pods_ip_ranges = ["10.64.0.0/16"]
  }
  assert {
    condition     = google_compute_subnetwork.this[0].secondary_ip_range[2].ip_cidr_range == "10.64.0.0/16" && output.additional_pod_ranges[0] == "tpu-subnet-pods-1"
    error_message = "the subnet has the range, and the cluster gets its name"
  }
}

run "network_refuses_more_ranges_that_overlap" {
  command = plan
  module {
    source = "./modules/network"
  }
  variables {
    additional_pods_ip_ranges = ["10.129.8.0/22"]
  }
  expect_failures = [google_compute_subnetwork.this]
}

run "network_refuses_ranges_that_overlap" {
  command = plan
  module {
    source = "./modules/network"
  }
  variables {
    services_ip_range = "192.168.72.0/22"
  }
  expect_failures = [google_compute_subnetwork.this]
}

run "cluster_is_private_and_hardened" {
  command = plan
  module {
    source = "./modules/cluster"
  }
  variables {
    pods_range_name     = "tpu-subnet-pods"
    services_range_name = "tpu-subnet-services"
    name                = "tpu-cluster"
  }
  assert {
    condition     = google_container_cluster.this.location == "us-central2" && google_container_cluster.this.node_locations == toset(["us-central2-b"])
    error_message = "a regional control plane, and nodes in one zone"
  }
  assert {
    condition = (
      google_container_cluster.this.private_cluster_config[0].enable_private_nodes &&
      google_container_cluster.this.control_plane_endpoints_config[0].dns_endpoint_config[0].allow_external_traffic &&
      !google_container_cluster.this.control_plane_endpoints_config[0].ip_endpoints_config[0].enabled
    )
    error_message = "private nodes, and a DNS endpoint alone"
  }
  assert {
    condition = (
      google_container_cluster.this.datapath_provider == "ADVANCED_DATAPATH" && google_container_cluster.this.enable_shielded_nodes &&
      google_container_cluster.this.workload_identity_config[0].workload_pool == "tpu-project.svc.id.goog"
    )
    error_message = "Dataplane V2, shielded nodes, Workload Identity"
  }
  assert {
    condition = (
      google_container_cluster.this.remove_default_node_pool &&
      google_container_cluster.this.node_config[0].service_account == var.node_service_account &&
      google_container_cluster.this.node_config[0].workload_metadata_config[0].mode == "GKE_METADATA"
    )
    error_message = "not even the first node runs as the default account"
  }
  assert {
    condition     = google_container_cluster.this.deletion_protection == false
    error_message = "destroy must leave nothing behind"
  }
  assert {
    condition = (
      google_container_cluster.this.release_channel[0].channel == "REGULAR" && google_container_cluster.this.min_master_version == null &&
      one(google_container_cluster.this.maintenance_policy[0].maintenance_exclusion).exclusion_options[0].scope == "NO_MINOR_OR_NODE_UPGRADES" &&
      one(google_container_cluster.this.maintenance_policy[0].maintenance_exclusion).exclusion_options[0].end_time_behavior == "UNTIL_END_OF_SUPPORT"
    )
    error_message = "the channel's version, and no upgrade under a running job"
  }
}

run "cluster_without_a_channel_has_no_exclusion" {
  command = plan
  module {
    source = "./modules/cluster"
  }
  variables {
    pods_range_name     = "tpu-subnet-pods"
    services_range_name = "tpu-subnet-services"
    name                = "tpu-cluster"
    release_channel     = "UNSPECIFIED"
  }
  assert {
    condition     = length(google_container_cluster.this.maintenance_policy[0].maintenance_exclusion) == 0
    error_message = "scoped exclusions belong to channels"
  }
}

run "cluster_takes_windows_exclusions_and_components" {
  command = plan
  module {
    source = "./modules/cluster"
  }
  variables {
    pods_range_name        = "tpu-subnet-pods"
    services_range_name    = "tpu-subnet-services"
    name                   = "tpu-cluster"
    maintenance_window     = { start_time = "2026-02-01T02:00:00Z", end_time = "2026-02-01T08:00:00Z", recurrence = "FREQ=DAILY" }
    maintenance_exclusions = { launch = { start_time = "2026-03-01T00:00:00Z", end_time = "2026-03-10T00:00:00Z", scope = "NO_UPGRADES" } }
    logging_components     = ["SYSTEM_COMPONENTS"]
    monitoring_components  = ["SYSTEM_COMPONENTS"]
  }
  assert {
    condition = (
      google_container_cluster.this.maintenance_policy[0].recurring_window[0].recurrence == "FREQ=DAILY" &&
      one(google_container_cluster.this.maintenance_policy[0].maintenance_exclusion).exclusion_name == "launch" &&
      one(google_container_cluster.this.maintenance_policy[0].maintenance_exclusion).exclusion_options[0].scope == "NO_UPGRADES" &&
      one(google_container_cluster.this.logging_config[0].enable_components) == "SYSTEM_COMPONENTS"
    )
    error_message = "as the caller wants it"
  }
}

run "cluster_reached_by_address_from_named_networks" {
  command = plan
  module {
    source = "./modules/cluster"
  }
  variables {
    pods_range_name     = "tpu-subnet-pods"
    services_range_name = "tpu-subnet-services"
    name                = "tpu-cluster"
    authorized_networks = { office = "203.0.113.0/24" }
  }
  assert {
    condition = (
      google_container_cluster.this.control_plane_endpoints_config[0].ip_endpoints_config[0].enabled &&
      one(google_container_cluster.this.master_authorized_networks_config[0].cidr_blocks).cidr_block == "203.0.113.0/24" &&
      google_container_cluster.this.master_authorized_networks_config[0].gcp_public_cidrs_access_enabled == false
    )
    error_message = "the address is open to the named networks and to nobody else"
  }
}

run "cluster_refuses_a_zone_of_another_region" {
  command = plan
  module {
    source = "./modules/cluster"
  }
  variables {
    pods_range_name     = "tpu-subnet-pods"
    services_range_name = "tpu-subnet-services"
    name                = "tpu-cluster"
    zone                = "us-central1-a"
  }
  expect_failures = [google_container_cluster.this]
}

run "cpu_pool_of_machines_that_boot_from_hyperdisk_alone" {
  command = plan
  module {
    source = "./modules/cpu_pool"
  }
  variables {
    cluster      = "projects/tpu-project/locations/us-central2/clusters/tpu-cluster"
    name         = "cpu-pool"
    node_count   = 3
    machine_type = "n4-standard-4"
    disk_size    = 200
    auto_upgrade = true
  }
  assert {
    condition     = google_container_node_pool.this.node_config[0].disk_type == "hyperdisk-balanced"
    error_message = "N4 machines boot from nothing else"
  }
}

run "cpu_pool" {
  command = plan
  module {
    source = "./modules/cpu_pool"
  }
  variables {
    cluster      = "projects/tpu-project/locations/us-central2/clusters/tpu-cluster"
    name         = "cpu-pool"
    node_count   = 3
    machine_type = "n2-standard-4"
    disk_type    = "pd-standard"
    disk_size    = 200
    auto_upgrade = true
    disk_kms_key = "projects/p/locations/us-central2/keyRings/r/cryptoKeys/k"
  }
  assert {
    condition = (
      google_container_node_pool.this.node_count == 3 && google_container_node_pool.this.max_pods_per_node == 64 &&
      google_container_node_pool.this.node_config[0].machine_type == "n2-standard-4" &&
      google_container_node_pool.this.node_config[0].labels["tpukit.dev/pool"] == "cpu" &&
      google_container_node_pool.this.node_config[0].service_account == var.node_service_account &&
      google_container_node_pool.this.node_config[0].boot_disk_kms_key == var.disk_kms_key &&
      google_container_node_pool.this.node_config[0].workload_metadata_config[0].mode == "GKE_METADATA" &&
      google_container_node_pool.this.node_config[0].shielded_instance_config[0].enable_secure_boot
    )
    error_message = "three hardened nodes that run as their own account"
  }
}

run "node_account" {
  module {
    source = "./modules/node_account"
  }
  variables {
    name  = "gke-sa"
    roles = ["roles/container.defaultNodeServiceAccount"]
  }
  assert {
    condition     = keys(google_project_iam_member.roles) == ["roles/container.defaultNodeServiceAccount"]
    error_message = "the nodes have the roles given to them and no others"
  }
}

run "accounts_that_are_there_are_used_and_their_roles_left_alone" {
  module {
    source = "./modules/workload_identity"
  }
  variables {
    name          = "cloud-tpu-sa"
    create        = false
    roles         = ["roles/logging.logWriter"]
    workload_pool = "tpu-project.svc.id.goog"
    namespace     = "tpu-training"
  }
  assert {
    condition     = length(google_service_account.this) == 0 && length(google_project_iam_member.roles) == 0
    error_message = "what belongs to all clusters of a project is none of one cluster's"
  }
  assert {
    condition     = output.email == "cloud-tpu-sa@tpu-project.iam.gserviceaccount.com" && google_service_account_iam_member.workload.role == "roles/iam.workloadIdentityUser"
    error_message = "the namespace of this cluster acts as the account"
  }
}

run "workload_identity" {
  module {
    source = "./modules/workload_identity"
  }
  variables {
    name          = "cloud-tpu-sa"
    roles         = ["roles/logging.logWriter"]
    workload_pool = "tpu-project.svc.id.goog"
    namespace     = "tpu-training"
  }
  assert {
    condition     = google_service_account_iam_member.workload.member == "serviceAccount:tpu-project.svc.id.goog[tpu-training/cloud-tpu-sa]"
    error_message = "one Kubernetes account of one namespace acts as the account"
  }
  assert {
    condition     = keys(google_project_iam_member.roles) == ["roles/logging.logWriter"]
    error_message = "the workloads have the roles given to them and no others"
  }
}

run "artifact_bucket" {
  command = plan
  module {
    source = "./modules/artifact_bucket"
  }
  variables {
    name          = "tpu-artifacts"
    location      = "us-central2"
    force_destroy = false
    grants        = { reader = { role = "roles/storage.legacyBucketReader", member = "serviceAccount:cloud-tpu-sa@tpu-project.iam.gserviceaccount.com" } }
  }
  assert {
    condition     = google_storage_bucket.this[0].uniform_bucket_level_access && google_storage_bucket.this[0].public_access_prevention == "enforced" && google_storage_bucket.this[0].force_destroy == false
    error_message = "private, and not deleted with data in it"
  }
  assert {
    condition     = google_storage_bucket.this[0].versioning[0].enabled == false && google_storage_bucket.this[0].soft_delete_policy[0].retention_duration_seconds == 0
    error_message = "a checkpoint that was rotated is not paid for on"
  }
  assert {
    condition     = google_storage_bucket_iam_member.grants["reader"].role == "roles/storage.legacyBucketReader" && google_storage_bucket_iam_member.grants["reader"].bucket == "tpu-artifacts"
    error_message = "the role is given on the bucket, beside those of others"
  }
}

run "artifact_registry" {
  module {
    source = "./modules/artifact_registry"
  }
  variables {
    name     = "tpu-cluster"
    location = "us-central1"
    reader   = "serviceAccount:gke-sa@tpu-project.iam.gserviceaccount.com"
  }
  assert {
    condition     = google_artifact_registry_repository_iam_member.reader.role == "roles/artifactregistry.reader" && output.url == "us-central1-docker.pkg.dev/tpu-project/tpu-cluster"
    error_message = "nodes pull from this repository"
  }
  assert {
    condition     = { for policy in google_artifact_registry_repository.this[0].cleanup_policies : policy.id => policy.action } == { delete-untagged = "DELETE", keep-newest = "KEEP" }
    error_message = "images without a tag go after a while, but for the newest"
  }
}

run "tensorboard" {
  command = plan
  module {
    source = "./modules/tensorboard"
  }
  variables {
    name   = "tpu-cluster"
    region = null
    near   = "us-east5"
  }
  assert {
    condition     = google_vertex_ai_tensorboard.this.region == "us-central1"
    error_message = "a region without TensorBoard has it on its continent"
  }
}

run "tensorboard_stays_in_a_region_that_has_it" {
  command = plan
  module {
    source = "./modules/tensorboard"
  }
  variables {
    name   = "tpu-cluster"
    region = null
    near   = "europe-west4"
  }
  assert {
    condition     = google_vertex_ai_tensorboard.this.region == "europe-west4"
    error_message = "metrics stay where the cluster is"
  }
}

run "tensorboard_refuses_a_region_that_lacks_it" {
  command = plan
  module {
    source = "./modules/tensorboard"
  }
  variables {
    name   = "tpu-cluster"
    region = "us-central2"
    near   = "us-central2"
  }
  expect_failures = [google_vertex_ai_tensorboard.this]
}

run "job_store_goes_with_destroy" {
  command = plan
  module {
    source = "./modules/job_store"
  }
  variables {
    name     = "tpu-jobs"
    location = "us-central1"
    member   = "serviceAccount:cloud-tpu-sa@tpu-project.iam.gserviceaccount.com"
  }
  assert {
    condition     = google_firestore_database.this.deletion_policy == "DELETE" && google_firestore_database.this.delete_protection_state == "DELETE_PROTECTION_ENABLED"
    error_message = "the provider would leave the database behind, and jobs are not lost by mistake"
  }
  assert {
    condition     = google_project_iam_member.user[0].condition[0].expression == "resource.name == \"projects/tpu-project/databases/tpu-jobs\""
    error_message = "the role reaches this database alone"
  }
}

run "cluster_with_a_key_a_policy_and_a_watch" {
  command = plan
  module {
    source = "./modules/cluster"
  }
  variables {
    name                 = "tpu-cluster"
    pods_range_name      = "tpu-subnet-pods"
    services_range_name  = "tpu-subnet-services"
    kms_key              = "projects/p/locations/us-central2/keyRings/r/cryptoKeys/k"
    binary_authorization = true
    security_posture     = "BASIC"
  }
  assert {
    condition = (
      google_container_cluster.this.database_encryption[0].key_name == var.kms_key &&
      google_container_cluster.this.binary_authorization[0].evaluation_mode == "PROJECT_SINGLETON_POLICY_ENFORCE" &&
      google_container_cluster.this.security_posture_config[0].mode == "BASIC"
    )
    error_message = "what was switched on is on"
  }
}

run "cluster_with_add_ons_ranges_networks_and_tags_of_ones_own" {
  command = plan
  module {
    source = "./modules/cluster"
  }
  variables {
    name                  = "tpu-cluster"
    pods_range_name       = "tpu-subnet-pods"
    services_range_name   = "tpu-subnet-services"
    addons                = { gcs_fuse = false, http_load_balancing = true, lustre = true }
    additional_pod_ranges = ["more-pods"]
    multi_networking      = true
    network_tags          = ["training"]
  }
  assert {
    condition = (
      !google_container_cluster.this.addons_config[0].gcs_fuse_csi_driver_config[0].enabled &&
      !google_container_cluster.this.addons_config[0].http_load_balancing[0].disabled &&
      google_container_cluster.this.addons_config[0].lustre_csi_driver_config[0].enabled &&
      google_container_cluster.this.enable_multi_networking &&
      google_container_cluster.this.node_config[0].tags == tolist(["training"]) &&
      google_container_cluster.this.ip_allocation_policy[0].additional_pod_ranges_config[0].pod_range_names == toset(["more-pods"])
    )
    error_message = "add-ons, ranges, networks and tags are as asked for"
  }
}

run "repository_with_a_key_and_tags_that_stay" {
  command = plan
  module {
    source = "./modules/artifact_registry"
  }
  variables {
    name           = "images"
    location       = "us-central1"
    reader         = "serviceAccount:gke-sa@tpu-project.iam.gserviceaccount.com"
    kms_key        = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
    immutable_tags = true
  }
  assert {
    condition     = google_artifact_registry_repository.this[0].kms_key_name == var.kms_key && google_artifact_registry_repository.this[0].docker_config[0].immutable_tags
    error_message = "images are encrypted with the key, and tags never move"
  }
}
