output "get_credentials" {
  description = "The command that gives kubectl access to the cluster"
  value       = "gcloud container clusters get-credentials ${module.cluster.name} --project=${var.project_id} --region=${local.region} --dns-endpoint"
}

output "artifact_bucket" {
  description = "The bucket for datasets, checkpoints and logs"
  value       = module.artifact_bucket.url
}

output "image_repository" {
  description = "What names of images begin with"
  value       = module.artifact_registry.url
}
