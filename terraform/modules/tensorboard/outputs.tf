output "id" {
  description = "Full resource name, as uploaders take it"
  value       = google_vertex_ai_tensorboard.this.id
}
