resource "google_vertex_ai_tensorboard" "this" {
  # checkov:skip=CKV2_GCP_26:metrics are encrypted with Google's keys; a key of one's own would have to outlive destroy
  project      = var.project_id
  region       = var.region
  display_name = var.name
  description  = "Metrics of training jobs"
  labels       = var.labels
}
