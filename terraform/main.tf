locals {
  labels          = merge({ tpu-cluster = var.cluster_name }, var.labels)
  services_region = coalesce(var.services_region, var.region == "us-central2" ? "us-central1" : var.region)
  auto_upgrade    = var.release_channel != "UNSPECIFIED"

  numbered_pools = { for index in range(var.num_tpu_pools) : "${var.tpu_node_pool_name_prefix}-${index}" => null }
  # A pool that says anything about its shape says all of it; one that says nothing has the common shape.
  pools = { for name, pool in coalesce(var.tpu_pools, local.numbered_pools) : name => merge(
    try(length(compact([pool.tpu_type, pool.tpu_machine_type, pool.tpu_topology, pool.tpu_num_nodes])), 0) > 0 ? {
      tpu_type         = pool.tpu_type
      tpu_machine_type = pool.tpu_machine_type
      tpu_topology     = pool.tpu_topology
      tpu_num_nodes    = pool.tpu_num_nodes
      } : {
      tpu_type         = var.tpu_type
      tpu_machine_type = var.tpu_machine_type
      tpu_topology     = var.tpu_topology
      tpu_num_nodes    = var.tpu_num_nodes
    },
    {
      capacity         = try(pool.capacity, null) == null ? var.capacity : pool.capacity
      reservation_name = try(pool.capacity, null) == null && try(pool.reservation_name, null) == null ? var.reservation_name : pool.reservation_name
      workload_policy  = var.tpu_workload_policy
    },
  ) }

  # Roles of Cloud Storage go to the bucket, so that no account reaches the project's other buckets. One grant for each
  # account and role: two for the same would take each other away.
  bucket_roles = {
    workloads = setunion(["roles/storage.legacyBucketReader"], [for role in var.tpu_sa_roles : role if startswith(role, "roles/storage.")])
    nodes     = toset([for role in var.gke_sa_roles : role if startswith(role, "roles/storage.")])
  }
  members = { workloads = module.workload_identity.member, nodes = module.node_account.member }
  bucket_grants = merge([for who, roles in local.bucket_roles : {
    for role in roles : "${who} ${role}" => { role = role, member = local.members[who] }
  }]...)
}

module "tpu_shapes" {
  source = "./modules/tpu_shapes"

  pools            = local.pools
  zone             = var.zone
  cpu_zone         = var.cpu_zone
  cpu_machine_type = var.cpu_pool_machine_type
  gke_version      = var.gke_version
}

module "network" {
  source = "./modules/network"

  project_id          = var.project_id
  network_project_id  = var.network_project_id
  region              = var.region
  owner               = var.cluster_name
  create_network      = var.create_network
  create_subnet       = var.create_subnet
  create_nat          = var.create_nat
  network_name        = var.network_name
  subnet_name         = var.subnet_name
  subnet_ip_range     = var.subnet_ip_range
  pods_ip_range       = var.pods_ip_range
  services_ip_range   = var.services_ip_range
  pods_range_name     = var.pods_range_name
  services_range_name = var.services_range_name

  additional_pods_ip_ranges   = var.additional_pods_ip_ranges
  additional_pods_range_names = var.additional_pods_range_names
  nodes = [
    { count = var.cpu_pool_node_count, max_pods_per_node = var.cpu_pool_max_pods_per_node },
    { count = sum(concat([0], values(module.tpu_shapes.shapes)[*].hosts)), max_pods_per_node = var.tpu_max_pods_per_node },
  ]
}

module "node_account" {
  source = "./modules/node_account"

  project_id = var.project_id
  name       = var.gke_sa_name
  create     = var.create_service_accounts
  roles      = [for role in var.gke_sa_roles : role if !startswith(role, "roles/storage.")]
}

module "cluster" {
  source = "./modules/cluster"

  project_id              = var.project_id
  region                  = var.region
  zone                    = module.tpu_shapes.cpu_zone
  name                    = var.cluster_name
  description             = var.cluster_description
  gke_version             = var.gke_version
  release_channel         = var.release_channel
  deletion_protection     = var.deletion_protection
  logging_components      = var.logging_components
  network                 = module.network.network
  subnet                  = module.network.subnet
  pods_range_name         = module.network.pods_range_name
  services_range_name     = module.network.services_range_name
  additional_pod_ranges   = module.network.additional_pod_ranges
  authorized_networks     = var.authorized_networks
  max_pods_per_node       = var.cpu_pool_max_pods_per_node
  first_node_machine_type = var.cpu_pool_machine_type
  node_service_account    = module.node_account.email
  labels                  = local.labels
  kms_key                 = lookup(var.kms_keys, "cluster", null)
  disk_kms_key            = lookup(var.kms_keys, "disks", null)
  binary_authorization    = var.binary_authorization
  security_posture        = var.security_posture
}

