# From what was asked for to a shape of the catalogue. The sentences of the refusals are read by tests/cluster/test_terraform.py.

variables {
  zone = "us-central2-b"
}

run "catalogue" {
  module {
    source = "./tests/catalogue"
  }
}

run "every_row_by_shape" {
  command = plan
  module {
    source = "./modules/tpu_shapes"
  }
  variables {
    pools = run.catalogue.by_shape
  }
  # Rows are of many zones.
  expect_failures = [check.zone]

  assert {
    condition     = length(output.shapes) == length(run.catalogue.rows) && length(output.shapes) > 200
    error_message = "a row that GKE offers was lost"
  }
  assert {
    condition = alltrue([for name, row in run.catalogue.rows : alltrue([
      for field in ["machine_type", "topology", "accelerator", "hosts", "chips", "chips_per_host", "generation", "placement"] :
      output.shapes[name][field] == row[field]
    ])])
    error_message = "a shape is not what the catalogue says"
  }
  assert {
    condition     = alltrue([for shape in output.shapes : shape.hosts * shape.chips_per_host == shape.chips])
    error_message = "hosts times chips per host is not chips"
  }
}

run "every_row_by_name" {
  command = plan
  module {
    source = "./modules/tpu_shapes"
  }
  variables {
    pools = run.catalogue.by_name
  }
  expect_failures = [check.zone]

  assert {
    condition     = length(output.shapes) > 200 && alltrue([for name, shape in output.shapes : shape.topology == run.catalogue.rows[name].topology && shape.machine_type == run.catalogue.rows[name].machine_type])
    error_message = "a name does not mean the first shape of that name"
  }
}

run "every_row_by_alias" {
  command = plan
  module {
    source = "./modules/tpu_shapes"
  }
  variables {
    pools = run.catalogue.by_alias
  }
  expect_failures = [check.zone]

  assert {
    condition     = length(output.shapes) > 0 && alltrue([for name, shape in output.shapes : shape.tpu_type == run.catalogue.rows[name].name])
    error_message = "an alias does not mean what the name means"
  }
}

run "nothing_asked_for_is_the_slice_of_the_guide" {
  command = plan
  module {
    source = "./modules/tpu_shapes"
  }
  variables {
    pools = { it = {} }
  }
  assert {
    condition     = output.shapes.it.machine_type == "ct4p-hightpu-4t" && output.shapes.it.topology == "2x2x2" && output.shapes.it.hosts == 2
    error_message = "the default is not 2 hosts of ct4p-hightpu-4t as 2x2x2"
  }
}

run "number_of_hosts_follows_from_topology" {
  command = plan
  module {
    source = "./modules/tpu_shapes"
  }
  variables {
    pools = { it = { tpu_topology = "2x2x4" } }
  }
  assert {
    condition     = output.shapes.it.hosts == 4 && output.shapes.it.tpu_type == "v4-32"
    error_message = "2x2x4 is not v4-32 on 4 hosts"
  }
}

run "name_of_two_shapes_is_one_host" {
  command = plan
  module {
    source = "./modules/tpu_shapes"
  }
  variables {
    pools = {
      named = { tpu_type = "v5litepod-8" }
      spelt = { tpu_machine_type = "ct5lp-hightpu-4t", tpu_topology = "2x4", tpu_num_nodes = 2 }
    }
    zone = "us-west4-a"
  }
  assert {
    condition     = output.shapes.named.hosts == 1 && output.shapes.spelt.hosts == 2
    error_message = "v5litepod-8 is one host of 8 chips, its other shape must still be had"
  }
}

run "type_beside_a_shape_that_agrees" {
  command = plan
  module {
    source = "./modules/tpu_shapes"
  }
  variables {
    pools = { it = { tpu_type = "v4-32", tpu_machine_type = "ct4p-hightpu-4t", tpu_topology = "2x2x4", tpu_num_nodes = 4 } }
  }
  assert {
    condition     = output.shapes.it.tpu_type == "v4-32"
    error_message = "saying the same twice is no contradiction"
  }
}

run "zone_unknown_for_the_type_warns" {
  command = plan
  module {
    source = "./modules/tpu_shapes"
  }
  variables {
    pools = { it = { tpu_type = "v6e-16" } }
  }
  expect_failures = [check.zone]
}

run "nodes_without_tpus_stand_in_the_zone_of_the_slices" {
  command = plan
  module {
    source = "./modules/tpu_shapes"
  }
  variables {
    pools = { it = {} }
  }

  assert {
    condition     = output.cpu_zone == "us-central2-b"
    error_message = "the zone of the slices has CPU machines"
  }
}

run "nodes_without_tpus_stand_in_the_parent_of_an_ai_zone" {
  command = plan
  module {
    source = "./modules/tpu_shapes"
  }
  variables {
    zone  = "us-south1-ai1b"
    pools = { it = { tpu_type = "v6e-8" } }
  }

  assert {
    condition     = output.cpu_zone == "us-south1-b"
    error_message = "an AI zone has few machines without accelerators"
  }
}

run "nodes_without_tpus_stand_where_they_are_put" {
  command = plan
  module {
    source = "./modules/tpu_shapes"
  }
  variables {
    zone     = "us-central1-ai1a"
    cpu_zone = "us-central1-f"
    pools    = { it = { tpu_type = "v6e-8" } }
  }

  assert {
    condition     = output.cpu_zone == "us-central1-f"
    error_message = "another zone was asked for"
  }
}

run "cpu_machines_that_the_zone_does_not_have_are_refused" {
  command = plan
  module {
    source = "./modules/tpu_shapes"
  }
  variables {
    zone             = "us-east5-a"
    cpu_machine_type = "n1-standard-4"
    pools            = { it = { tpu_type = "v5p-8" } }
  }
  expect_failures = [output.cpu_zone]
}

run "cpu_machines_of_a_family_that_nobody_lists_are_taken" {
  command = plan
  module {
    source = "./modules/tpu_shapes"
  }
  variables {
    cpu_machine_type = "m3-ultramem-32"
    pools            = { it = {} }
  }

  assert {
    condition     = output.cpu_zone == "us-central2-b"
    error_message = "nothing is known of the family"
  }
}

run "cpu_zone_of_another_region_is_refused" {
  command = plan
  module {
    source = "./modules/tpu_shapes"
  }
  variables {
    cpu_zone = "us-central1-a"
    pools    = { it = {} }
  }
  expect_failures = [output.cpu_zone]
}
