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
  description = "Host project of the Shared VPC"
  type        = string
}

variable "zone" {
  description = "Zone of the slice: an AI zone, so that nodes without TPUs stand in its parent"
  type        = string
  default     = "us-central1-ai1a"
}

variable "tpu_type" {
  description = "Type of the slice"
  type        = string
  default     = "v6e-8"
}

variable "network" {
  description = "Name of the shared network"
  type        = string
}

variable "subnet" {
  description = "Name of its subnet in the region, shared with the service project"
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