module "cpu_pool" {
  source = "./modules/cpu_pool"

  project_id           = var.project_id
  region               = var.region
  cluster              = module.cluster.id
  name                 = "cpu-pool"
  zone                 = module.tpu_shapes.cpu_zone
  node_count           = var.cpu_pool_node_count
  machine_type         = var.cpu_pool_machine_type
  disk_type            = var.cpu_pool_disk_type
  disk_size            = var.cpu_pool_disk_size
  disk_kms_key         = lookup(var.kms_keys, "disks", null)
  max_pods_per_node    = var.cpu_pool_max_pods_per_node
  auto_upgrade         = local.auto_upgrade
  node_service_account = module.node_account.email
  labels               = local.labels
}

module "tpu_pools" {
  source = "./modules/tpu_pools"

  project_id            = var.project_id
  region                = var.region
  zone                  = var.zone
  cluster               = module.cluster.id
  pools                 = module.tpu_shapes.shapes
  autoscaling           = var.enable_tpu_autoscaling
  max_run_duration      = var.flex_start_duration
  queued_provisioning   = var.flex_start_queued
  spot_shutdown_seconds = var.spot_shutdown_seconds
  max_pods_per_node     = var.tpu_max_pods_per_node
  disk_size             = var.tpu_disk_size
  disk_kms_key          = lookup(var.kms_keys, "disks", null)
  auto_upgrade          = local.auto_upgrade
  multislice_group_name = var.multislice_group_name
  node_service_account  = module.node_account.email
  labels                = local.labels
}

module "workload_identity" {
  source = "./modules/workload_identity"

  project_id    = var.project_id
  name          = var.tpu_sa_name
  create        = var.create_service_accounts
  roles         = [for role in var.tpu_sa_roles : role if !startswith(role, "roles/storage.")]
  workload_pool = module.cluster.workload_pool
  namespace     = var.tpu_namespace
}

module "artifact_bucket" {
  source = "./modules/artifact_bucket"

  project_id    = var.project_id
  create        = var.create_bucket
  name          = var.artifact_repository_bucket_name
  location      = var.region
  force_destroy = var.force_destroy
  labels        = local.labels
  grants        = local.bucket_grants
  kms_key       = lookup(var.kms_keys, "bucket", null)
}

module "artifact_registry" {
  source = "./modules/artifact_registry"

  project_id = var.project_id
  create     = var.create_artifact_registry
  name       = coalesce(var.artifact_registry_name, var.cluster_name)
  location   = coalesce(var.artifact_registry_location, local.services_region)
  labels     = local.labels
  reader     = module.node_account.member
  kms_key    = lookup(var.kms_keys, "images", null)

  immutable_tags = var.immutable_tags
}

module "tensorboard" {
  source = "./modules/tensorboard"
  count  = var.enable_tensorboard ? 1 : 0

  project_id = var.project_id
  region     = var.tensorboard_region
  near       = local.services_region
  name       = var.cluster_name
  labels     = local.labels
  kms_key    = lookup(var.kms_keys, "metrics", null)
}

module "job_store" {
  source = "./modules/job_store"
  count  = var.firestore_database == null ? 0 : 1

  project_id = var.project_id
  name       = var.firestore_database
  location   = local.services_region
  member     = module.workload_identity.member
  grant      = var.create_service_accounts

  force_destroy = var.force_destroy
  kms_key       = lookup(var.kms_keys, "jobs", null)
}

module "queue_monitoring" {
  source = "./modules/queue_monitoring"
  count  = var.queue_monitoring_team == null ? 0 : 1

  project_id            = var.project_id
  team                  = var.queue_monitoring_team
  notification_channels = var.queue_notification_channels
  limits                = var.queue_alert_limits
  labels                = local.labels
}

moved {
  from = module.artifact_bucket.google_storage_bucket_iam_member.grants["workloads legacyBucketReader"]
  to   = module.artifact_bucket.google_storage_bucket_iam_member.grants["workloads roles/storage.legacyBucketReader"]
}
