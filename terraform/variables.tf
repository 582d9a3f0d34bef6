# Where

variable "project_id" {
  description = "Project of the environment"
  type        = string
}

variable "region" {
  description = "Region of the cluster, the network and the bucket"
  type        = string

  validation {
    condition     = can(regex("^[a-z]+-[a-z]+[0-9]+$", var.region))
    error_message = "That is no region. Write one like us-central2."
  }
}

variable "zone" {
  description = "Zone of the slices. It must be in the region and offer the TPUs asked for"
  type        = string

  validation {
    condition     = can(regex("^[a-z]+-[a-z]+[0-9]+-[a-z0-9]+$", var.zone))
    error_message = "That is no zone. Write one like us-central2-b."
  }
}

variable "cpu_zone" {
  description = "Zone of the nodes without TPUs; the zone of the slices if left out, but the parent of an AI zone (us-central1-a for us-central1-ai1a)"
  type        = string
  default     = null

  validation {
    condition     = var.cpu_zone == null || can(regex("^[a-z]+-[a-z]+[0-9]+-[a-z0-9]+$", var.cpu_zone))
    error_message = "That is no zone. Write one like us-central1-a, or leave cpu_zone out."
  }
}

# Network

variable "network_name" {
  description = "Name of the network"
  type        = string

  validation {
    condition     = can(regex("^[a-z]([-a-z0-9]{0,50}[a-z0-9])?$", var.network_name))
    error_message = "The name of a network has at most 52 small letters, digits and hyphens here, because its router, NAT and firewall rule are named after it."
  }
}

variable "subnet_name" {
  description = "Name of the subnet"
  type        = string

  validation {
    condition     = can(regex("^[a-z]([-a-z0-9]{0,50}[a-z0-9])?$", var.subnet_name))
    error_message = "The name of a subnet has at most 52 small letters, digits and hyphens here, because its ranges are named after it."
  }
}

variable "create_network" {
  description = "Whether to create the network. With false, network_name names one that exists: it is used and never changed, and destroy leaves it"
  type        = bool
  default     = true
}

variable "create_subnet" {
  description = "Whether to create the subnet. With false, subnet_name names one that exists in a network that exists, and the ranges are those that pods_range_name and services_range_name name"
  type        = bool
  default     = true
}

variable "create_nat" {
  description = "Whether to create a router with a NAT for the subnet, through which nodes pull from outside Google. Left out, it comes with the network: one that exists usually has its own"
  type        = bool
  default     = null
}

variable "network_project_id" {
  description = "Host project of the Shared VPC that network and subnet are of, with create_network = false and create_subnet = false; the project itself if left out"
  type        = string
  default     = null
}

variable "pods_range_name" {
  description = "Secondary range of the pods in a subnet that exists. A new subnet's is named after it"
  type        = string
  default     = null
}

variable "services_range_name" {
  description = "Secondary range of the services in a subnet that exists. A new subnet's is named after it"
  type        = string
  default     = null
}

variable "subnet_ip_range" {
  description = "Addresses of the nodes"
  type        = string
  default     = "10.129.0.0/20"

  validation {
    condition     = can(cidrhost(var.subnet_ip_range, 0))
    error_message = "That is no range of addresses. Write one like 10.129.0.0/20."
  }
  validation {
    condition     = try(cidrsubnet(var.subnet_ip_range, 0, 0) == var.subnet_ip_range, true)
    error_message = "That range begins elsewhere. Write ${try(cidrsubnet(var.subnet_ip_range, 0, 0), "10.129.0.0/20")}."
  }
}

variable "pods_ip_range" {
  description = "Addresses of the pods. GKE cuts a block for every node out of it; one too small for the nodes asked for is refused"
  type        = string
  default     = "192.168.64.0/20"

  validation {
    condition     = can(cidrhost(var.pods_ip_range, 0))
    error_message = "That is no range of addresses. Write one like 192.168.64.0/20."
  }
  validation {
    condition     = try(cidrsubnet(var.pods_ip_range, 0, 0) == var.pods_ip_range, true)
    error_message = "That range begins elsewhere. Write ${try(cidrsubnet(var.pods_ip_range, 0, 0), "192.168.64.0/20")}."
  }
}

variable "additional_pods_ip_ranges" {
  description = "More addresses of pods, for a cluster that outgrew pods_ip_range, which cannot change once it is in use: new pools take the range with the most room"
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for range in var.additional_pods_ip_ranges : can(cidrhost(range, 0))])
    error_message = "That is no range of addresses. Write each like 10.64.0.0/16."
  }
  validation {
    condition     = alltrue([for range in var.additional_pods_ip_ranges : try(cidrsubnet(range, 0, 0) == range, true)])
    error_message = "One of these ranges begins elsewhere. Write its first address, as in 10.64.0.0/16."
  }
}

