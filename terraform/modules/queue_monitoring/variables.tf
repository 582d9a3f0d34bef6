variable "project_id" {
  description = "Project whose cluster serves the queue"
  type        = string
}

variable "team" {
  description = "Namespace in which the pods of queued jobs run"
  type        = string
}

variable "notification_channels" {
  description = "Channels of Cloud Monitoring that hear of alerts, as projects/P/notificationChannels/N"
  type        = list(string)
  default     = []
}

variable "labels" {
  description = "Labels of the alert policies"
  type        = map(string)
  default     = {}
}

variable "failed_per_hour" {
  description = "So many jobs may fail in an hour"
  type        = number
  default     = 5
}

variable "longest_seconds" {
  description = "A job that runs longer raises an alert"
  type        = number
  default     = 7200
}

variable "waiting_seconds" {
  description = "A job that waits longer raises an alert"
  type        = number
  default     = 3600
}

variable "chips" {
  description = "Queued jobs that hold more TPU chips than this for an hour raise an alert: what they cost"
  type        = number
  default     = 64
}
