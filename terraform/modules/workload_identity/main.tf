resource "google_service_account" "this" {
  project      = var.project_id
  account_id   = var.name
  display_name = "Training workloads on TPUs"
}

resource "google_project_iam_member" "roles" {
  for_each = var.roles

  project = var.project_id
  role    = each.value
  member  = google_service_account.this.member
}

resource "google_service_account_iam_member" "workload" {
  service_account_id = google_service_account.this.name
  role               = "roles/iam.workloadIdentityUser"
  member             = "serviceAccount:${var.workload_pool}[${var.namespace}/${var.name}]"
}
