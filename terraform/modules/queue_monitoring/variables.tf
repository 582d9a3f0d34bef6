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

variable "limits" {
  description = "What raises an alert: more failed jobs in an hour (failed_per_hour), a job that runs (longest_seconds) or waits (waiting_seconds) longer, more TPU chips held for an hour (chips: what they cost)"
  type = object({
    failed_per_hour = optional(number, 5)
    longest_seconds = optional(number, 7200)
    waiting_seconds = optional(number, 3600)
    chips           = optional(number, 64)
  })
  default = {}
}
