terraform {
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

data "google_client_config" "this" {}

data "google_container_cluster" "this" {
  project  = var.project_id
  location = var.region
  name     = var.cluster_name
}

locals {
  # The DNS endpoint has a public certificate and is guarded by IAM, so no certificate authority and no network is needed.
  host = "https://${data.google_container_cluster.this.control_plane_endpoints_config[0].dns_endpoint_config[0].endpoint}"
}
