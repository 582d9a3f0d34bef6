# What was there before the environment: a network, a subnet, a Shared VPC, a bucket, a repository.

mock_provider "google" {
  # What Google answers where the provider checks the form of the answer. Everything else is made up by Terraform.
  mock_resource "google_service_account" {
    defaults = {
      name   = "projects/tpu-project/serviceAccounts/someone@tpu-project.iam.gserviceaccount.com"
      email  = "someone@tpu-project.iam.gserviceaccount.com"
      member = "serviceAccount:someone@tpu-project.iam.gserviceaccount.com"
    }
  }
  mock_data "google_compute_network" {
    defaults = { id = "projects/tpu-project/global/networks/tpu-network" }
  }
  mock_data "google_compute_subnetwork" {
    defaults = {
      id                       = "projects/tpu-project/regions/us-central2/subnetworks/tpu-subnet"
      network                  = "https://www.googleapis.com/compute/v1/projects/tpu-project/global/networks/tpu-network"
      ip_cidr_range            = "10.0.0.0/24"
      private_ip_google_access = true
      secondary_ip_range = [
        { range_name = "for-pods", ip_cidr_range = "10.4.0.0/20", reserved_internal_range = "" },
        { range_name = "for-services", ip_cidr_range = "10.8.0.0/24", reserved_internal_range = "" },
        { range_name = "narrow", ip_cidr_range = "10.9.0.0/26", reserved_internal_range = "" },
      ]
    }
  }
  mock_data "google_storage_bucket" {
    defaults = { location = "US-CENTRAL2" }
  }
  mock_data "google_artifact_registry_repository" {
    defaults = { format = "DOCKER" }
  }
}

variables {
  project_id                      = "tpu-project"
  region                          = "us-central2"
  zone                            = "us-central2-b"
  network_name                    = "tpu-network"
  subnet_name                     = "tpu-subnet"
  cluster_name                    = "tpu-cluster"
  artifact_repository_bucket_name = "tpu-artifacts"
}

run "network_that_exists_gets_a_subnet_and_a_rule_named_after_the_cluster" {
  command = plan
  module {
    source = "./modules/network"
  }
  variables {
    owner             = "tpu-cluster"
    create_network    = false
    subnet_ip_range   = "10.129.0.0/20"
    pods_ip_range     = "192.168.64.0/20"
    services_ip_range = "192.168.80.0/20"
    nodes             = [{ count = 3, max_pods_per_node = 64 }]
  }
  assert {
    condition     = length(google_compute_network.this) == 0 && google_compute_subnetwork.this[0].network == "projects/tpu-project/global/networks/tpu-network"
    error_message = "the subnet is made in the network that is there"
  }
  assert {
    condition     = google_compute_firewall.webhooks[0].name == "tpu-cluster-webhooks" && length(google_compute_router.this) == 0
    error_message = "what is added is named after the cluster, and a network that exists has its own NAT"
  }
}

run "subnet_that_exists_is_used_with_its_named_ranges" {
  command = plan
  module {
    source = "./modules/network"
  }
  variables {
    owner               = "tpu-cluster"
    create_network      = false
    create_subnet       = false
    create_nat          = true
    pods_range_name     = "for-pods"
    services_range_name = "for-services"
    subnet_ip_range     = "10.129.0.0/20"
    pods_ip_range       = "192.168.64.0/20"
    services_ip_range   = "192.168.80.0/20"
    nodes               = [{ count = 3, max_pods_per_node = 64 }]
  }
  assert {
    condition     = output.pods_range_name == "for-pods" && output.services_range_name == "for-services" && length(google_compute_subnetwork.this) == 0
    error_message = "nothing is made of the subnet"
  }
  assert {
    condition     = google_compute_firewall.webhooks[0].source_ranges == toset(["10.0.0.0/24"]) && google_compute_router.this[0].name == "tpu-cluster-router"
    error_message = "the rule is for the subnet's own addresses, and a NAT comes when asked for"
  }
}

