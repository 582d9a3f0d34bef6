variable "project_id" {
  description = "Project of the TensorBoard instance"
  type        = string
}

variable "region" {
  description = "Region of the TensorBoard instance; null takes that of `near`, or one on its continent where it has none"
  type        = string
  default     = null
}

variable "near" {
  description = "Region of the environment's other services"
  type        = string
}

variable "name" {
  description = "Display name of the TensorBoard instance"
  type        = string
}

variable "labels" {
  description = "Labels of the TensorBoard instance"
  type        = map(string)
  default     = {}
}

variable "kms_key" {
  description = "Key of Cloud KMS that encrypts metrics, as projects/P/locations/L/keyRings/R/cryptoKeys/K; Google's own if left out"
  type        = string
  default     = null
}
