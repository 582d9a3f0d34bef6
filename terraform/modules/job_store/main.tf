resource "google_firestore_database" "this" {
  project                 = var.project_id
  name                    = var.name
  location_id             = var.location
  type                    = "FIRESTORE_NATIVE"
  delete_protection_state = var.force_destroy ? "DELETE_PROTECTION_DISABLED" : "DELETE_PROTECTION_ENABLED"
  # The provider's default is ABANDON: destroy would leave the database behind without a word.
  deletion_policy = "DELETE"

  dynamic "cmek_config" {
    for_each = var.kms_key == null ? [] : [var.kms_key]
    content {
      kms_key_name = cmek_config.value
    }
  }
}

resource "google_project_iam_member" "user" {
  count = var.grant ? 1 : 0

  project = var.project_id
  role    = "roles/datastore.user"
  member  = var.member

  condition {
    title      = "only ${var.name}"
    expression = "resource.name == \"projects/${var.project_id}/databases/${google_firestore_database.this.name}\""
  }
}

moved {
  from = google_project_iam_member.user
  to   = google_project_iam_member.user[0]
}
