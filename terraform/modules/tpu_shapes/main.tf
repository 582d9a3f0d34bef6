# From what was asked for to the one shape that is meant.

locals {
  asked = { for name, pool in var.pools : name => merge(pool, {
    nothing  = pool.tpu_type == null && pool.tpu_machine_type == null && pool.tpu_topology == null && pool.tpu_num_nodes == null
    type     = pool.tpu_type == null ? null : lower(trimspace(pool.tpu_type))
    machine  = pool.tpu_machine_type == null ? "ct4p-hightpu-4t" : pool.tpu_machine_type
    topology = pool.tpu_topology
    nodes    = pool.tpu_num_nodes
  }) }

  found = { for name, pool in local.asked : name => (
    pool.nothing ? local.by_name["v4-16"][0] :
    pool.type != null ? try(local.by_name[pool.type][0], null) :
    pool.topology == null ? (pool.nodes == 1 ? lookup(local.single_hosts, pool.machine, null) : null) :
    contains(keys(local.by_shape), "${pool.machine} ${pool.topology}") ? "${pool.machine} ${pool.topology}" : null
  ) }
  slice = { for name, shape in local.found : name => try(local.by_shape[shape], null) }
}
