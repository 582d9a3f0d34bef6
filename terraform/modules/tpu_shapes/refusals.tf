# What does not fit together, each with what to write in its place.

locals {
  # What the sentences offer in place of something wrong.
  topologies = { for name, pool in local.asked : name => lookup(local.topologies_of, pool.machine, []) }
  same_hosts = { for name, pool in local.asked : name => lookup(local.topologies_on, "${pool.machine} ${coalesce(pool.nodes, 0)}", []) }
  same_prefix = { for name, pool in local.asked : name => local.slice[name] != null || pool.type == null ? [] : [
    for type in local.names : type if startswith(type, "${split("-", pool.type)[0]}-")
  ] }

  # Pools of several types share the variable, so one that takes the policy is enough.
  policy_taken = anytrue([for slice in local.slice : try(slice.placement == "policy", false)])
  minor        = var.gke_version == null ? null : try(tonumber(split(".", var.gke_version)[1]), null)

  # One rule after another for every pool: an empty text where there is nothing to say, or what is wrong and what to write.
  problems = flatten([for name, pool in local.asked : [for problem in [
    can(regex("^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$", name)) ? "" :
    "the name of a pool has at most 40 small letters, digits and hyphens. Write a shorter tpu_node_pool_name_prefix, or another name in tpu_pools",

    pool.type == null || local.slice[name] != null ? "" :
    contains(local.vm_only, pool.type) ? "tpu_type ${pool.type} exists as TPU VMs only, GKE has no node pools of it. Write a type of v3 or newer" :
    length(local.same_prefix[name]) == 0 ? "there is no tpu_type ${pool.type}. Write one like v4-32, v5litepod-16, v5p-128, v6e-256 or tpu7x-128" :
    "there is no tpu_type ${pool.type}. Write one of ${join(", ", slice(local.same_prefix[name], 0, min(12, length(local.same_prefix[name]))))}",

    pool.type == null || local.slice[name] == null ? "" :
    coalesce(pool.tpu_machine_type, local.slice[name].machine_type) == local.slice[name].machine_type &&
    coalesce(pool.topology, local.slice[name].topology) == local.slice[name].topology &&
    coalesce(pool.nodes, local.slice[name].hosts) == local.slice[name].hosts ? "" :
    "tpu_type ${pool.type} is ${local.slice[name].machine_type} with topology ${local.slice[name].topology} on ${local.slice[name].hosts} hosts. Leave tpu_machine_type, tpu_topology and tpu_num_nodes out, they follow from tpu_type",

    pool.type != null || contains(local.machine_types, pool.machine) ? "" :
    "there is no TPU machine type ${pool.machine}. Write one of ${join(", ", local.machine_types)}, or only tpu_type",

    pool.type != null || pool.nothing || pool.topology != null || !contains(local.machine_types, pool.machine) ? "" :
    pool.nodes == 1 ? (local.slice[name] != null ? "" : "${pool.machine} has no slice of one host. Write tpu_topology as well, or only tpu_type") :
    length(local.same_hosts[name]) == 0 ? "${pool.machine} alone is no slice. Write tpu_topology and tpu_num_nodes as well, or only tpu_type" :
    "${pool.nodes} hosts of ${pool.machine} can be wired as ${join(" or ", local.same_hosts[name])}. Write tpu_topology as well, or only tpu_type",

    pool.type != null || pool.topology == null || local.slice[name] != null || !contains(local.machine_types, pool.machine) ? "" :
    length(local.topologies[name]) == 0 ? "${pool.machine} makes slices of one host only. Leave tpu_topology out and write tpu_num_nodes = 1" :
    "${pool.machine} has no topology ${pool.topology}. Write one of ${join(", ", slice(local.topologies[name], 0, min(12, length(local.topologies[name]))))}",

    pool.type != null || pool.topology == null || local.slice[name] == null ? "" :
    local.slice[name].hosts == 1 ? "a slice of one host takes no topology on GKE. Leave tpu_topology out and write tpu_num_nodes = 1, or write only tpu_type = \"${local.slice[name].name}\"" :
    coalesce(pool.nodes, local.slice[name].hosts) == local.slice[name].hosts ? "" :
    "topology ${pool.topology} of ${pool.machine} has ${local.slice[name].hosts} hosts. Write tpu_num_nodes = ${local.slice[name].hosts}${length(local.same_hosts[name]) == 0 ? "" : ", or tpu_topology = \"${local.same_hosts[name][0]}\" for ${pool.nodes}"}",

    contains(["on-demand", "spot", "reservation", "flex-start"], pool.capacity) ? "" :
    "there is no capacity ${pool.capacity}. Write on-demand, spot, reservation or flex-start",

    pool.capacity == "reservation" && pool.reservation_name == null ?
    "capacity is reservation, and no reservation is named. Write reservation_name" : "",

    pool.capacity != "reservation" && pool.reservation_name != null ?
    "reservation_name is ${pool.reservation_name}, and capacity is ${pool.capacity}. Write capacity = \"reservation\", or leave reservation_name out" : "",

    pool.capacity == "flex-start" && contains(["v3", "v4"], try(local.slice[name].generation, "")) ?
    "flex-start is not offered for ${local.slice[name].generation}. Write capacity as on-demand, spot or reservation, or a newer tpu_type" : "",

    pool.capacity == "flex-start" && try(local.minor < 33, false) ?
    "flex-start needs GKE 1.33 or newer, and gke_version is ${var.gke_version}. Leave gke_version out" : "",

    try(local.slice[name].placement, "") == "policy" && pool.workload_policy == "" ?
    "${local.slice[name].name} has ${local.slice[name].hosts} hosts, which need a workload policy. Leave tpu_workload_policy out to have one made, or write the name of yours" : "",

    pool.workload_policy != null && pool.workload_policy != "" && !local.policy_taken && local.slice[name] != null ?
    "${local.slice[name].name} takes no workload policy. Leave tpu_workload_policy out" : "",

    try(local.minor < local.first_minor[local.slice[name].generation], false) ?
    "${local.slice[name].generation} needs GKE 1.${local.first_minor[local.slice[name].generation]} or newer, and gke_version is ${var.gke_version}. Leave gke_version out" : "",
  ] : "Pool ${name}: ${problem}." if problem != ""]])

  # Zones are a hint: the catalogue knows of these, Google may have added others.
  elsewhere = [for name, slice in local.slice : "Pool ${name}: ${slice.name} is not known to be offered in ${var.zone}, but in ${replace(slice.zones, " ", ", ")}."
  if try(slice.zones != "" && !contains(split(" ", slice.zones), var.zone), false)]
}

check "zone" {
  assert {
    condition     = length(local.elsewhere) == 0
    error_message = join("\n", local.elsewhere)
  }
}
