terraform {
  required_providers {
    kubernetes = {
      source  = "hashicorp/kubernetes"
      version = ">= 2.38, < 4"
    }
  }
}

provider "kubernetes" {
  host  = local.host
  token = data.google_client_config.this.access_token
}

resource "kubernetes_namespace_v1" "tools" {
  metadata {
    name = var.namespace
  }
}
