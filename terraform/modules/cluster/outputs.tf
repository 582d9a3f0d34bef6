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

output "endpoint" {
  description = "Address of the control plane; reached from authorized_networks alone"
  value       = google_container_cluster.this.endpoint
}

output "ca_certificate" {
  description = "Certificate authority of the address of the control plane, base64; the DNS endpoint has a public certificate"
  value       = google_container_cluster.this.master_auth[0].cluster_ca_certificate
}

output "version" {
  description = "Version of the control plane"
  value       = google_container_cluster.this.master_version
}
