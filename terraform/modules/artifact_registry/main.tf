resource "google_artifact_registry_repository" "this" {
  # checkov:skip=CKV_GCP_84:images are encrypted with Google's keys; a key of one's own would have to outlive destroy
  project       = var.project_id
  location      = var.location
  repository_id = var.name
  format        = "DOCKER"
  description   = "Images of training workloads"
  labels        = var.labels
}

resource "google_artifact_registry_repository_iam_member" "reader" {
  project    = var.project_id
  location   = google_artifact_registry_repository.this.location
  repository = google_artifact_registry_repository.this.name
  role       = "roles/artifactregistry.reader"
  member     = var.reader
}
