# One that was there before is read and never changed.
data "google_artifact_registry_repository" "existing" {
  count = var.create ? 0 : 1

  project       = var.project_id
  location      = var.location
  repository_id = var.name

  lifecycle {
    postcondition {
      condition     = self.format == "DOCKER"
      error_message = "Repository ${var.name} of ${var.location} is of the format ${self.format}, and images need DOCKER."
    }
  }
}

locals {
  name = one(concat(google_artifact_registry_repository.this[*].repository_id, data.google_artifact_registry_repository.existing[*].repository_id))
}

resource "google_artifact_registry_repository" "this" {
  # checkov:skip=CKV_GCP_84:a variable takes a key of one's own; without one images are encrypted with Google's keys
  count = var.create ? 1 : 0

  project       = var.project_id
  location      = var.location
  repository_id = var.name
  format        = "DOCKER"
  description   = "Images of training workloads"
  labels        = var.labels
  kms_key_name  = var.kms_key

  # Cloud Build pushes an image for each change of code. Those that still have a tag stay, and so do the newest.
  dynamic "cleanup_policies" {
    for_each = var.untagged_days == 0 ? [] : [var.untagged_days]
    content {
      id     = "delete-untagged"
      action = "DELETE"
      condition {
        tag_state  = "UNTAGGED"
        older_than = "${cleanup_policies.value * 86400}s"
      }
    }
  }

  dynamic "cleanup_policies" {
    for_each = var.untagged_days == 0 ? [] : [10]
    content {
      id     = "keep-newest"
      action = "KEEP"
      most_recent_versions {
        keep_count = cleanup_policies.value
      }
    }
  }

  dynamic "docker_config" {
    for_each = var.immutable_tags ? [true] : []
    content {
      immutable_tags = docker_config.value
    }
  }
}

resource "google_artifact_registry_repository_iam_member" "reader" {
  project    = var.project_id
  location   = var.location
  repository = local.name
  role       = "roles/artifactregistry.reader"
  member     = var.reader
}
