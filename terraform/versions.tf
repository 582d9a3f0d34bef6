terraform {
  # 1.5.7 is the newest that Infrastructure Manager runs.
  required_version = ">= 1.5.7"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 7.39, < 9"
    }
  }
}

provider "google" {
  project = var.project_id
  region  = var.region
}