variable "additional_pods_range_names" {
  description = "Further secondary ranges of the pods in a subnet that exists"
  type        = list(string)
  default     = []
}

variable "services_ip_range" {
  description = "Addresses of the Kubernetes services"
  type        = string
  default     = "192.168.80.0/20"

  validation {
    condition     = can(cidrhost(var.services_ip_range, 0))
    error_message = "That is no range of addresses. Write one like 192.168.80.0/20."
  }
  validation {
    condition     = try(cidrsubnet(var.services_ip_range, 0, 0) == var.services_ip_range, true)
    error_message = "That range begins elsewhere. Write ${try(cidrsubnet(var.services_ip_range, 0, 0), "192.168.80.0/20")}."
  }
}

variable "authorized_networks" {
  description = "Networks, by name, that may reach the control plane by its address. With none there is the DNS endpoint alone, guarded by IAM"
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for range in values(var.authorized_networks) : can(cidrhost(range, 0)) && !endswith(range, "/0")])
    error_message = "Write each network as a range such as 203.0.113.0/24. The whole Internet is refused: leave this out and use the DNS endpoint."
  }
}

# Cluster

variable "cluster_name" {
  description = "Name of the cluster"
  type        = string

  validation {
    condition     = can(regex("^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$", var.cluster_name))
    error_message = "The name of a cluster has at most 40 small letters, digits and hyphens, and begins with a letter."
  }
}

variable "cluster_description" {
  description = "Description of the cluster"
  type        = string
  default     = "GKE cluster for running TPU training workloads"
}

variable "gke_version" {
  description = "Version of GKE, such as 1.34 or 1.34.1-gke.3084001. Left out, the release channel's own; the guide's 1.27.3-gke.100 can no longer be created"
  type        = string
  default     = null

  validation {
    condition     = var.gke_version == null || can(regex("^1[.][0-9]+([.][0-9]+(-gke[.][0-9]+)?)?$", var.gke_version))
    error_message = "That is no version of GKE. Write one like 1.34.1-gke.3084001, or leave gke_version out."
  }
  validation {
    condition     = var.gke_version == null || try(tonumber(split(".", var.gke_version)[1]) >= 32, true)
    error_message = "GKE no longer creates clusters older than 1.32. Leave gke_version out to get the release channel's own."
  }
}

variable "release_channel" {
  description = "RAPID, REGULAR, STABLE or EXTENDED; nodes are not upgraded before the end of support. UNSPECIFIED where something else creates pools without upgrades, as a provisioner does"
  type        = string
  default     = "REGULAR"

  validation {
    condition     = contains(["RAPID", "REGULAR", "STABLE", "EXTENDED", "UNSPECIFIED"], var.release_channel)
    error_message = "Write RAPID, REGULAR, STABLE, EXTENDED or UNSPECIFIED."
  }
}

variable "deletion_protection" {
  description = "Whether Terraform must refuse to delete the cluster until this was applied as false. It guards neither pools nor data, so a destroy would stop half-way"
  type        = bool
  default     = false
}

variable "logging_components" {
  description = "What Cloud Logging stores: SYSTEM_COMPONENTS, and with WORKLOADS what jobs print, which is paid by volume. Without WORKLOADS, logs of a deleted pod exist only if tpukit followed it"
  type        = list(string)
  default     = ["SYSTEM_COMPONENTS", "WORKLOADS"]

  validation {
    condition     = contains(var.logging_components, "SYSTEM_COMPONENTS") && alltrue([for name in var.logging_components : contains(["SYSTEM_COMPONENTS", "WORKLOADS"], name)])
    error_message = "Write [\"SYSTEM_COMPONENTS\"], or [\"SYSTEM_COMPONENTS\", \"WORKLOADS\"]."
  }
}

variable "labels" {
  description = "Labels of everything that can have some"
  type        = map(string)
  default     = {}
}

# CPU pool

variable "cpu_pool_node_count" {
  description = "Number of nodes without TPUs"
  type        = number
  default     = 3

  validation {
    condition     = var.cpu_pool_node_count >= 1 && floor(var.cpu_pool_node_count) == var.cpu_pool_node_count
    error_message = "JobSet and Kueue run on the nodes without TPUs. Write a whole number of 1 or more."
  }
}

variable "cpu_pool_machine_type" {
  description = "Machine type of the nodes without TPUs. One that their zone does not offer is refused: n1, which the guide has, is in neither us-east5, us-south1 nor southamerica-west1"
  type        = string
  default     = "n2-standard-4"
}

