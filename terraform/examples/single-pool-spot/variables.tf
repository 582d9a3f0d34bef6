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
  description = "Zone of the slice"
  type        = string
  default     = "us-west4-a"
}

variable "tpu_type" {
  description = "Type of the slice"
  type        = string
  default     = "v5litepod-8"
}
