variable "project_id" {
  description = "Project of the cluster"
  type        = string
}

variable "region" {
  description = "Region of the control plane"
  type        = string
}

variable "zone" {
  description = "Zone of nodes whose pool names none, and of the first node; counts of nodes are per zone, so there is one"
  type        = string
}

variable "name" {
  description = "Name of the cluster"
  type        = string
}

variable "description" {
  description = "Description of the cluster"
  type        = string
}

variable "gke_version" {
  description = "Version of the control plane; null takes the default of the release channel"
  type        = string
}

variable "release_channel" {
  description = "Release channel, or UNSPECIFIED for none"
  type        = string
}

variable "deletion_protection" {
  description = "Whether Terraform must refuse to delete the cluster until this was applied as false"
  type        = bool
}

variable "network" {
  description = "Id of the network"
  type        = string
}

variable "subnet" {
  description = "Id of the subnet"
  type        = string
}

variable "pods_range_name" {
  description = "Name of the subnet's range for pods"
  type        = string
}

variable "services_range_name" {
  description = "Name of the subnet's range for services"
  type        = string
}

variable "authorized_networks" {
  description = "Networks that may reach the control plane by its address, by name; with none there is only the DNS endpoint, guarded by IAM"
  type        = map(string)
}

variable "max_pods_per_node" {
  description = "Pods per node where a pool says nothing else"
  type        = number
}

variable "first_node_machine_type" {
  description = "Machine type of the node that the cluster is born with and that is removed at once"
  type        = string
}

variable "node_service_account" {
  description = "E-mail of the account that nodes run as"
  type        = string
}

variable "labels" {
  description = "Labels of the cluster"
  type        = map(string)
}
