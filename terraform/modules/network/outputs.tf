output "network" {
  description = "The network's id"
  value       = google_compute_network.this.id
}

output "subnet" {
  description = "The subnet's id"
  value       = google_compute_subnetwork.this.id
}

output "pods_range_name" {
  description = "Name of the secondary range of the pods"
  value       = google_compute_subnetwork.this.secondary_ip_range[0].range_name
}

output "services_range_name" {
  description = "Name of the secondary range of the services"
  value       = google_compute_subnetwork.this.secondary_ip_range[1].range_name
}
