output "name" {
  description = "Name of the pool"
  value       = google_container_node_pool.this.name
}
