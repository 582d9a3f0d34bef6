locals {
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
  pods_held     = pow(2, 32 - local.prefixes.pods_ip_range)
  nodes_held    = pow(2, 32 - local.prefixes.subnet_ip_range) - 4 # Google keeps four addresses of every subnet
  pods_prefix   = max([for prefix in range(1, 29) : prefix if pow(2, 32 - prefix) >= local.pods_needed]...)
  subnet_prefix = max([for prefix in range(1, 29) : prefix if pow(2, 32 - prefix) - 4 >= local.nodes_needed]...)

  ranges = {
    subnet_ip_range   = var.subnet_ip_range
    pods_ip_range     = var.pods_ip_range
    services_ip_range = var.services_ip_range
  }
  range_pairs = [
    ["subnet_ip_range", "pods_ip_range"],
    ["subnet_ip_range", "services_ip_range"],
    ["pods_ip_range", "services_ip_range"],
  ]
  # Two ranges overlap when they are the same seen with the wider one's prefix.
  overlaps = [
    for pair in local.range_pairs : join(" and ", pair) if length(toset([
      for name in pair : cidrsubnet("${cidrhost(local.ranges[name], 0)}/${min([for one in pair : local.prefixes[one]]...)}", 0, 0)
    ])) == 1
  ]
}

resource "google_compute_network" "this" {
  project                 = var.project_id
  name                    = var.network_name
  auto_create_subnetworks = false
  routing_mode            = "REGIONAL"
  # Slices talk to each other over this network: large frames are what Google advises for multislice.
  mtu = 8896
}

resource "google_compute_subnetwork" "this" {
  project                  = var.project_id
  region                   = var.region
  name                     = var.subnet_name
  network                  = google_compute_network.this.id
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

  log_config {
    aggregation_interval = "INTERVAL_10_MIN"
    flow_sampling        = 0.1
    metadata             = "INCLUDE_ALL_METADATA"
  }

  lifecycle {
    precondition {
      condition     = local.pods_needed <= local.pods_held
      error_message = "pods_ip_range ${var.pods_ip_range} holds ${local.pods_held} addresses, and the nodes asked for take ${local.pods_needed} of them. Write a /${local.pods_prefix} or wider one, or lower tpu_max_pods_per_node."
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
  project = var.project_id
  region  = var.region
  name    = "${var.network_name}-router"
  network = google_compute_network.this.id
}

resource "google_compute_router_nat" "this" {
  project                            = var.project_id
  region                             = var.region
  name                               = "${var.network_name}-nat"
  router                             = google_compute_router.this.name
  nat_ip_allocate_option             = "AUTO_ONLY"
  source_subnetwork_ip_ranges_to_nat = "LIST_OF_SUBNETWORKS"

  subnetwork {
    name                    = google_compute_subnetwork.this.id
    source_ip_ranges_to_nat = ["ALL_IP_RANGES"]
  }

  log_config {
    enable = true
    filter = "ERRORS_ONLY"
  }
}

# The control plane calls the webhooks of JobSet and Kueue on this port; it reaches the nodes from within the subnet.
resource "google_compute_firewall" "webhooks" {
  project       = var.project_id
  name          = "${var.network_name}-webhooks"
  network       = google_compute_network.this.id
  direction     = "INGRESS"
  source_ranges = [var.subnet_ip_range]

  allow {
    protocol = "tcp"
    ports    = ["9443"]
  }
}
