variable "project_id" {
  description = "Project of the account"
  type        = string
}

variable "name" {
  description = "Name of the account that every node of the cluster runs as"
  type        = string
}

variable "roles" {
  description = "Roles that the account gets on the project"
  type        = set(string)
}
