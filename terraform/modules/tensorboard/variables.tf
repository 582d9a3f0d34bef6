variable "project_id" {
  description = "Project of the TensorBoard instance"
  type        = string
}

variable "region" {
  description = "Region of the TensorBoard instance; null takes that of `near`, or one on its continent where it has none"
  type        = string
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
}
