output "host" {
  description = "Address of the control plane, as the kubernetes provider takes it"
  value       = local.host
}
