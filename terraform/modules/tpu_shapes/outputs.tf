output "shapes" {
  description = "The shape of every pool, out of the catalogue"
  value = { for name, slice in local.slice : name => {
    tpu_type       = slice.name
    generation     = slice.generation
    machine_type   = slice.machine_type
    topology       = slice.topology
    accelerator    = slice.accelerator
    hosts          = slice.hosts
    chips          = slice.chips
    chips_per_host = slice.chips_per_host
    # How GKE is told to wire the hosts: none for one host, compact by the topology, policy by a workload policy.
    placement        = slice.placement
    capacity         = local.asked[name].capacity
    reservation_name = local.asked[name].reservation_name
    workload_policy  = local.asked[name].workload_policy
    # A wrong pool is refused below, but not when everything is to be destroyed: then it must not stand in the way.
  } if slice != null }

  precondition {
    condition     = length(local.problems) == 0
    error_message = join("\n", local.problems)
  }
}

output "cpu_zone" {
  description = "Zone of the nodes without TPUs: that of the slices, or the parent of an AI zone"
  value       = local.cpu_zone

  precondition {
    condition     = replace(local.cpu_zone, "/-[^-]*$/", "") == replace(var.zone, "/-[^-]*$/", "")
    error_message = "cpu_zone ${local.cpu_zone} is not in the region of ${var.zone}. Write a zone of ${replace(var.zone, "/-[^-]*$/", "")}, or leave cpu_zone out."
  }
  precondition {
    condition     = !local.cpu_missing
    error_message = "${local.cpu_zone} has no ${local.cpu_family} machines, and cpu_pool_machine_type is ${var.cpu_machine_type}. Write n2-standard-4, or another of ${join(", ", local.offered)}."
  }
}
