variable "project_id" {
  description = "Project of the network"
  type        = string
}

variable "region" {
  description = "Region of the subnet, its router and its NAT"
  type        = string

  validation {
    condition     = can(regex("^[a-z]+-[a-z]+[0-9]+$", var.region))
    error_message = "That is no region. Write one like us-central2."
  }
}

variable "create_network" {
  description = "Whether the network is made here. If not, the one of this name is used, and left as it is"
  type        = bool
  default     = true
}

variable "create_subnet" {
  description = "Whether the subnet is made here. If not, the one of this name is used, and left as it is"
  type        = bool
  default     = true
}

variable "create_nat" {
  description = "Whether a router with a NAT for the subnet is made here; null makes one together with the network"
  type        = bool
  default     = null
}

variable "network_project_id" {
  description = "Project whose Shared VPC the network and the subnet are of; null for the project itself"
  type        = string
  default     = null
}

variable "owner" {
  description = "What the names begin with of what is added to a network that exists: the cluster's name"
  type        = string
  default     = null
}

variable "network_name" {
  description = "Name of the network"
  type        = string
}

variable "subnet_name" {
  description = "Name of the subnet"
  type        = string
}

variable "subnet_ip_range" {
  description = "Addresses of the nodes"
  type        = string
  default     = "10.129.0.0/20"

  validation {
    condition     = can(cidrhost(var.subnet_ip_range, 0))
    error_message = "That is no range of addresses. Write one like 10.129.0.0/20."
  }
}

variable "pods_ip_range" {
  description = "Addresses of the pods; GKE cuts a block out of it for every node"
  type        = string
  default     = "192.168.64.0/20"

  validation {
    condition     = can(cidrhost(var.pods_ip_range, 0))
    error_message = "That is no range of addresses. Write one like 10.129.0.0/20."
  }
}

variable "additional_pods_ip_ranges" {
  description = "More addresses of pods, for a cluster that outgrew pods_ip_range: new pools take the range with the most room"
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for range in var.additional_pods_ip_ranges : can(cidrhost(range, 0))])
    error_message = "That is no range of addresses. Write each like 10.64.0.0/16."
  }
}

variable "additional_pods_range_names" {
  description = "Names of further secondary ranges of the pods in a subnet that exists"
  type        = list(string)
  default     = []
}

variable "services_ip_range" {
  description = "Addresses of the Kubernetes services"
  type        = string
  default     = "192.168.80.0/20"

  validation {
    condition     = can(cidrhost(var.services_ip_range, 0))
    error_message = "That is no range of addresses. Write one like 10.129.0.0/20."
  }
}

variable "pods_range_name" {
  description = "Name of the secondary range of the pods in a subnet that exists"
  type        = string
  default     = null
}

variable "services_range_name" {
  description = "Name of the secondary range of the services in a subnet that exists"
  type        = string
  default     = null
}

variable "nodes" {
  description = "The nodes that will live here, so that ranges too small for them are refused while planning"
  type = list(object({
    count             = number
    max_pods_per_node = number
  }))
}
