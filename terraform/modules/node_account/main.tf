locals {
  # One that is there has its roles already: they belong to it, and not to any one of the clusters that use it.
  address = "${var.name}@${join(".", reverse(split(":", var.project_id)))}.iam.gserviceaccount.com"
  email   = var.create ? google_service_account.this[0].email : local.address
  member  = "serviceAccount:${local.email}"
}

resource "google_service_account" "this" {
  count = var.create ? 1 : 0

  project      = var.project_id
  account_id   = var.name
  display_name = "Nodes of the TPU training cluster"
}

resource "google_project_iam_member" "roles" {
  for_each = var.create ? var.roles : toset([])

  project = var.project_id
  role    = each.value
  member  = local.member
}

moved {
  from = google_service_account.this
  to   = google_service_account.this[0]
}