variable "cpu_pool_disk_type" {
  description = "Type of the boot disks of the nodes without TPUs; left out, pd-standard, or hyperdisk-balanced for machines that boot from nothing else"
  type        = string
  default     = null
}

variable "cpu_pool_disk_size" {
  description = "Size of the boot disks of the nodes without TPUs, in GB"
  type        = number
  default     = 200
}

variable "cpu_pool_max_pods_per_node" {
  description = "Pods on a node without TPUs. A power of two wastes no addresses"
  type        = number
  default     = 64

  validation {
    condition     = var.cpu_pool_max_pods_per_node >= 32 && var.cpu_pool_max_pods_per_node <= 256
    error_message = "Write 32 to 256: GKE's own pods alone take more than a dozen."
  }
}

# Accounts

variable "create_service_accounts" {
  description = "Whether to make both accounts and give them their roles on the project. Off, they are there: `tpu cluster bootstrap` makes them once for all clusters of a project, so that nobody who builds one needs to be able to make or become accounts"
  type        = bool
  default     = false
}

variable "tpu_sa_name" {
  description = "Name of the account that training workloads act as through Workload Identity, and of their Kubernetes account"
  type        = string
  default     = "cloud-tpu-sa"

  validation {
    condition     = can(regex("^[a-z][-a-z0-9]{4,28}[a-z0-9]$", var.tpu_sa_name))
    error_message = "The name of an account has 6 to 30 small letters, digits and hyphens, and begins with a letter."
  }
}

variable "tpu_sa_roles" {
  description = "Roles of the workloads' account. Those of Cloud Storage are given on the artifact bucket, the others on the project"
  type        = set(string)
  default     = ["roles/aiplatform.user", "roles/logging.logWriter", "roles/monitoring.metricWriter", "roles/storage.objectUser"]

  validation {
    condition     = alltrue([for role in var.tpu_sa_roles : can(regex("^(projects|organizations)/[^/]+/roles/[A-Za-z0-9_.]+$|^roles/(aiplatform|artifactregistry|autoscaling|bigquery|cloudprofiler|cloudtrace|container[.]defaultNodeServiceAccount$|datastore|logging|monitoring|pubsub|secretmanager[.]secretAccessor$|serviceusage[.]serviceUsageConsumer$|storage|tpu)\\b", role)) && !can(regex("(?i)admin|owner|editor", replace(role, "objectAdmin", "")))])
    error_message = "Write roles of data and telemetry, such as roles/aiplatform.user, or a role of your own. Roles that administer, own or act as other accounts are refused for workloads."
  }
}

variable "gke_sa_name" {
  description = "Name of the account that nodes run as"
  type        = string
  default     = "gke-sa"

  validation {
    condition     = can(regex("^[a-z][-a-z0-9]{4,28}[a-z0-9]$", var.gke_sa_name))
    error_message = "The name of an account has 6 to 30 small letters, digits and hyphens, and begins with a letter."
  }
}

variable "gke_sa_roles" {
  description = "Roles of the nodes' account: what GKE asks for, to write logs and metrics and to stream images. It reads images of the repository besides. Those of Cloud Storage are given on the artifact bucket"
  type        = set(string)
  default     = ["roles/container.defaultNodeServiceAccount", "roles/serviceusage.serviceUsageConsumer"]

  validation {
    condition     = alltrue([for role in var.gke_sa_roles : can(regex("^(projects|organizations)/[^/]+/roles/[A-Za-z0-9_.]+$|^roles/(aiplatform|artifactregistry|autoscaling|bigquery|cloudprofiler|cloudtrace|container[.]defaultNodeServiceAccount$|datastore|logging|monitoring|pubsub|secretmanager[.]secretAccessor$|serviceusage[.]serviceUsageConsumer$|storage|tpu)\\b", role)) && !can(regex("(?i)admin|owner|editor", replace(role, "objectAdmin", "")))])
    error_message = "Write roles/container.defaultNodeServiceAccount and what nodes read, or a role of your own. Roles that administer, own or act as other accounts are refused for nodes."
  }
}

variable "tpu_namespace" {
  description = "Kubernetes namespace of the workloads that may act as the account"
  type        = string
  default     = "tpu-training"

  validation {
    condition     = can(regex("^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", var.tpu_namespace)) && !contains(["default", "kube-system"], var.tpu_namespace)
    error_message = "Write a namespace of its own: at most 63 small letters, digits and hyphens, not default or kube-system."
  }
}

# TPU pools

variable "tpu_type" {
  description = "Type of the slices, such as v4-32. Machine type, topology and number of hosts follow from it"
  type        = string
  default     = null
}

