locals {
  known = jsondecode(file("${path.module}/regions.json"))
  # Where the environment's region has no TensorBoard, metrics stay on its continent.
  default_region = contains(local.known.regions, var.near) ? var.near : lookup(local.known.nearest, split("-", var.near)[0], "")
  region         = var.region == null ? local.default_region : var.region
}

resource "google_vertex_ai_tensorboard" "this" {
  # checkov:skip=CKV2_GCP_26:metrics are encrypted with Google's keys; a key of one's own would have to outlive destroy
  project      = var.project_id
  region       = local.region
  display_name = var.name
  description  = "Metrics of training jobs"
  labels       = var.labels

  lifecycle {
    precondition {
      condition     = contains(local.known.regions, local.region)
      error_message = "Vertex AI TensorBoard is not offered in ${var.region == null ? var.near : var.region}. Write tensorboard_region = \"${coalesce(local.default_region, "us-central1")}\", or enable_tensorboard = false."
    }
  }
}
