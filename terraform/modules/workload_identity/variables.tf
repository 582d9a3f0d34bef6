variable "project_id" {
  description = "Project of the account"
  type        = string
}

variable "name" {
  description = "Name of the Google account, and of the Kubernetes account that acts as it"
  type        = string
}

variable "roles" {
  description = "Roles that the account gets on the project"
  type        = set(string)
}

variable "workload_pool" {
  description = "The cluster's workload identity pool; it comes into being with the project's first such cluster"
  type        = string
}

variable "namespace" {
  description = "Kubernetes namespace whose account may act as the Google account"
  type        = string
}
