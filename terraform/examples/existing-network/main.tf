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
  pools = { slice = { tpu_type = var.tpu_type } }
}

module "network" {
  source = "../../modules/network"

  project_id          = var.project_id
  network_project_id  = var.host_project_id
  region              = local.region
  create_network      = false
  create_subnet       = false
  owner               = var.name
  network_name        = var.network
  subnet_name         = var.subnet
  pods_range_name     = var.pods_range
  services_range_name = var.services_range
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
