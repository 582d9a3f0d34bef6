variable "project_id" {
  description = "Project of the bucket"
  type        = string
}

variable "create" {
  description = "Whether the bucket is made here. If not, the one of this name gets the grants, and is left as it is"
  type        = bool
  default     = true
}

variable "name" {
  description = "Name of the bucket for datasets, checkpoints and logs"
  type        = string
}

variable "location" {
  description = "Region of the bucket: that of the hosts which write checkpoints to it"
  type        = string
}

variable "force_destroy" {
  description = "Whether destroying the environment may delete the objects in the bucket"
  type        = bool
}

variable "labels" {
  description = "Labels of the bucket"
  type        = map(string)
}

variable "grants" {
  description = "Who may do what with this bucket, and with no other"
  type = map(object({
    role   = string
    member = string
  }))
}