run "shared_vpc_gets_nothing_made_in_it" {
  command = plan
  module {
    source = "./modules/network"
  }
  override_data {
    target = data.google_compute_subnetwork.existing
    values = {
      id                       = "projects/host-project/regions/us-central2/subnetworks/tpu-subnet"
      network                  = "https://www.googleapis.com/compute/v1/projects/host-project/global/networks/tpu-network"
      ip_cidr_range            = "10.0.0.0/24"
      private_ip_google_access = true
      secondary_ip_range = [
        { range_name = "for-pods", ip_cidr_range = "10.4.0.0/20", reserved_internal_range = "" },
        { range_name = "for-services", ip_cidr_range = "10.8.0.0/24", reserved_internal_range = "" },
      ]
    }
  }
  variables {
    owner               = "tpu-cluster"
    network_project_id  = "host-project"
    create_network      = false
    create_subnet       = false
    pods_range_name     = "for-pods"
    services_range_name = "for-services"
    subnet_ip_range     = "10.129.0.0/20"
    pods_ip_range       = "192.168.64.0/20"
    services_ip_range   = "192.168.80.0/20"
    nodes               = [{ count = 3, max_pods_per_node = 64 }]
  }
  assert {
    condition     = length(google_compute_firewall.webhooks) == 0 && length(google_compute_router.this) == 0 && output.subnet == "projects/host-project/regions/us-central2/subnetworks/tpu-subnet"
    error_message = "the host project belongs to others"
  }
}

run "everything_that_exists_is_taken" {
  command = plan
  variables {
    create_network             = false
    create_subnet              = false
    pods_range_name            = "for-pods"
    services_range_name        = "for-services"
    create_bucket              = false
    create_artifact_registry   = false
    artifact_registry_name     = "images"
    artifact_registry_location = "us"
  }
  assert {
    condition     = output.image_repository == "us-docker.pkg.dev/tpu-project/images" && output.artifact_bucket == "gs://tpu-artifacts"
    error_message = "names of what exists are passed on"
  }
}

run "refuses_a_subnet_that_exists_in_a_network_to_be_made" {
  command = plan
  module {
    source = "./modules/network"
  }
  variables {
    owner               = "tpu-cluster"
    subnet_ip_range     = "10.129.0.0/20"
    pods_ip_range       = "192.168.64.0/20"
    services_ip_range   = "192.168.80.0/20"
    nodes               = [{ count = 3, max_pods_per_node = 64 }]
    create_subnet       = false
    pods_range_name     = "for-pods"
    services_range_name = "for-services"
  }
  expect_failures = [data.google_compute_subnetwork.existing]
}

run "refuses_a_subnet_that_exists_without_names_of_its_ranges" {
  command = plan
  module {
    source = "./modules/network"
  }
  variables {
    owner             = "tpu-cluster"
    subnet_ip_range   = "10.129.0.0/20"
    pods_ip_range     = "192.168.64.0/20"
    services_ip_range = "192.168.80.0/20"
    nodes             = [{ count = 3, max_pods_per_node = 64 }]
    create_network    = false
    create_subnet     = false
  }
  expect_failures = [data.google_compute_subnetwork.existing]
}

run "refuses_a_subnet_of_another_network" {
  command = plan
  module {
    source = "./modules/network"
  }
  override_data {
    target = data.google_compute_subnetwork.existing
    values = {
      id                       = "x"
      network                  = "https://www.googleapis.com/compute/v1/projects/tpu-project/global/networks/default"
      ip_cidr_range            = "10.0.0.0/24"
      private_ip_google_access = true
      secondary_ip_range       = [{ range_name = "for-pods", ip_cidr_range = "10.4.0.0/20", reserved_internal_range = "" }, { range_name = "for-services", ip_cidr_range = "10.8.0.0/24", reserved_internal_range = "" }]
    }
  }
  variables {
    owner               = "tpu-cluster"
    subnet_ip_range     = "10.129.0.0/20"
    pods_ip_range       = "192.168.64.0/20"
    services_ip_range   = "192.168.80.0/20"
    nodes               = [{ count = 3, max_pods_per_node = 64 }]
    create_network      = false
    create_subnet       = false
    pods_range_name     = "for-pods"
    services_range_name = "for-services"
  }
  expect_failures = [data.google_compute_subnetwork.existing]
}