variable "tpu_machine_type" {
  description = "Machine type of the hosts, where no tpu_type is given; ct4p-hightpu-4t if this is left out too"
  type        = string
  default     = null
}

variable "tpu_topology" {
  description = "Topology of the slices, where no tpu_type is given; 2x2x2 if everything about the slices is left out. A slice of one host takes none"
  type        = string
  default     = null
}

variable "tpu_num_nodes" {
  description = "Hosts of a slice, where no tpu_type is given; what the topology has if this is left out (2 for 2x2x2)"
  type        = number
  default     = null
}

variable "num_tpu_pools" {
  description = "Number of slices. Each is a pool; 0 keeps everything else"
  type        = number
  default     = 1

  validation {
    condition     = var.num_tpu_pools >= 0 && var.num_tpu_pools <= 200 && floor(var.num_tpu_pools) == var.num_tpu_pools
    error_message = "Write a whole number from 0 to 200; GKE's autoscaling grows slow beyond that."
  }
}

variable "tpu_pools" {
  description = "The pools by name, in place of num_tpu_pools: to take one out of the middle, or to have slices of several types. What a pool leaves out is as the other variables say"
  type = map(object({
    tpu_type         = optional(string)
    tpu_machine_type = optional(string)
    tpu_topology     = optional(string)
    tpu_num_nodes    = optional(number)
    capacity         = optional(string)
    reservation_name = optional(string)
  }))
  default = null
}

variable "capacity" {
  description = "How slices are paid for and had: on-demand, spot, reservation or flex-start"
  type        = string
  default     = "on-demand"
}

variable "reservation_name" {
  description = "The reservation, with capacity = reservation. One of another project is projects/PROJECT/reservations/NAME, and a block of one NAME/reservationBlocks/BLOCK, with /reservationSubBlocks/SUB_BLOCK behind it for a part of that"
  type        = string
  default     = null
}

variable "flex_start_duration" {
  description = "How long a flex-start slice may live, in seconds with an s. Seven days at most"
  type        = string
  default     = "604800s"

  validation {
    condition     = can(regex("^[1-9][0-9]*s$", var.flex_start_duration)) && try(tonumber(trimsuffix(var.flex_start_duration, "s")) <= 604800, false)
    error_message = "Write seconds with an s, seven days (604800s) at most."
  }
}

variable "flex_start_queued" {
  description = "Whether flex-start slices come by queued provisioning, all that a job wants at once; without it they come one by one, by autoscaling. Google serves v6e and tpu7x so, and jobs of one slice"
  type        = bool
  default     = false
}

variable "spot_shutdown_seconds" {
  description = "How long a spot slice delays its shutdown when Google takes it back, so that pods can save: 30 or 120, of which 15 are for the node's own; 0 kills them at once. Left out, as GKE has it (about 30). A change makes the hosts anew"
  type        = number
  default     = null

  validation {
    condition     = var.spot_shutdown_seconds == null || contains([0, 30, 120], coalesce(var.spot_shutdown_seconds, 0))
    error_message = "GKE takes 0, 30 or 120 seconds."
  }
}

variable "tpu_workload_policy" {
  description = "Workload policy of tpu7x slices of several hosts. Left out, each pool gets one of its own; a name takes that one, which must be in the same region"
  type        = string
  default     = null
}

variable "enable_tpu_autoscaling" {
  description = "Whether slices come and go with the jobs that want them. Flex-start slices always do"
  type        = bool
  default     = false
}

variable "tpu_node_pool_name_prefix" {
  description = "What names of pools begin with; a hyphen and a number from 0 follow"
  type        = string
  default     = "tpu-node-pool"
}

variable "multislice_group_name" {
  description = "Value of the label MultisliceGroup on the hosts of every slice"
  type        = string
  default     = "multi-slice-group"

  validation {
    condition     = can(regex("^[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$", var.multislice_group_name))
    error_message = "It becomes a label of Kubernetes: at most 63 letters, digits, hyphens, underscores and dots."
  }
}

variable "tpu_max_pods_per_node" {
  description = "Pods on a TPU host, GKE's own included. 16 take an eighth of the addresses that GKE's default of 110 takes"
  type        = number
  default     = 16

  validation {
    condition     = var.tpu_max_pods_per_node >= 15 && var.tpu_max_pods_per_node <= 256
    error_message = "Write 15 to 256: GKE's own pods alone take about a dozen."
  }
}

variable "tpu_disk_size" {
  description = "Size of the boot disks of TPU hosts, in GB"
  type        = number
  default     = 100
}

