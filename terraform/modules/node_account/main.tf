resource "google_service_account" "this" {
  project      = var.project_id
  account_id   = var.name
  display_name = "Nodes of the TPU training cluster"
}

resource "google_project_iam_member" "roles" {
  for_each = var.roles

  project = var.project_id
  role    = each.value
  member  = google_service_account.this.member
}
