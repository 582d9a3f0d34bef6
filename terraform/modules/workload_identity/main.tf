locals {
  # One that is there has its roles already: they belong to it, and not to any one of the clusters that use it.
  address = "${var.name}@${join(".", reverse(split(":", var.project_id)))}.iam.gserviceaccount.com"
  email   = var.create ? google_service_account.this[0].email : local.address
  name    = var.create ? google_service_account.this[0].name : "projects/${var.project_id}/serviceAccounts/${local.address}"
  member  = "serviceAccount:${local.email}"
}

resource "google_service_account" "this" {
  count = var.create ? 1 : 0

  project      = var.project_id
  account_id   = var.name
  display_name = "Training workloads on TPUs"
}

resource "google_project_iam_member" "roles" {
  for_each = var.create ? var.roles : toset([])

  project = var.project_id
  role    = each.value
  member  = local.member
}

resource "google_service_account_iam_member" "workload" {
  service_account_id = local.name
  role               = "roles/iam.workloadIdentityUser"
  member             = "serviceAccount:${var.workload_pool}[${var.namespace}/${var.name}]"
}

moved {
  from = google_service_account.this
  to   = google_service_account.this[0]
}
