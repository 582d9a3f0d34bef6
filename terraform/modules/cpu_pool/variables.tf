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
  default     = "cpu-pool"
}

variable "zone" {
  description = "Zone of the nodes"
  type        = string

  validation {
    condition     = can(regex("^[a-z]+-[a-z]+[0-9]+-[a-z0-9]+$", var.zone))
    error_message = "That is no zone. Write one like us-central2-b."
  }
}

variable "node_count" {
  description = "Number of nodes"
  type        = number
  default     = 3

  validation {
    condition     = var.node_count >= 0 && floor(var.node_count) == var.node_count
    error_message = "Write how many nodes: 0 or more."
  }
}

variable "machine_type" {
  description = "Machine type of the nodes"
  type        = string
  default     = "n2-standard-4"
}

variable "disk_type" {
  description = "Type of the boot disks; null is pd-standard, or hyperdisk-balanced for machines that boot from nothing else"
  type        = string
  default     = null
}

variable "disk_size" {
  description = "Size of the boot disks in GB"
  type        = number
  default     = 200

  validation {
    condition     = var.disk_size >= 10
    error_message = "A boot disk has 10 GB or more."
  }
}

variable "disk_kms_key" {
  description = "Key of Cloud KMS that encrypts the boot disks, as projects/P/locations/L/keyRings/R/cryptoKeys/K; Google's own if left out"
  type        = string
  default     = null
}

variable "max_pods_per_node" {
  description = "Pods per node"
  type        = number
  default     = 64

  validation {
    condition     = var.max_pods_per_node >= 8 && var.max_pods_per_node <= 256
    error_message = "GKE takes 8 to 256 pods per node."
  }
}

variable "auto_upgrade" {
  description = "Whether GKE upgrades the nodes; a release channel insists on it"
  type        = bool
  default     = true
}

variable "node_service_account" {
  description = "E-mail of the account that nodes run as"
  type        = string
}

variable "labels" {
  description = "Labels of the machines"
  type        = map(string)
  default     = {}
}

variable "network_tags" {
  description = "Network tags of the machines, for firewalls that decide by tag"
  type        = list(string)
  default     = []
}
