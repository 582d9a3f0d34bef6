variable "project_id" {
  description = "Project of the repository"
  type        = string
}

variable "create" {
  description = "Whether the repository is made here. If not, the one of this name is read from, and is left as it is"
  type        = bool
  default     = true
}

variable "name" {
  description = "Name of the repository for container images"
  type        = string
}

variable "location" {
  description = "Region or multi-region of the repository"
  type        = string
}

variable "labels" {
  description = "Labels of the repository"
  type        = map(string)
}

variable "reader" {
  description = "IAM member that pulls images: the account of the nodes"
  type        = string
}
