output "url" {
  description = "The bucket as gs://NAME"
  value       = google_storage_bucket.this.url
}
