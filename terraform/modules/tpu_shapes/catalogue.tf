# What GKE offers, read from the copy of the catalogue that lies beside this file: the folder can be uploaded alone.

locals {
  catalogue = [for slice in jsondecode(file("${path.module}/tpus.json")).slices : {
    name           = slice.name
    names          = concat([slice.name], slice.aliases)
    generation     = slice.generation
    topology       = slice.topology
    chips          = slice.chips
    chips_per_host = slice.chips_per_host
    hosts          = slice.hosts
    machine_type   = slice.machine_type
    accelerator    = slice.accelerator
    placement      = slice.placement
    zones          = join(" ", slice.zones)
  }]
  slices = [for slice in local.catalogue : slice if slice.placement != null]

  # A name can stand for two shapes (v6e-8: one host of 8 chips, or two of 4). The first is meant; the other one has to be
  # spelt out as machine type and topology.
  by_name = { for one in flatten([
    for slice in local.slices : [for name in slice.names : { name = name, shape = "${slice.machine_type} ${slice.topology}" }]
  ]) : one.name => one.shape... }
  by_shape      = { for slice in local.slices : "${slice.machine_type} ${slice.topology}" => slice }
  single_hosts  = { for slice in local.slices : slice.machine_type => "${slice.machine_type} ${slice.topology}" if slice.hosts == 1 }
  topologies_of = { for slice in local.slices : slice.machine_type => slice.topology... if slice.hosts > 1 }
  topologies_on = { for slice in local.slices : "${slice.machine_type} ${slice.hosts}" => slice.topology... if slice.hosts > 1 }
  names         = distinct(flatten(local.slices[*].names))
  machine_types = distinct(local.slices[*].machine_type)
  vm_only       = flatten([for slice in local.catalogue : slice.names if slice.placement == null])

  # Where GKE asks for a version, the minor of it. https://cloud.google.com/kubernetes-engine/docs/concepts/tpus
  first_minor = { tpu7x = 34 }
}