run "refuses_a_subnet_without_private_access_to_google" {
  command = plan
  module {
    source = "./modules/network"
  }
  override_data {
    target = data.google_compute_subnetwork.existing
    values = {
      id                       = "x"
      network                  = "https://www.googleapis.com/compute/v1/projects/tpu-project/global/networks/tpu-network"
      ip_cidr_range            = "10.0.0.0/24"
      private_ip_google_access = false
      secondary_ip_range       = [{ range_name = "for-pods", ip_cidr_range = "10.4.0.0/20", reserved_internal_range = "" }, { range_name = "for-services", ip_cidr_range = "10.8.0.0/24", reserved_internal_range = "" }]
    }
  }
  variables {
    owner               = "tpu-cluster"
    subnet_ip_range     = "10.129.0.0/20"
    pods_ip_range       = "192.168.64.0/20"
    services_ip_range   = "192.168.80.0/20"
    nodes               = [{ count = 3, max_pods_per_node = 64 }]
    create_network      = false
    create_subnet       = false
    pods_range_name     = "for-pods"
    services_range_name = "for-services"
  }
  expect_failures = [data.google_compute_subnetwork.existing]
}

run "refuses_ranges_that_the_subnet_does_not_have" {
  command = plan
  module {
    source = "./modules/network"
  }
  variables {
    owner               = "tpu-cluster"
    subnet_ip_range     = "10.129.0.0/20"
    pods_ip_range       = "192.168.64.0/20"
    services_ip_range   = "192.168.80.0/20"
    nodes               = [{ count = 3, max_pods_per_node = 64 }]
    create_network      = false
    create_subnet       = false
    pods_range_name     = "nowhere"
    services_range_name = "for-services"
  }
  expect_failures = [output.pods_range_name]
}

run "refuses_one_range_for_pods_and_services" {
  command = plan
  module {
    source = "./modules/network"
  }
  variables {
    owner               = "tpu-cluster"
    subnet_ip_range     = "10.129.0.0/20"
    pods_ip_range       = "192.168.64.0/20"
    services_ip_range   = "192.168.80.0/20"
    nodes               = [{ count = 3, max_pods_per_node = 64 }]
    create_network      = false
    create_subnet       = false
    pods_range_name     = "for-pods"
    services_range_name = "for-pods"
  }
  expect_failures = [output.services_range_name]
}

run "refuses_a_range_too_narrow_for_the_pods" {
  command = plan
  module {
    source = "./modules/network"
  }
  variables {
    owner               = "tpu-cluster"
    subnet_ip_range     = "10.129.0.0/20"
    pods_ip_range       = "192.168.64.0/20"
    services_ip_range   = "192.168.80.0/20"
    nodes               = [{ count = 3, max_pods_per_node = 64 }]
    create_network      = false
    create_subnet       = false
    pods_range_name     = "narrow"
    services_range_name = "for-services"
  }
  expect_failures = [output.pods_range_name]
}

run "refuses_a_subnet_too_narrow_for_the_nodes" {
  command = plan
  module {
    source = "./modules/network"
  }
  override_data {
    target = data.google_compute_subnetwork.existing
    values = {
      id                       = "x"
      network                  = "https://www.googleapis.com/compute/v1/projects/tpu-project/global/networks/tpu-network"
      ip_cidr_range            = "10.0.0.0/29"
      private_ip_google_access = true
      secondary_ip_range       = [{ range_name = "for-pods", ip_cidr_range = "10.4.0.0/20", reserved_internal_range = "" }, { range_name = "for-services", ip_cidr_range = "10.8.0.0/24", reserved_internal_range = "" }]
    }
  }
  variables {
    owner               = "tpu-cluster"
    subnet_ip_range     = "10.129.0.0/20"
    pods_ip_range       = "192.168.64.0/20"
    services_ip_range   = "192.168.80.0/20"
    nodes               = [{ count = 4, max_pods_per_node = 64 }]
    create_network      = false
    create_subnet       = false
    pods_range_name     = "for-pods"
    services_range_name = "for-services"
  }
  expect_failures = [output.subnet]
}

