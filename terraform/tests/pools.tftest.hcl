# Node pools of every shape and capacity.

mock_provider "google" {}

variables {
  project_id            = "tpu-project"
  region                = "us-central2"
  zone                  = "us-central2-b"
  cluster               = "projects/tpu-project/locations/us-central2/clusters/tpu-cluster"
  autoscaling           = false
  max_run_duration      = "604800s"
  max_pods_per_node     = 16
  disk_size             = 100
  auto_upgrade          = true
  multislice_group_name = "multi-slice-group"
  node_service_account  = "gke-sa@tpu-project.iam.gserviceaccount.com"
  labels                = { tpu-cluster = "tpu-cluster" }
}

run "catalogue" {
  module {
    source = "./tests/catalogue"
  }
}

run "shapes" {
  command = plan
  module {
    source = "./modules/tpu_shapes"
  }
  variables {
    pools = run.catalogue.by_shape
  }
  expect_failures = [check.zone]
}

run "every_row_of_the_catalogue" {
  command = plan
  module {
    source = "./modules/tpu_pools"
  }
  variables {
    pools = run.shapes.shapes
  }

  assert {
    condition     = length(google_container_node_pool.this) > 200
    error_message = "a row has no pool"
  }
  assert {
    condition     = alltrue([for name, pool in google_container_node_pool.this : pool.initial_node_count == run.catalogue.rows[name].hosts])
    error_message = "a pool has another number of hosts than its slice"
  }
  assert {
    condition     = alltrue([for name, pool in google_container_node_pool.this : pool.node_config[0].machine_type == run.catalogue.rows[name].machine_type])
    error_message = "a pool has another machine type than its slice"
  }
  assert {
    condition     = alltrue([for name, pool in google_container_node_pool.this : length(pool.placement_policy) == 0 if run.catalogue.rows[name].hosts == 1])
    error_message = "GKE refuses a topology on slices of one host"
  }
  assert {
    condition = alltrue([for name, pool in google_container_node_pool.this :
      pool.placement_policy[0].type == "COMPACT" && pool.placement_policy[0].tpu_topology == run.catalogue.rows[name].topology
      if run.catalogue.rows[name].placement == "compact"
    ])
    error_message = "slices of several hosts are wired by their topology"
  }
  assert {
    condition = alltrue([for name, pool in google_container_node_pool.this :
      pool.placement_policy[0].type == "" && pool.placement_policy[0].tpu_topology == null &&
      pool.placement_policy[0].policy_name == google_compute_resource_policy.workload[name].name &&
      google_compute_resource_policy.workload[name].workload_policy[0].accelerator_topology == run.catalogue.rows[name].topology
      if run.catalogue.rows[name].placement == "policy"
    ])
    error_message = "tpu7x slices of several hosts take a workload policy and nothing else"
  }
  assert {
    condition     = alltrue([for pool in google_container_node_pool.this : length(pool.autoscaling) == 0])
    error_message = "nobody asked for autoscaling"
  }
  assert {
    condition = alltrue([for pool in google_container_node_pool.this :
      pool.node_config[0].workload_metadata_config[0].mode == "GKE_METADATA" &&
      pool.node_config[0].service_account == var.node_service_account &&
      pool.node_config[0].shielded_instance_config[0].enable_secure_boot &&
      pool.node_config[0].labels.MultisliceGroup == "multi-slice-group" &&
      pool.max_pods_per_node == 16
    ])
    error_message = "every pool runs as the nodes' account, hides it from pods, and takes few addresses"
  }
  assert {
    condition = alltrue([for name, pool in google_container_node_pool.this :
      pool.node_config[0].disk_type == (contains(["v6e", "tpu7x"], run.catalogue.rows[name].generation) ? "hyperdisk-balanced" : "pd-balanced")
    ])
    error_message = "v6e and newer boot from Hyperdisk only"
  }
}

run "autoscaling_goes_up_to_the_hosts_of_the_slice" {
  command = plan
  module {
    source = "./modules/tpu_pools"
  }
  variables {
    pools       = { for name, shape in run.shapes.shapes : name => shape if contains(["v4", "v5e", "v6e"], shape.generation) }
    autoscaling = true
  }
  assert {
    condition = alltrue([for name, pool in google_container_node_pool.this :
      pool.autoscaling[0].min_node_count == 0 && pool.autoscaling[0].max_node_count == run.catalogue.rows[name].hosts
    ])
    error_message = "a slice comes as a whole"
  }
}

run "every_capacity" {
  command = plan
  module {
    source = "./modules/tpu_pools"
  }
  variables {
    pools = {
      on-demand   = { generation = "v5e", machine_type = "ct5lp-hightpu-4t", topology = "4x4", hosts = 4, placement = "compact", capacity = "on-demand" }
      spot        = { generation = "v5e", machine_type = "ct5lp-hightpu-4t", topology = "4x4", hosts = 4, placement = "compact", capacity = "spot" }
      flex-start  = { generation = "v5e", machine_type = "ct5lp-hightpu-4t", topology = "4x4", hosts = 4, placement = "compact", capacity = "flex-start" }
      reservation = { generation = "v5e", machine_type = "ct5lp-hightpu-4t", topology = "4x4", hosts = 4, placement = "compact", capacity = "reservation", reservation_name = "ours" }
    }
  }
  assert {
    condition     = [for name, pool in google_container_node_pool.this : name if pool.node_config[0].spot] == ["spot"]
    error_message = "spot is for spot alone"
  }
  assert {
    condition = (
      [for name, pool in google_container_node_pool.this : name if pool.node_config[0].flex_start] == ["flex-start"] &&
      google_container_node_pool.this["flex-start"].initial_node_count == 0 &&
      google_container_node_pool.this["flex-start"].autoscaling[0].max_node_count == 4 &&
      google_container_node_pool.this["flex-start"].autoscaling[0].total_max_node_count == null &&
      google_container_node_pool.this["flex-start"].management[0].auto_repair == false &&
      google_container_node_pool.this["flex-start"].node_config[0].max_run_duration == "604800s" &&
      google_container_node_pool.this["flex-start"].node_config[0].reservation_affinity[0].consume_reservation_type == "NO_RESERVATION"
    )
    error_message = "flex-start wants autoscaling from nothing, no repair and no reservation"
  }
  assert {
    condition = (
      google_container_node_pool.this["reservation"].node_config[0].reservation_affinity[0].consume_reservation_type == "SPECIFIC_RESERVATION" &&
      one(google_container_node_pool.this["reservation"].node_config[0].reservation_affinity[0].values) == "ours"
    )
    error_message = "the reservation is named"
  }
  assert {
    condition = (
      [for name, pool in google_container_node_pool.this : name if pool.initial_node_count == 4] == ["on-demand", "reservation", "spot"] &&
      [for name, pool in google_container_node_pool.this : name if pool.management[0].auto_repair] == ["on-demand", "reservation", "spot"]
    )
    error_message = "what is not flex-start is there from the start and repaired"
  }
}

run "workload_policy_of_ones_own" {
  command = plan
  module {
    source = "./modules/tpu_pools"
  }
  variables {
    pools = { it = {
      generation = "tpu7x", machine_type = "tpu7x-standard-4t", topology = "4x4x4", hosts = 16, placement = "policy", capacity = "on-demand", workload_policy = "ours"
    } }
  }
  assert {
    condition     = google_container_node_pool.this["it"].placement_policy[0].policy_name == "ours" && length(google_compute_resource_policy.workload) == 0
    error_message = "a policy that is there already is taken, and no other one made"
  }
}
