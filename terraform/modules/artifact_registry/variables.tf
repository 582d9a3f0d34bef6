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

  validation {
    condition     = can(regex("^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$", var.name))
    error_message = "The name of a repository has at most 63 small letters, digits and hyphens, and begins with a letter."
  }
}

variable "location" {
  description = "Region or multi-region of the repository"
  type        = string
}

variable "labels" {
  description = "Labels of the repository"
  type        = map(string)
  default     = {}
}

variable "reader" {
  description = "IAM member that pulls images: the account of the nodes"
  type        = string
}

variable "kms_key" {
  description = "Key of Cloud KMS that encrypts images, as projects/P/locations/L/keyRings/R/cryptoKeys/K; Google's own if left out"
  type        = string
  default     = null
}

variable "untagged_days" {
  description = "Age in days at which images without a tag are deleted, but for the ten newest of each; 0 keeps all"
  type        = number
  default     = 30

  validation {
    condition     = var.untagged_days >= 0 && floor(var.untagged_days) == var.untagged_days
    error_message = "Write a number of days, or 0 to keep all."
  }
}

variable "immutable_tags" {
  description = "Whether a tag stays with the image that it was first given to"
  type        = bool
  default     = false
}
