locals {
  project = coalesce(var.network_project_id, var.project_id)
  shared  = local.project != var.project_id
  # In a network that was there before, what we add is named after its owner: others may add theirs.
  prefix = var.create_network ? var.network_name : var.owner

  network   = one(concat(google_compute_network.this[*].id, data.google_compute_network.existing[*].id))
  subnet    = one(concat(google_compute_subnetwork.this[*].id, data.google_compute_subnetwork.existing[*].id))
  node_cidr = one(concat(google_compute_subnetwork.this[*].ip_cidr_range, data.google_compute_subnetwork.existing[*].ip_cidr_range))

  create_nat = var.create_nat == null ? var.create_network : var.create_nat

  # GKE gives every node twice its pods in addresses, rounded up to a power of two.
  # https://cloud.google.com/kubernetes-engine/docs/how-to/flexible-pod-cidr
  pod_blocks = [for pool in var.nodes : {
    nodes = pool.count
    size = (
      pool.max_pods_per_node <= 8 ? 16 :
      pool.max_pods_per_node <= 16 ? 32 :
      pool.max_pods_per_node <= 32 ? 64 :
      pool.max_pods_per_node <= 64 ? 128 :
      pool.max_pods_per_node <= 128 ? 256 : 512
    )
  }]

  # One block to spare: the cluster is born with a node that is then removed, and an upgrade adds one for a while.
  spare_pod_block = max([for block in local.pod_blocks : block.size]...)
  pods_needed     = sum([for block in local.pod_blocks : block.nodes * block.size]) + local.spare_pod_block
  nodes_needed    = sum(var.nodes[*].count) + 1

  prefixes      = { for name, range in local.ranges : name => tonumber(split("/", range)[1]) }
  pods_names    = concat(["pods_ip_range"], [for index, range in var.additional_pods_ip_ranges : "additional_pods_ip_ranges[${index}]"])
  pods_held     = sum([for name in local.pods_names : pow(2, 32 - local.prefixes[name])])
  nodes_held    = pow(2, 32 - local.prefixes.subnet_ip_range) - 4 # Google keeps four addresses of every subnet
  pods_prefix   = max([for prefix in range(1, 29) : prefix if pow(2, 32 - prefix) >= local.pods_needed]...)
  subnet_prefix = max([for prefix in range(1, 29) : prefix if pow(2, 32 - prefix) - 4 >= local.nodes_needed]...)

  ranges = merge({
    subnet_ip_range   = var.subnet_ip_range
    pods_ip_range     = var.pods_ip_range
    services_ip_range = var.services_ip_range
  }, { for index, range in var.additional_pods_ip_ranges : "additional_pods_ip_ranges[${index}]" => range })

  # Of a subnet that was there before: the addresses of its ranges by name.
  existing_ranges = try({ for range in data.google_compute_subnetwork.existing[0].secondary_ip_range : range.range_name => range.ip_cidr_range }, {})
  existing_held   = { for name, range in local.existing_ranges : name => pow(2, 32 - tonumber(split("/", range)[1])) }
  existing_pods   = concat([coalesce(var.pods_range_name, "of pods")], var.additional_pods_range_names)
  existing_nodes  = try(pow(2, 32 - tonumber(split("/", data.google_compute_subnetwork.existing[0].ip_cidr_range)[1])) - 4, 0)

  range_names = concat(["subnet_ip_range", "pods_ip_range", "services_ip_range"], slice(local.pods_names, 1, length(local.pods_names)))
  range_pairs = [for pair in setproduct(range(length(local.range_names)), range(length(local.range_names))) :
    [local.range_names[pair[0]], local.range_names[pair[1]]] if pair[0] < pair[1]
  ]
  # Two ranges overlap when they are the same seen with the wider one's prefix.
  overlaps = [
    for pair in local.range_pairs : join(" and ", pair) if length(toset([
      for name in pair : cidrsubnet("${cidrhost(local.ranges[name], 0)}/${min([for one in pair : local.prefixes[one]]...)}", 0, 0)
    ])) == 1
  ]
}

# What was there before is read and never changed.
data "google_compute_network" "existing" {
  count = var.create_network ? 0 : 1

  project = local.project
  name    = var.network_name
}

data "google_compute_subnetwork" "existing" {
  count = var.create_subnet ? 0 : 1

  project = local.project
  region  = var.region
  name    = var.subnet_name

  lifecycle {
    precondition {
      condition     = !var.create_network
      error_message = "A subnet that exists lies in a network that exists. Write create_network = false beside create_subnet = false."
    }
    precondition {
      condition     = var.pods_range_name != null && var.services_range_name != null
      error_message = "With create_subnet = false, write pods_range_name and services_range_name: the secondary ranges of subnet ${var.subnet_name} that the cluster takes."
    }
    postcondition {
      condition     = endswith(self.network, "/projects/${local.project}/global/networks/${var.network_name}")
      error_message = "Subnet ${var.subnet_name} of ${var.region} lies in ${self.network}, not in ${var.network_name}."
    }
    postcondition {
      condition     = self.private_ip_google_access
      error_message = "Nodes without public addresses reach Google through the subnet: gcloud compute networks subnets update ${var.subnet_name} --project=${local.project} --region=${var.region} --enable-private-ip-google-access"
    }
  }
}

