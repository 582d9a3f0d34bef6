locals {
  known = jsondecode(file("${path.module}/regions.json"))
  # Where the environment's region has no TensorBoard, metrics stay on its continent.
  default_region = contains(local.known.regions, var.near) ? var.near : lookup(local.known.nearest, split("-", var.near)[0], "")
  region         = var.region == null ? local.default_region : var.region
}

resource "google_vertex_ai_tensorboard" "this" {
  # checkov:skip=CKV2_GCP_26:a variable takes a key of one's own; without one metrics are encrypted with Google's keys
  project      = var.project_id
  region       = local.region
  display_name = var.name
  description  = "Metrics of training jobs"
  labels       = var.labels

  dynamic "encryption_spec" {
    for_each = var.kms_key == null ? [] : [var.kms_key]
    content {
      kms_key_name = encryption_spec.value
    }
  }

  lifecycle {
    precondition {
      condition     = contains(local.known.regions, local.region)
      error_message = "Vertex AI TensorBoard is not offered in ${var.region == null ? var.near : var.region}. Write tensorboard_region = \"${coalesce(local.default_region, "us-central1")}\", or enable_tensorboard = false."
    }
  }
}
