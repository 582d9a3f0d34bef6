output "dashboard" {
  description = "Name of the dashboard"
  value       = google_monitoring_dashboard.this.id
}

output "alerts" {
  description = "Names of the alert policies"
  value       = [for policy in google_monitoring_alert_policy.this : policy.name]
}
