variable "project_id" {
  description = "Project of the pools"
  type        = string
}

variable "region" {
  description = "Region of the cluster and the workload policies"
  type        = string
}

variable "zone" {
  description = "Zone of the pools"
  type        = string
}

variable "cluster" {
  description = "Id of the cluster"
  type        = string
}

variable "pools" {
  description = "The shape of every pool, by name of the pool, as tpu_shapes gives it"
  type = map(object({
    generation       = string
    machine_type     = string
    topology         = string
    hosts            = number
    placement        = string
    capacity         = string
    reservation_name = optional(string)
    workload_policy  = optional(string)
  }))
}

variable "autoscaling" {
  description = "Whether a pool comes and goes with the jobs that want it, as a whole slice"
  type        = bool
}

variable "max_run_duration" {
  description = "How long a flex-start slice may live"
  type        = string
}

variable "queued_provisioning" {
  description = "Whether flex-start slices come by queued provisioning alone"
  type        = bool
  default     = true
}

variable "spot_shutdown_seconds" {
  description = "How long the pods of a spot slice may take to end when Google takes it back; null is GKE's own"
  type        = number
  default     = null
}

variable "max_pods_per_node" {
  description = "Pods per host, those of GKE itself included"
  type        = number
}

variable "disk_size" {
  description = "Size of the boot disks in GB"
  type        = number
}

variable "auto_upgrade" {
  description = "Whether GKE upgrades the hosts; a release channel insists on it"
  type        = bool
}

variable "multislice_group_name" {
  description = "Value of the node label MultisliceGroup, by which jobs over several slices find the pools"
  type        = string
}

variable "node_service_account" {
  description = "E-mail of the account that hosts run as"
  type        = string
}

variable "labels" {
  description = "Labels of the machines"
  type        = map(string)
}
