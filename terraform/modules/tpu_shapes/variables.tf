variable "pools" {
  description = "What is asked for, by name of the pool: a tpu_type, or machine type, topology and number of nodes; nothing means v4-16"
  type = map(object({
    tpu_type         = optional(string)
    tpu_machine_type = optional(string)
    tpu_topology     = optional(string)
    tpu_num_nodes    = optional(number)
    capacity         = optional(string, "on-demand")
    reservation_name = optional(string)
    workload_policy  = optional(string)
  }))
}

variable "zone" {
  description = "Zone of the pools"
  type        = string

  validation {
    condition     = can(regex("^[a-z]+-[a-z]+[0-9]+-[a-z0-9]+$", var.zone))
    error_message = "That is no zone. Write one like us-central2-b."
  }
}

variable "cpu_zone" {
  description = "Zone of the nodes without TPUs; null is the zone of the pools, or the parent of an AI zone"
  type        = string
  default     = null
}

variable "cpu_machine_type" {
  description = "Machine type of the nodes without TPUs"
  type        = string
  default     = "n2-standard-4"
}

variable "gke_version" {
  description = "Version of the control plane; null is the default of the release channel"
  type        = string
  default     = null
}
