variable "project_id" {
  description = "Project of the cluster"
  type        = string
}

variable "region" {
  description = "Region of the control plane"
  type        = string

  validation {
    condition     = can(regex("^[a-z]+-[a-z]+[0-9]+$", var.region))
    error_message = "That is no region. Write one like us-central2."
  }
}

variable "zone" {
  description = "Zone of nodes whose pool names none, and of the first node; counts of nodes are per zone, so there is one"
  type        = string

  validation {
    condition     = can(regex("^[a-z]+-[a-z]+[0-9]+-[a-z0-9]+$", var.zone))
    error_message = "That is no zone. Write one like us-central2-b."
  }
}

variable "name" {
  description = "Name of the cluster"
  type        = string

  validation {
    condition     = can(regex("^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$", var.name))
    error_message = "The name of a cluster has at most 40 small letters, digits and hyphens, and begins with a letter."
  }
}

variable "description" {
  description = "Description of the cluster"
  type        = string
  default     = "GKE cluster for running TPU training workloads"
}

variable "gke_version" {
  description = "Version of the control plane; null takes the default of the release channel"
  type        = string
  default     = null
}

variable "release_channel" {
  description = "Release channel, or UNSPECIFIED for none"
  type        = string
  default     = "REGULAR"

  validation {
    condition     = contains(["RAPID", "REGULAR", "STABLE", "EXTENDED", "UNSPECIFIED"], var.release_channel)
    error_message = "Write RAPID, REGULAR, STABLE, EXTENDED or UNSPECIFIED."
  }
}

variable "deletion_protection" {
  description = "Whether Terraform must refuse to delete the cluster until this was applied as false"
  type        = bool
  default     = false
}

variable "network" {
  description = "Id of the network"
  type        = string
}

variable "subnet" {
  description = "Id of the subnet"
  type        = string
}

variable "pods_range_name" {
  description = "Name of the subnet's range for pods"
  type        = string
}

variable "services_range_name" {
  description = "Name of the subnet's range for services"
  type        = string
}

variable "authorized_networks" {
  description = "Networks that may reach the control plane by its address, by name; with none there is only the DNS endpoint, guarded by IAM"
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for range in values(var.authorized_networks) : can(cidrhost(range, 0)) && !endswith(range, "/0")])
    error_message = "Write each network as a range such as 203.0.113.0/24. The Internet as such is refused: use the DNS endpoint."
  }
}

variable "max_pods_per_node" {
  description = "Pods per node where a pool says nothing else"
  type        = number
  default     = 64

  validation {
    condition     = var.max_pods_per_node >= 8 && var.max_pods_per_node <= 256
    error_message = "GKE takes 8 to 256 pods per node."
  }
}

variable "first_node_machine_type" {
  description = "Machine type of the node that the cluster is born with and that is removed at once"
  type        = string
  default     = "n2-standard-4"
}

variable "disk_kms_key" {
  description = "Key of Cloud KMS that encrypts the boot disks, as projects/P/locations/L/keyRings/R/cryptoKeys/K; Google's own if left out"
  type        = string
  default     = null
}

variable "node_service_account" {
  description = "E-mail of the account that nodes run as"
  type        = string
}

variable "labels" {
  description = "Labels of the cluster"
  type        = map(string)
  default     = {}
}

variable "kms_key" {
  description = "Key of Cloud KMS that encrypts Kubernetes secrets in etcd, as projects/P/locations/L/keyRings/R/cryptoKeys/K; Google's own if left out"
  type        = string
  default     = null
}

variable "binary_authorization" {
  description = "Whether the project's policy of Binary Authorization decides which images run"
  type        = bool
  default     = false
}

variable "security_posture" {
  description = "DISABLED, BASIC or ENTERPRISE: how closely GKE watches workloads for what is unsafe; GKE's own default if left out"
  type        = string
  default     = null

  validation {
    condition     = var.security_posture == null ? true : contains(["DISABLED", "BASIC", "ENTERPRISE"], var.security_posture)
    error_message = "Write DISABLED, BASIC or ENTERPRISE."
  }
}

variable "maintenance_window" {
  description = "When GKE may change the control plane: a first window in RFC 3339, and how it recurs (RFC 5545)"
  type = object({
    start_time = string
    end_time   = string
    recurrence = string
  })
  default = {
    start_time = "2026-01-03T00:00:00Z"
    end_time   = "2026-01-04T00:00:00Z"
    recurrence = "FREQ=WEEKLY;BYDAY=SA,SU"
  }
}

variable "maintenance_exclusions" {
  description = "What GKE must not upgrade, by name, where the cluster is on a channel; without end_time until the version's end of support"
  type = map(object({
    start_time = string
    end_time   = optional(string)
    scope      = optional(string, "NO_MINOR_OR_NODE_UPGRADES")
  }))
  default = {
    training = { start_time = "2026-01-01T00:00:00Z" }
  }
}

variable "logging_components" {
  description = "Whose logs go to Cloud Logging. WORKLOADS are the lines that training prints: half a dollar for each GiB"
  type        = list(string)
  default     = ["SYSTEM_COMPONENTS", "WORKLOADS"]
}

variable "monitoring_components" {
  description = "Whose metrics go to Cloud Monitoring"
  type        = list(string)
  default     = ["SYSTEM_COMPONENTS", "JOBSET"]
}

variable "addons" {
  description = "Add-ons of GKE: mounts of buckets (gcs_fuse), Filestore and Lustre, and ingress (http_load_balancing), whose firewall rules can keep a network from being deleted"
  type = object({
    gcs_fuse            = optional(bool, true)
    http_load_balancing = optional(bool, false)
    filestore           = optional(bool, false)
    lustre              = optional(bool, false)
  })
  default = {}
}

variable "network_tags" {
  description = "Network tags of the node that the cluster is born with, for firewalls that decide by tag"
  type        = list(string)
  default     = []
}

variable "additional_pod_ranges" {
  description = "Names of further ranges of the subnet for pods"
  type        = list(string)
  default     = []
}

variable "multi_networking" {
  description = "Whether nodes may have further networks, as the pools name them. It cannot be switched on later"
  type        = bool
  default     = false
}
