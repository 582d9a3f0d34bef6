# Where the nodes without TPUs stand, and whether that zone has their machines.

locals {
  cpu_families = { for zone in jsondecode(file("${path.module}/tpus.json")).zones : zone.name => coalesce(zone.cpu_families, []) }
  # Of families that no zone lists (memory, storage, GPUs) nothing is known.
  tracked_families = distinct(flatten(values(local.cpu_families)))

  # An AI zone has few machines without accelerators. Its parent is the standard zone with the same last letter.
  # https://docs.cloud.google.com/compute/docs/regions-zones/ai-zones
  standard_zone = replace(var.zone, "/-ai[0-9]+([a-z])$/", "-$1")
  cpu_zone      = coalesce(var.cpu_zone, local.standard_zone)
  cpu_family    = split("-", var.cpu_machine_type)[0]

  offered     = lookup(local.cpu_families, local.cpu_zone, [])
  cpu_missing = length(local.offered) > 0 && contains(local.tracked_families, local.cpu_family) && !contains(local.offered, local.cpu_family)
}
