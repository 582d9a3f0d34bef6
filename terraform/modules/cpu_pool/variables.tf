variable "project_id" {
  description = "Project of the cluster"
  type        = string
}

variable "region" {
  description = "Region of the cluster"
  type        = string
}

variable "cluster" {
  description = "Id of the cluster"
  type        = string
}

variable "name" {
  description = "Name of the pool"
  type        = string
}

variable "zone" {
  description = "Zone of the nodes"
  type        = string
}

variable "node_count" {
  description = "Number of nodes"
  type        = number
}

variable "machine_type" {
  description = "Machine type of the nodes"
  type        = string
}

variable "disk_type" {
  description = "Type of the boot disks"
  type        = string
}

variable "disk_size" {
  description = "Size of the boot disks in GB"
  type        = number
}

variable "max_pods_per_node" {
  description = "Pods per node"
  type        = number
}

variable "auto_upgrade" {
  description = "Whether GKE upgrades the nodes; a release channel insists on it"
  type        = bool
}

variable "node_service_account" {
  description = "E-mail of the account that nodes run as"
  type        = string
}

variable "labels" {
  description = "Labels of the machines"
  type        = map(string)
}
