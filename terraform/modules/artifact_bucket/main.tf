resource "google_storage_bucket" "this" {
  # checkov:skip=CKV_GCP_62:Cloud Audit Logs record access where a project turns on Data Access logs; a bucket of usage logs would be one more thing that destroy has to keep
  project                     = var.project_id
  name                        = var.name
  location                    = var.location
  force_destroy               = var.force_destroy
  labels                      = var.labels
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"

  # A checkpoint that was overwritten or deleted by mistake can be had back for a week, and is paid for no longer.
  versioning {
    enabled = true
  }

  lifecycle_rule {
    action {
      type = "Delete"
    }
    condition {
      days_since_noncurrent_time = 7
      with_state                 = "ARCHIVED"
    }
  }

  soft_delete_policy {
    retention_duration_seconds = 0
  }
}

resource "google_storage_bucket_iam_member" "grants" {
  for_each = var.grants

  bucket = google_storage_bucket.this.name
  role   = each.value.role
  member = each.value.member
}
