output "ids" {
  description = "Ids of the pools, by name"
  value       = { for name, pool in google_container_node_pool.this : name => pool.id }
}
