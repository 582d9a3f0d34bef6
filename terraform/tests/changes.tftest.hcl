# What a change does to pools that are there: an id that stays is a pool that was not touched.

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

run "four_pools" {
  module {
    source = "./modules/tpu_pools"
  }
  variables {
    pools = { for index in range(4) : "pool-${index}" => {
      generation = "v4", machine_type = "ct4p-hightpu-4t", topology = "2x2x4", hosts = 4, placement = "compact", capacity = "on-demand"
    } }
  }
}

run "pool_0_of_4_goes_and_the_rest_stays" {
  module {
    source = "./modules/tpu_pools"
  }
  variables {
    pools = { for index in [1, 2, 3] : "pool-${index}" => {
      generation = "v4", machine_type = "ct4p-hightpu-4t", topology = "2x2x4", hosts = 4, placement = "compact", capacity = "on-demand"
    } }
  }
  assert {
    condition     = output.ids == { for name, id in run.four_pools.ids : name => id if name != "pool-0" }
    error_message = "another pool than 0 was touched"
  }
}

run "another_topology_replaces_that_pool_alone" {
  module {
    source = "./modules/tpu_pools"
  }
  variables {
    pools = { for index in [1, 2, 3] : "pool-${index}" => {
      generation = "v4", machine_type = "ct4p-hightpu-4t", topology = index == 2 ? "2x4x4" : "2x2x4", hosts = index == 2 ? 8 : 4,
      placement  = "compact", capacity = "on-demand"
    } }
  }
  assert {
    condition     = output.ids["pool-2"] != run.four_pools.ids["pool-2"]
    error_message = "GKE cannot change the shape of a slice in place"
  }
  assert {
    condition     = output.ids["pool-1"] == run.four_pools.ids["pool-1"] && output.ids["pool-3"] == run.four_pools.ids["pool-3"]
    error_message = "another pool than 2 was replaced"
  }
}

run "another_label_replaces_nothing" {
  module {
    source = "./modules/tpu_pools"
  }
  variables {
    labels = { tpu-cluster = "tpu-cluster", cost = "training" }
    pools = { for index in [1, 2, 3] : "pool-${index}" => {
      generation = "v4", machine_type = "ct4p-hightpu-4t", topology = index == 2 ? "2x4x4" : "2x2x4", hosts = index == 2 ? 8 : 4,
      placement  = "compact", capacity = "on-demand"
    } }
  }
  assert {
    condition     = output.ids == run.another_topology_replaces_that_pool_alone.ids
    error_message = "a label is no shape"
  }
}

run "no_pools" {
  module {
    source = "./modules/tpu_pools"
  }
  variables {
    pools = {}
  }
  assert {
    condition     = length(output.ids) == 0
    error_message = "a pool stayed"
  }
}
