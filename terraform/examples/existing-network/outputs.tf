output "get_credentials" {
  description = "The command that gives kubectl access to the cluster"
  value       = "gcloud container clusters get-credentials ${module.cluster.name} --project=${var.project_id} --region=${local.region} --dns-endpoint"
}
