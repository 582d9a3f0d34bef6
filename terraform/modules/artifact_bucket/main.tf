# One that was there before is read and never changed.
data "google_storage_bucket" "existing" {
  count = var.create ? 0 : 1

  name = var.name

  lifecycle {
    precondition {
      condition     = !var.force_destroy
      error_message = "Destroy never empties a bucket that was there before. Leave force_destroy out, or create_bucket."
    }
  }
}

check "bucket_is_near" {
  assert {
    condition     = alltrue([for bucket in data.google_storage_bucket.existing : lower(bucket.location) == var.location || !strcontains(bucket.location, "-")])
    error_message = "Bucket ${var.name} is in another region than the hosts, which are in ${var.location}: every checkpoint crosses regions, slower and at a price."
  }
}

locals {
  bucket = one(concat(google_storage_bucket.this[*].name, data.google_storage_bucket.existing[*].name))
}

resource "google_storage_bucket" "this" {
  # checkov:skip=CKV_GCP_78:checkpoints rotate, and every one that is deleted would be stored and paid for on: 1 TB every half hour is 336 TB a week
  # checkov:skip=CKV_GCP_62:Cloud Audit Logs record access where a project turns on Data Access logs; a bucket of usage logs would be one more thing that destroy has to keep
  count = var.create ? 1 : 0

  project                     = var.project_id
  name                        = var.name
  location                    = var.location
  force_destroy               = var.force_destroy
  labels                      = var.labels
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"

  # Off: each rotated checkpoint would stay as a version that is paid for. The rule below removes what a bucket holds from
  # the time when this was on.
  versioning {
    enabled = false
  }

  lifecycle_rule {
    action {
      type = "Delete"
    }
    condition {
      days_since_noncurrent_time = 1
      with_state                 = "ARCHIVED"
    }
  }

  dynamic "encryption" {
    for_each = var.kms_key == null ? [] : [var.kms_key]
    content {
      default_kms_key_name = encryption.value
    }
  }

  # Google's default keeps deleted objects for seven days, at the price of stored ones.
  soft_delete_policy {
    retention_duration_seconds = var.soft_delete_days * 86400
  }
}

resource "google_storage_bucket_iam_member" "grants" {
  for_each = var.grants

  bucket = local.bucket
  role   = each.value.role
  member = each.value.member
}
