variable "project_id" {
  description = "Project of the environment"
  type        = string
}

variable "name" {
  description = "Name of the cluster, and what other names begin with"
  type        = string
  default     = "tpu-training"
}

variable "zone" {
  description = "Zone of the slices"
  type        = string
  default     = "us-east5-a"
}

variable "pools" {
  description = "The slices by name of their pool, each with its own type and kind of capacity"
  type = map(object({
    tpu_type         = string
    capacity         = optional(string, "on-demand")
    reservation_name = optional(string)
  }))
  default = {
    steady  = { tpu_type = "v5p-8" }
    cheap-0 = { tpu_type = "v6e-8", capacity = "spot" }
    cheap-1 = { tpu_type = "v6e-8", capacity = "spot" }
  }
}