run "refuses_to_make_a_network_in_another_project" {
  command = plan
  module {
    source = "./modules/network"
  }
  variables {
    owner              = "tpu-cluster"
    subnet_ip_range    = "10.129.0.0/20"
    pods_ip_range      = "192.168.64.0/20"
    services_ip_range  = "192.168.80.0/20"
    nodes              = [{ count = 3, max_pods_per_node = 64 }]
    network_project_id = "host-project"
  }
  expect_failures = [google_compute_network.this]
}

run "refuses_to_make_a_nat_in_another_project" {
  command = plan
  module {
    source = "./modules/network"
  }
  override_data {
    target = data.google_compute_subnetwork.existing
    values = {
      id                       = "x"
      network                  = "https://www.googleapis.com/compute/v1/projects/host-project/global/networks/tpu-network"
      ip_cidr_range            = "10.0.0.0/24"
      private_ip_google_access = true
      secondary_ip_range       = [{ range_name = "for-pods", ip_cidr_range = "10.4.0.0/20", reserved_internal_range = "" }, { range_name = "for-services", ip_cidr_range = "10.8.0.0/24", reserved_internal_range = "" }]
    }
  }
  variables {
    owner               = "tpu-cluster"
    subnet_ip_range     = "10.129.0.0/20"
    pods_ip_range       = "192.168.64.0/20"
    services_ip_range   = "192.168.80.0/20"
    nodes               = [{ count = 3, max_pods_per_node = 64 }]
    create_network      = false
    create_subnet       = false
    pods_range_name     = "for-pods"
    services_range_name = "for-services"
    network_project_id  = "host-project"
    create_nat          = true
  }
  expect_failures = [google_compute_router.this]
}

run "refuses_names_of_ranges_for_a_subnet_to_be_made" {
  command = plan
  module {
    source = "./modules/network"
  }
  variables {
    owner             = "tpu-cluster"
    subnet_ip_range   = "10.129.0.0/20"
    pods_ip_range     = "192.168.64.0/20"
    services_ip_range = "192.168.80.0/20"
    nodes             = [{ count = 3, max_pods_per_node = 64 }]
    pods_range_name   = "for-pods"
  }
  expect_failures = [google_compute_subnetwork.this]
}

run "refuses_to_empty_a_bucket_that_exists" {
  command = plan
  module {
    source = "./modules/artifact_bucket"
  }
  variables {
    create        = false
    name          = "tpu-artifacts"
    location      = "us-central2"
    force_destroy = true
    labels        = {}
    grants        = {}
  }
  expect_failures = [data.google_storage_bucket.existing]
}

run "refuses_a_repository_that_is_not_for_images" {
  command = plan
  module {
    source = "./modules/artifact_registry"
  }
  override_data {
    target = data.google_artifact_registry_repository.existing
    values = { format = "PYTHON" }
  }
  variables {
    create   = false
    name     = "wheels"
    location = "us"
    labels   = {}
    reader   = "serviceAccount:gke-sa@tpu-project.iam.gserviceaccount.com"
  }
  expect_failures = [data.google_artifact_registry_repository.existing]
}

run "warns_of_a_bucket_in_another_region" {
  command = plan
  module {
    source = "./modules/artifact_bucket"
  }
  override_data {
    target = data.google_storage_bucket.existing
    values = { location = "EUROPE-WEST4" }
  }
  variables {
    create        = false
    name          = "tpu-artifacts"
    location      = "us-central2"
    force_destroy = false
    labels        = {}
    grants        = {}
  }
  expect_failures = [check.bucket_is_near]
}
