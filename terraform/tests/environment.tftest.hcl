# The whole environment, as the guide's command lines ask for it, and what is refused.

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
  project_id                      = "tpu-project"
  region                          = "us-central2"
  zone                            = "us-central2-b"
  network_name                    = "tpu-network"
  subnet_name                     = "tpu-subnet"
  cluster_name                    = "tpu-cluster"
  artifact_repository_bucket_name = "tpu-artifacts"
}

run "defaults_of_the_guide" {
  assert {
    condition     = keys(output.tpu_pools) == ["tpu-node-pool-0"] && output.tpu_pools["tpu-node-pool-0"].tpu_type == "v4-16" && output.num_of_chips == 8
    error_message = "the guide's default is one pool of 2 hosts"
  }
  assert {
    condition     = output.tpu_namespace == "tpu-training" && output.tpu_sa_name == "cloud-tpu-sa"
    error_message = "the names of the guide stay"
  }
  assert {
    condition     = output.image_repository == "us-central1-docker.pkg.dev/tpu-project/tpu-cluster" && output.tensorboard != null && output.firestore_database == null && output.queue_dashboard == null
    error_message = "us-central2 has no such services, and the job queue's database is only made when asked for"
  }
}

run "command_line_of_the_guide" {
  command = plan
  variables {
    tpu_machine_type = "ct4p-hightpu-4t"
    tpu_topology     = "2x2x4"
    tpu_num_nodes    = 4
    num_tpu_pools    = 2
    force_destroy    = true
  }
  assert {
    condition     = keys(output.tpu_pools) == ["tpu-node-pool-0", "tpu-node-pool-1"] && output.num_of_chips == 32
    error_message = "two slices of v4-32 have 32 chips"
  }
}

run "type_of_the_guide_with_its_number_of_chips" {
  command = plan
  variables {
    tpu_type      = "v4-32"
    num_tpu_pools = 2
    num_of_chips  = 32
  }
  assert {
    condition     = output.tpu_pools["tpu-node-pool-1"].hosts == 4 && output.tpu_pools["tpu-node-pool-1"].topology == "2x2x4"
    error_message = "v4-32 is 4 hosts wired as 2x2x4"
  }
}

run "no_pools" {
  command = plan
  variables {
    num_tpu_pools = 0
  }
  assert {
    condition     = length(output.tpu_pools) == 0 && output.num_of_chips == 0 && output.cluster_name == "tpu-cluster"
    error_message = "everything but the pools stays"
  }
}

run "named_pools_of_several_types" {
  command = plan
  variables {
    tpu_type         = "v4-32"
    capacity         = "reservation"
    reservation_name = "ours"
    tpu_pools = {
      tpu-node-pool-1 = {}
      small           = { tpu_type = "v4-8", capacity = "spot" }
      odd             = { tpu_topology = "4x4x12" }
      theirs          = { reservation_name = "theirs" }
    }
  }
  assert {
    condition = { for name, pool in output.tpu_pools : name => "${pool.tpu_type} ${pool.capacity} ${coalesce(pool.reservation_name, "-")}" } == {
      tpu-node-pool-1 = "v4-32 reservation ours"
      small           = "v4-8 spot -"
      odd             = "v4-384 reservation ours"
      theirs          = "v4-32 reservation theirs"
    }
    error_message = "what a pool leaves out is as the other variables say"
  }
}

run "everything_optional" {
  command = plan
  variables {
    region             = "us-east5"
    zone               = "us-east5-a"
    tpu_type           = "v6e-16"
    firestore_database = "tpu-jobs"
    enable_tensorboard = false

    queue_monitoring_team       = "research"
    queue_notification_channels = ["projects/tpu-project/notificationChannels/1"]
    queue_alert_limits          = { chips = 16 }

    release_channel = "UNSPECIFIED"
    gke_version     = "1.34.1-gke.3084001"
    capacity        = "flex-start"
    services_region = "us-east1"
  }
  assert {
    condition     = output.firestore_database == "tpu-jobs" && output.tensorboard == null
    error_message = "the database is made when asked for, TensorBoard is not when not"
  }
  assert {
    condition     = length(module.queue_monitoring) == 1
    error_message = "so are the dashboard and alerts of the queue"
  }
  assert {
    condition     = output.image_repository == "us-east1-docker.pkg.dev/tpu-project/tpu-cluster"
    error_message = "services go where they were told to"
  }
}

