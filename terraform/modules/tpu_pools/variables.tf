variable "project_id" {
  description = "Project of the pools"
  type        = string
}

variable "region" {
  description = "Region of the cluster and the workload policies"
  type        = string
}

variable "zone" {
  description = "Zone of the pools"
  type        = string

  validation {
    condition     = can(regex("^[a-z]+-[a-z]+[0-9]+-[a-z0-9]+$", var.zone))
    error_message = "That is no zone. Write one like us-central2-b."
  }
}

variable "cluster" {
  description = "Id of the cluster"
  type        = string
}

variable "pools" {
  description = "The shape of every pool, by name of the pool, as tpu_shapes gives it"
  type = map(object({
    generation       = string
    machine_type     = string
    topology         = string
    hosts            = number
    placement        = string
    capacity         = string
    reservation_name = optional(string)
    workload_policy  = optional(string)
  }))
}

variable "autoscaling" {
  description = "Whether a pool comes and goes with the jobs that want it, as a whole slice"
  type        = bool
  default     = false
}

variable "max_run_duration" {
  description = "How long a flex-start slice may live"
  type        = string
  default     = "604800s"

  validation {
    condition     = can(regex("^[1-9][0-9]*s$", var.max_run_duration)) && try(tonumber(trimsuffix(var.max_run_duration, "s")) <= 604800, false)
    error_message = "Write seconds with an s, seven days (604800s) at most."
  }
}

variable "queued_provisioning" {
  description = "Whether flex-start slices come by queued provisioning alone: v6e and tpu7x, for jobs of one slice"
  type        = bool
  default     = false
}

variable "spot_shutdown_seconds" {
  description = "How long the pods of a spot slice may take to end when Google takes it back; null is GKE's own"
  type        = number
  default     = null
}

variable "max_pods_per_node" {
  description = "Pods per host, those of GKE itself included"
  type        = number
  default     = 16

  validation {
    condition     = var.max_pods_per_node >= 8 && var.max_pods_per_node <= 256
    error_message = "GKE takes 8 to 256 pods per node."
  }
}

variable "disk_size" {
  description = "Size of the boot disks in GB"
  type        = number
  default     = 100

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

variable "auto_upgrade" {
  description = "Whether GKE upgrades the hosts; a release channel insists on it"
  type        = bool
  default     = true
}

variable "multislice_group_name" {
  description = "Value of the node label MultisliceGroup, by which jobs over several slices find the pools"
  type        = string
  default     = "multi-slice-group"
}

variable "node_service_account" {
  description = "E-mail of the account that hosts run as"
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
