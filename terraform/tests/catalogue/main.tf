# Every shape that GKE offers, asked for in both ways: by name, and by machine type, topology and number of hosts.

terraform {
  required_version = ">= 1.5.7"
}

locals {
  rows = { for index, slice in jsondecode(file("${path.module}/../../modules/tpu_shapes/tpus.json")).slices :
    "row-${index}" => slice if slice.placement != null
  }
  # Of two shapes with one name, the name means the first.
  first = { for name, row in local.rows : row.name => name... }
}

output "rows" {
  description = "The rows of the catalogue"
  value       = local.rows
}

output "by_name" {
  description = "Rows that have a name of their own, as pools"
  value       = { for name, row in local.rows : name => { tpu_type = row.name } if local.first[row.name][0] == name }
}

output "by_alias" {
  description = "Other names of those rows, as pools"
  value = { for name, row in local.rows : name => { tpu_type = row.aliases[0] }
  if local.first[row.name][0] == name && length(row.aliases) > 0 }
}

output "by_shape" {
  description = "All rows spelt out, as pools"
  value = { for name, row in local.rows : name => {
    tpu_machine_type = row.machine_type
    tpu_topology     = row.hosts == 1 ? null : row.topology
    tpu_num_nodes    = row.hosts
  } }
}
