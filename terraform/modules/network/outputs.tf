output "network" {
  description = "The network's id"
  value       = local.network
}

output "subnet" {
  description = "The subnet's id"
  value       = local.subnet

  precondition {
    condition     = var.create_subnet || local.nodes_needed <= local.existing_nodes
    error_message = "Subnet ${var.subnet_name} holds ${local.existing_nodes} nodes, and ${local.nodes_needed} are asked for. Widen it, or ask for fewer."
  }
}

output "pods_range_name" {
  description = "Name of the secondary range of the pods"
  value       = var.create_subnet ? google_compute_subnetwork.this[0].secondary_ip_range[0].range_name : var.pods_range_name

  precondition {
    condition     = var.create_subnet || can(local.existing_ranges[var.pods_range_name])
    error_message = "Subnet ${var.subnet_name} has no secondary range ${coalesce(var.pods_range_name, "for pods")}. It has: ${join(", ", keys(local.existing_ranges))}."
  }
  precondition {
    condition     = var.create_subnet || try(local.pods_needed <= sum([for name in local.existing_pods : local.existing_held[name]]), true)
    error_message = "Range ${join(" and ", local.existing_pods)} holds ${try(sum([for name in local.existing_pods : local.existing_held[name]]), 0)} addresses, and the nodes asked for take ${local.pods_needed} of them. Take a /${local.pods_prefix} or wider one, name more in additional_pods_range_names, or lower tpu_max_pods_per_node."
  }
}

output "additional_pod_ranges" {
  description = "Names of the further secondary ranges of the pods"
  value = var.create_subnet ? [
    for index, range in var.additional_pods_ip_ranges : google_compute_subnetwork.this[0].secondary_ip_range[2 + index].range_name
  ] : var.additional_pods_range_names

  precondition {
    condition     = var.create_subnet || alltrue([for name in var.additional_pods_range_names : can(local.existing_ranges[name])])
    error_message = "Subnet ${var.subnet_name} lacks a range of additional_pods_range_names. It has: ${join(", ", keys(local.existing_ranges))}."
  }
}

output "services_range_name" {
  description = "Name of the secondary range of the services"
  value       = var.create_subnet ? google_compute_subnetwork.this[0].secondary_ip_range[1].range_name : var.services_range_name

  precondition {
    condition     = var.create_subnet || can(local.existing_ranges[var.services_range_name])
    error_message = "Subnet ${var.subnet_name} has no secondary range ${coalesce(var.services_range_name, "for services")}. It has: ${join(", ", keys(local.existing_ranges))}."
  }
  precondition {
    condition     = var.create_subnet || var.pods_range_name != var.services_range_name
    error_message = "Pods and services need a range each. Write another services_range_name."
  }
}
