# What Google answers where the provider checks the form of the answer. Everything else is made up by Terraform.

mock_resource "google_service_account" {
  defaults = {
    name   = "projects/tpu-project/serviceAccounts/someone@tpu-project.iam.gserviceaccount.com"
    email  = "someone@tpu-project.iam.gserviceaccount.com"
    member = "serviceAccount:someone@tpu-project.iam.gserviceaccount.com"
  }
}
