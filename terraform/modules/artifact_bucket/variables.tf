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

  validation {
    condition     = can(regex("^[a-z0-9][-_.a-z0-9]{1,61}[a-z0-9]$", var.name))
    error_message = "The name of a bucket has 3 to 63 small letters, digits, hyphens, underscores and dots, and no gs:// before it."
  }
}

variable "location" {
  description = "Region of the bucket: that of the hosts which write checkpoints to it"
  type        = string
}

variable "force_destroy" {
  description = "Whether destroying the environment may delete the objects in the bucket"
  type        = bool
  default     = false
}

variable "labels" {
  description = "Labels of the bucket"
  type        = map(string)
  default     = {}
}

variable "grants" {
  description = "Who may do what with this bucket, and with no other"
  type = map(object({
    role   = string
    member = string
  }))
  default = {}
}

variable "soft_delete_days" {
  description = "Days for which deleted objects can be restored, at the price of stored ones: 0, or 7 to 90. Rotated checkpoints count too"
  type        = number
  default     = 0

  validation {
    condition     = var.soft_delete_days == 0 || (var.soft_delete_days >= 7 && var.soft_delete_days <= 90)
    error_message = "Write 0, or 7 to 90 days."
  }
}

variable "kms_key" {
  description = "Key of Cloud KMS that encrypts new objects, as projects/P/locations/L/keyRings/R/cryptoKeys/K; Google's own if left out"
  type        = string
  default     = null
}
