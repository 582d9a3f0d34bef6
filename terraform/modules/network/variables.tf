variable "project_id" {
  description = "Project of the network"
  type        = string
}

variable "region" {
  description = "Region of the subnet, its router and its NAT"
  type        = string
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
}

variable "pods_ip_range" {
  description = "Addresses of the pods; GKE cuts a block out of it for every node"
  type        = string
}

variable "services_ip_range" {
  description = "Addresses of the Kubernetes services"
  type        = string
}

variable "nodes" {
  description = "The nodes that will live here, so that ranges too small for them are refused while planning"
  type = list(object({
    count             = number
    max_pods_per_node = number
  }))
}
