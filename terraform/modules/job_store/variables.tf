variable "project_id" {
  description = "Project of the database"
  type        = string
}

variable "name" {
  description = "Name of the Firestore database that a team keeps its jobs in"
  type        = string
}

variable "location" {
  description = "Region of the database"
  type        = string
}

variable "member" {
  description = "IAM member that reads and writes this database, and no other one of the project"
  type        = string
}

variable "grant" {
  description = "Whether to give the member its role. Off, it has it already"
  type        = bool
  default     = true
}

variable "force_destroy" {
  description = "Whether destroying the environment may delete the database with the jobs in it"
  type        = bool
  default     = false
}

variable "kms_key" {
  description = "Key of Cloud KMS that encrypts the jobs, as projects/P/locations/L/keyRings/R/cryptoKeys/K; Google's own if left out"
  type        = string
  default     = null
}
