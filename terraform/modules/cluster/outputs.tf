output "id" {
  description = "The cluster's id; unknown while it is being replaced, so that its pools are replaced with it"
  value       = google_container_cluster.this.id
}

output "name" {
  description = "Name of the cluster"
  value       = google_container_cluster.this.name
}

output "workload_pool" {
  description = "Workload identity pool of the cluster"
  value       = google_container_cluster.this.workload_identity_config[0].workload_pool
}

output "dns_endpoint" {
  description = "DNS name of the control plane"
  value       = google_container_cluster.this.control_plane_endpoints_config[0].dns_endpoint_config[0].endpoint
}