run "refuses_a_number_of_chips_that_does_not_follow" {
  command = plan
  variables {
    tpu_type      = "v4-32"
    num_tpu_pools = 2
    num_of_chips  = 64
  }
  expect_failures = [output.num_of_chips]
}

run "refuses_one_account_for_nodes_and_workloads" {
  command = plan
  variables {
    tpu_sa_name = "one-account"
    gke_sa_name = "one-account"
  }
  expect_failures = [output.tpu_sa_name]
}

run "refuses_ranges_that_begin_elsewhere" {
  command = plan
  variables {
    subnet_ip_range   = "10.129.0.1/20"
    pods_ip_range     = "192.168.65.0/20"
    services_ip_range = "192.168.81.0/20"
  }
  expect_failures = [var.subnet_ip_range, var.pods_ip_range, var.services_ip_range]
}

run "refuses_names_and_places_that_cannot_be" {
  command = plan
  variables {
    region                          = "us-central2-b"
    zone                            = "us-central2"
    network_name                    = "Network"
    subnet_name                     = "subnet_1"
    cluster_name                    = "a-name-that-is-longer-than-forty-characters"
    artifact_repository_bucket_name = "gs://tpu-artifacts"
    tpu_sa_name                     = "sa"
    gke_sa_name                     = "an-account-name-longer-than-thirty"
    tpu_namespace                   = "default"
    firestore_database              = "(default)"
    queue_monitoring_team           = "Research"
    queue_notification_channels     = ["me@example.com"]
    queue_alert_limits              = { chip = 1 }
    multislice_group_name           = "a group"
  }
  expect_failures = [
    var.region, var.zone, var.network_name, var.subnet_name, var.cluster_name, var.artifact_repository_bucket_name,
    var.tpu_sa_name, var.gke_sa_name, var.tpu_namespace, var.firestore_database, var.multislice_group_name,
    var.queue_monitoring_team, var.queue_notification_channels, var.queue_alert_limits,
  ]
}

run "refuses_values_that_cannot_be" {
  command = plan
  variables {
    subnet_ip_range            = "10.129.0.0"
    pods_ip_range              = "192.168.64.0/99"
    services_ip_range          = "nowhere"
    authorized_networks        = { everyone = "0.0.0.0/0" }
    gke_version                = "1.27.3-gke.100"
    release_channel            = "FAST"
    cpu_pool_node_count        = 0
    cpu_pool_max_pods_per_node = 8
    tpu_max_pods_per_node      = 8
    num_tpu_pools              = 1.5
    flex_start_duration        = "7d"
    tpu_sa_roles               = ["roles/owner"]
    gke_sa_roles               = ["roles/iam.serviceAccountUser"]
  }
  expect_failures = [
    var.subnet_ip_range, var.pods_ip_range, var.services_ip_range, var.authorized_networks, var.gke_version, var.release_channel,
    var.cpu_pool_node_count, var.cpu_pool_max_pods_per_node, var.tpu_max_pods_per_node, var.num_tpu_pools, var.flex_start_duration,
    var.tpu_sa_roles, var.gke_sa_roles,
  ]
}

run "keys_and_switches_of_ones_own" {
  command = plan
  variables {
    firestore_database   = "tpu-jobs"
    binary_authorization = true
    security_posture     = "ENTERPRISE"
    immutable_tags       = true
    logging_components   = ["SYSTEM_COMPONENTS"]
    kms_keys = {
      for what in ["cluster", "disks", "bucket", "images", "metrics", "jobs"] : what => "projects/p/locations/us-central2/keyRings/r/cryptoKeys/${what}"
    }
  }
}

run "keys_that_cannot_be" {
  command = plan
  variables {
    kms_keys           = { logs = "my-key" }
    security_posture   = "HIGH"
    logging_components = ["WORKLOADS"]
  }
  expect_failures = [var.kms_keys, var.security_posture, var.logging_components]
}
