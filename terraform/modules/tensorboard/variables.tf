variable "project_id" {
  description = "Project of the TensorBoard instance"
  type        = string
}

variable "region" {
  description = "Region of the TensorBoard instance"
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
