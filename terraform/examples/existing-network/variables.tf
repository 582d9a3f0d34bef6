variable "project_id" {
  description = "Project of the environment"
  type        = string
}

variable "name" {
  description = "Name of the cluster, and what other names begin with"
  type        = string
  default     = "tpu-training"
}

variable "host_project_id" {
  description = "Host project of a Shared VPC; null where the network is the project's own"
  type        = string
  default     = null
}

variable "zone" {
  description = "Zone of the slice"
  type        = string
  default     = "us-east5-a"
}

variable "tpu_type" {
  description = "Type of the slice"
  type        = string
  default     = "v6e-8"
}

variable "network" {
  description = "Name of a network that exists"
  type        = string
}

variable "subnet" {
  description = "Name of its subnet in the region; nodes reach Google privately through it"
  type        = string
}

variable "pods_range" {
  description = "Name of the subnet's secondary range for pods"
  type        = string
}

variable "services_range" {
  description = "Name of the subnet's secondary range for services"
  type        = string
}
