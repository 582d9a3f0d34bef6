output "cluster_name" {
  description = "Name of the cluster"
  value       = module.cluster.name
}

output "project_id" {
  description = "Project of the environment"
  value       = var.project_id
}

output "region" {
  description = "Region of the cluster"
  value       = var.region
}

output "zone" {
  description = "Zone of the TPU hosts"
  value       = var.zone
}

output "cluster_dns_endpoint" {
  description = "DNS name of the control plane, as get-credentials --dns-endpoint uses it"
  value       = module.cluster.dns_endpoint
}

output "tpu_namespace" {
  description = "Kubernetes namespace of the workloads"
  value       = var.tpu_namespace
}

output "tpu_sa_name" {
  description = "Name of the workloads' Kubernetes account"
  value       = var.tpu_sa_name

  precondition {
    condition     = var.tpu_sa_name != var.gke_sa_name
    error_message = "Workloads and nodes may not be one account. Write another tpu_sa_name than gke_sa_name, which is ${var.gke_sa_name}."
  }
}

output "tpu_sa_email" {
  description = "E-mail of the Google account that the workloads act as"
  value       = module.workload_identity.email
}

output "gke_sa_email" {
  description = "E-mail of the account that nodes run as"
  value       = module.node_account.email
}

output "tpu_pools" {
  description = "The shape of every pool, by its name: type, generation, machine type, topology, accelerator, hosts, chips, capacity"
  value       = module.tpu_shapes.shapes
}

output "flex_start_queued" {
  description = "Whether flex-start slices come by queued provisioning: the queue then asks for them"
  value       = var.flex_start_queued
}

output "num_of_chips" {
  description = "Chips of all slices together: the quota of the queue"
  value       = sum(concat([0], values(module.tpu_shapes.shapes)[*].chips))

  precondition {
    condition     = var.num_of_chips == null || var.num_of_chips == sum(concat([0], values(module.tpu_shapes.shapes)[*].chips))
    error_message = "num_of_chips is ${coalesce(var.num_of_chips, 0)}, and the pools asked for have ${sum(concat([0], values(module.tpu_shapes.shapes)[*].chips))} chips. Write that, or leave num_of_chips out."
  }
}

output "artifact_bucket" {
  description = "The bucket for datasets, checkpoints and logs, as gs://NAME"
  value       = module.artifact_bucket.url
}

output "image_repository" {
  description = "What names of images begin with"
  value       = module.artifact_registry.url
}

output "tensorboard" {
  description = "Full name of the TensorBoard instance, null without one"
  value       = one(module.tensorboard[*].id)
}

output "queue_dashboard" {
  description = "Name of the dashboard of the job queue, null without one"
  value       = one(module.queue_monitoring[*].dashboard)
}

output "firestore_database" {
  description = "Name of the database of the job queue, null without one"
  value       = one(module.job_store[*].name)
}
