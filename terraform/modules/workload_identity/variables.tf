variable "project_id" {
  description = "Project of the account"
  type        = string
}

variable "name" {
  description = "Name of the Google account, and of the Kubernetes account that acts as it"
  type        = string
}

variable "create" {
  description = "Whether to make the account and give it its roles. Off, it is there already, with its roles, for several clusters"
  type        = bool
  default     = true
}

variable "roles" {
  description = "Roles that the account gets on the project, where it is made"
  type        = set(string)

  validation {
    condition     = !anytrue([for role in var.roles : startswith(role, "roles/iam.") || contains(["roles/owner", "roles/editor"], role)])
    error_message = "Roles that give away the project or other accounts are refused."
  }
}

variable "workload_pool" {
  description = "The cluster's workload identity pool; it comes into being with the project's first such cluster"
  type        = string
}

variable "namespace" {
  description = "Kubernetes namespace whose account may act as the Google account"
  type        = string
}
