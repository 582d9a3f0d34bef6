variable "project_id" {
  description = "Project of the repository"
  type        = string
}

variable "name" {
  description = "Name of the repository for container images"
  type        = string
}

variable "location" {
  description = "Region of the repository"
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