resource "google_compute_network" "this" {
  # checkov:skip=CKV2_GCP_18:this module makes a firewall rule in it; checkov does not connect resources that are counted
  count = var.create_network ? 1 : 0

  project                 = var.project_id
  name                    = var.network_name
  auto_create_subnetworks = false
  routing_mode            = "REGIONAL"
  # Slices talk to each other over this network: large frames are what Google advises for multislice.
  mtu = 8896

  lifecycle {
    precondition {
      condition     = !local.shared
      error_message = "A network of another project (network_project_id = ${local.project}) is not made here. Write create_network = false and create_subnet = false."
    }
  }
}

resource "google_compute_subnetwork" "this" {
  count = var.create_subnet ? 1 : 0

  project                  = var.project_id
  region                   = var.region
  name                     = var.subnet_name
  network                  = local.network
  ip_cidr_range            = var.subnet_ip_range
  private_ip_google_access = true

  secondary_ip_range {
    range_name    = "${var.subnet_name}-pods"
    ip_cidr_range = var.pods_ip_range
  }

  secondary_ip_range {
    range_name    = "${var.subnet_name}-services"
    ip_cidr_range = var.services_ip_range
  }

  # A range in use cannot be changed, so a cluster that exists grows by more of them.
  dynamic "secondary_ip_range" {
    for_each = var.additional_pods_ip_ranges
    content {
      range_name    = "${var.subnet_name}-pods-${secondary_ip_range.key + 1}"
      ip_cidr_range = secondary_ip_range.value
    }
  }

  log_config {
    aggregation_interval = "INTERVAL_10_MIN"
    flow_sampling        = 0.1
    metadata             = "INCLUDE_ALL_METADATA"
  }

  lifecycle {
    precondition {
      condition     = !local.shared
      error_message = "A subnet of another project (network_project_id = ${local.project}) is not made here. Write create_network = false and create_subnet = false."
    }
    precondition {
      condition     = var.pods_range_name == null && var.services_range_name == null && length(var.additional_pods_range_names) == 0
      error_message = "The ranges of a new subnet are named after it. Leave pods_range_name, services_range_name and additional_pods_range_names out, or write create_subnet = false."
    }
    precondition {
      condition     = local.pods_needed <= local.pods_held
      error_message = "${join(" and ", [for name in local.pods_names : "${name} ${local.ranges[name]}"])} ${length(local.pods_names) > 1 ? "hold" : "holds"} ${local.pods_held} addresses, and the nodes asked for take ${local.pods_needed} of them. Write a /${local.pods_prefix} or wider one, or lower tpu_max_pods_per_node. A cluster that exists takes more of them: additional_pods_ip_ranges."
    }
    precondition {
      condition     = local.nodes_needed <= local.nodes_held
      error_message = "subnet_ip_range ${var.subnet_ip_range} holds ${local.nodes_held} nodes, and ${local.nodes_needed} are asked for. Write a /${local.subnet_prefix} or wider one."
    }
    precondition {
      condition     = length(local.overlaps) == 0
      error_message = "These ranges share addresses: ${join(", ", local.overlaps)}. Give each a range of its own."
    }
  }
}

# Nodes have no public address; what they pull from outside Google goes through here.
resource "google_compute_router" "this" {
  count = local.create_nat ? 1 : 0

  project = var.project_id
  region  = var.region
  name    = "${local.prefix}-router"
  network = local.network

  lifecycle {
    precondition {
      condition     = !local.shared
      error_message = "The NAT of a network of another project belongs to that project. Leave create_nat out."
    }
  }
}

resource "google_compute_router_nat" "this" {
  count = local.create_nat ? 1 : 0

  project                            = var.project_id
  region                             = var.region
  name                               = "${local.prefix}-nat"
  router                             = google_compute_router.this[0].name
  nat_ip_allocate_option             = "AUTO_ONLY"
  source_subnetwork_ip_ranges_to_nat = "LIST_OF_SUBNETWORKS"

  subnetwork {
    name                    = local.subnet
    source_ip_ranges_to_nat = ["ALL_IP_RANGES"]
  }

  log_config {
    enable = true
    filter = "ERRORS_ONLY"
  }
}

# The control plane calls the webhooks of JobSet and Kueue on this port; it reaches the nodes from within the subnet.
# In a network of another project, its owners have to let it in.
resource "google_compute_firewall" "webhooks" {
  count = local.shared ? 0 : 1

  project       = var.project_id
  name          = "${local.prefix}-webhooks"
  network       = local.network
  direction     = "INGRESS"
  source_ranges = [local.node_cidr]

  allow {
    protocol = "tcp"
    ports    = ["9443"]
  }
}
