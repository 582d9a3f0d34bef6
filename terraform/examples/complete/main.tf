terraform {
  required_version = ">= 1.5.7"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 7.39, < 9"
    }
  }
}

provider "google" {
  project = var.project_id
  region  = local.region
}

locals {
  region = join("-", slice(split("-", var.zone), 0, 2))
}

module "tpu_shapes" {
  source = "../../modules/tpu_shapes"

  zone  = var.zone
  pools = var.pools
}

module "network" {
  source = "../../modules/network"

  project_id   = var.project_id
  region       = local.region
  network_name = "${var.name}-network"
  subnet_name  = "${var.name}-subnet"
  nodes = [
    { count = 3, max_pods_per_node = 64 },
    { count = sum(values(module.tpu_shapes.shapes)[*].hosts), max_pods_per_node = 16 },
  ]
}

module "node_account" {
  source = "../../modules/node_account"

  project_id = var.project_id
  name       = "${var.name}-nodes"
  roles      = ["roles/container.defaultNodeServiceAccount", "roles/serviceusage.serviceUsageConsumer"]
}

module "cluster" {
  source = "../../modules/cluster"

  project_id           = var.project_id
  region               = local.region
  zone                 = module.tpu_shapes.cpu_zone
  name                 = var.name
  network              = module.network.network
  subnet               = module.network.subnet
  pods_range_name      = module.network.pods_range_name
  services_range_name  = module.network.services_range_name
  node_service_account = module.node_account.email
}

module "cpu_pool" {
  source = "../../modules/cpu_pool"

  project_id           = var.project_id
  region               = local.region
  zone                 = module.tpu_shapes.cpu_zone
  cluster              = module.cluster.id
  node_service_account = module.node_account.email
}

module "tpu_pools" {
  source = "../../modules/tpu_pools"

  project_id           = var.project_id
  region               = local.region
  zone                 = var.zone
  cluster              = module.cluster.id
  pools                = module.tpu_shapes.shapes
  node_service_account = module.node_account.email
}

module "workload_identity" {
  source = "../../modules/workload_identity"

  project_id    = var.project_id
  name          = "${var.name}-jobs"
  roles         = ["roles/aiplatform.user", "roles/logging.logWriter", "roles/monitoring.metricWriter"]
  workload_pool = module.cluster.workload_pool
  namespace     = "tpu-training"
}

module "artifact_bucket" {
  source = "../../modules/artifact_bucket"

  project_id = var.project_id
  name       = "${var.project_id}-${var.name}"
  location   = local.region
  grants = {
    for role in ["roles/storage.objectUser", "roles/storage.legacyBucketReader"] : role => {
      role   = role
      member = module.workload_identity.member
    }
  }
}

module "artifact_registry" {
  source = "../../modules/artifact_registry"

  project_id = var.project_id
  name       = var.name
  location   = local.region
  reader     = module.node_account.member
}

module "tensorboard" {
  source = "../../modules/tensorboard"

  project_id = var.project_id
  near       = local.region
  name       = var.name
}

module "job_store" {
  source = "../../modules/job_store"

  project_id = var.project_id
  name       = "${var.name}-jobs"
  location   = local.region
  member     = module.workload_identity.member
}
