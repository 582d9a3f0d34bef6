variable "project_id" {
  description = "Project of the cluster"
  type        = string
}

variable "region" {
  description = "Region of the cluster"
  type        = string
  default     = "us-central2"
}

variable "cluster_name" {
  description = "Name of the cluster"
  type        = string
  default     = "tpu-training"
}

variable "namespace" {
  description = "Namespace to create"
  type        = string
  default     = "tools"
}
