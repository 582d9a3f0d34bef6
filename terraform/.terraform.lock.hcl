# The version of the provider that the modules are tested with. Checksums are left to `terraform init`, which adds those
# of the machine it runs on: a provider that was built from source (tools/provider) has others than the registry's.

provider "registry.terraform.io/hashicorp/google" {
  version     = "8.0.0"
  constraints = ">= 7.26.0, >= 7.39.0, < 9.0.0"
}
