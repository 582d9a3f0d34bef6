output "url" {
  description = "What image names start with"
  value       = "${var.location}-docker.pkg.dev/${var.project_id}/${local.name}"
}