variable "num_of_chips" {
  description = "Chips of all slices together. It follows from the pools; given, a number that does not is refused"
  type        = number
  default     = null
}

# Data

variable "artifact_repository_bucket_name" {
  description = "Name of the bucket for datasets, checkpoints and logs"
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9][-_.a-z0-9]{1,61}[a-z0-9]$", var.artifact_repository_bucket_name))
    error_message = "The name of a bucket has 3 to 63 small letters, digits, hyphens, underscores and dots, and no gs:// before it."
  }
}

variable "create_bucket" {
  description = "Whether to create the bucket. With false, the bucket of that name exists: accounts are granted roles on it, and destroy takes those grants back and nothing else"
  type        = bool
  default     = true
}

variable "force_destroy" {
  description = "Whether destroying the environment may delete what is in the bucket and the database. Off, a bucket that is not empty and the database stop the destroy; `tpu cluster destroy` then stops for images and metrics too"
  type        = bool
  default     = false
}

variable "artifact_registry_name" {
  description = "Name of the repository for container images; the cluster's name if left out"
  type        = string
  default     = null
}

variable "create_artifact_registry" {
  description = "Whether to create the repository for container images. With false, one of that name exists: nodes are granted to read it, and destroy takes that grant back and nothing else"
  type        = bool
  default     = true
}

variable "artifact_registry_location" {
  description = "Region or multi-region, such as us, of the repository for container images; services_region if left out"
  type        = string
  default     = null
}

variable "enable_tensorboard" {
  description = "Whether to create a Vertex AI TensorBoard instance"
  type        = bool
  default     = true
}

variable "tensorboard_region" {
  description = "Region of the TensorBoard instance; that of the other services if left out, or one on the same continent where that one has no TensorBoard"
  type        = string
  default     = null
}

variable "firestore_database" {
  description = "Name of a Firestore database to create for the team's job queue; none if left out"
  type        = string
  default     = null

  validation {
    condition     = var.firestore_database == null || can(regex("^[a-z][-a-z0-9]{2,61}[a-z0-9]$", var.firestore_database))
    error_message = "The name of a database has 4 to 63 small letters, digits and hyphens, and begins with a letter."
  }
}

variable "queue_monitoring_team" {
  description = "Team whose queued jobs get a dashboard and alerts in Cloud Monitoring; none if left out"
  type        = string
  default     = null

  validation {
    condition     = var.queue_monitoring_team == null || can(regex("^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", var.queue_monitoring_team))
    error_message = "The name of a team has at most 63 small letters, digits and hyphens."
  }
}

variable "queue_alert_limits" {
  description = "What raises an alert of the job queue: failed_per_hour, longest_seconds, waiting_seconds, chips; the module's own unless told"
  type        = map(number)
  default     = {}

  validation {
    condition     = alltrue([for name, limit in var.queue_alert_limits : limit > 0 && contains(["failed_per_hour", "longest_seconds", "waiting_seconds", "chips"], name)])
    error_message = "Write numbers above 0 for failed_per_hour, longest_seconds, waiting_seconds or chips."
  }
}

variable "queue_notification_channels" {
  description = "Channels of Cloud Monitoring that hear of alerts of the job queue, as projects/P/notificationChannels/N"
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for channel in var.queue_notification_channels : can(regex("^projects/[^/]+/notificationChannels/[^/]+$", channel))])
    error_message = "Write projects/PROJECT/notificationChannels/NUMBER, as `gcloud beta monitoring channels list` prints it."
  }
}

variable "services_region" {
  description = "Region of the image repository and Firestore; the cluster's if left out, but us-central1 for us-central2, which has TPUs and few services"
  type        = string
  default     = null
}

# Security

variable "kms_keys" {
  description = "Keys of Cloud KMS that encrypt what is stored, for any of cluster, disks (of nodes), bucket, images, metrics and jobs, as projects/P/locations/L/keyRings/R/cryptoKeys/K in the region of each. The service agent of each service must be allowed to use its key (roles/cloudkms.cryptoKeyEncrypterDecrypter); what is left out has Google's own keys"
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for what in keys(var.kms_keys) : contains(["cluster", "disks", "bucket", "images", "metrics", "jobs"], what)])
    error_message = "Write keys for cluster, disks, bucket, images, metrics or jobs."
  }
  validation {
    condition     = alltrue([for key in values(var.kms_keys) : can(regex("^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+$", key))])
    error_message = "Write each key as projects/P/locations/L/keyRings/R/cryptoKeys/K."
  }
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

variable "immutable_tags" {
  description = "Whether a tag of the image repository stays with the image that it was first given to"
  type        = bool
  default     = false
}
