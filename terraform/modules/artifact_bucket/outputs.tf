output "url" {
  description = "The bucket as gs://NAME"
  value       = "gs://${local.bucket}"
}
