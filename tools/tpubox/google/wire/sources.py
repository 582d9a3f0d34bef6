"""Origins of refusals: Google's pages and users' reports.

A text without either is a GUESS. A request that Google would serve and this emulator cannot is refused in words of the
EMULATOR's own.
"""

from __future__ import annotations

from tpubox.google.wire.refusal import Source

GUESS = Source("guess")
EMULATOR = Source("the emulator's own")

# Common to all APIs
UNAUTHENTICATED = Source("https://github.com/rohitaryal/imageFX-api/issues/2")
SERVICE_DISABLED = Source("https://github.com/terraform-google-modules/terraform-google-project-factory/issues/753")
REQUEST_QUOTA = Source("https://cloud.google.com/docs/quotas/error-messages")
UNKNOWN_PARAMETER = Source("https://github.com/rapidwebltd/php-google-people-api/issues/25")
UNKNOWN_FIELD = Source("https://github.com/decolua/9router/issues/1876")
LOCATION_DENIED = Source("https://github.com/firezone/firezone/pull/7711")

# Permissions: each API has its own text
COMPUTE_PERMISSION = Source("https://github.com/gruntwork-io/terraform-google-gke/issues/53")
GKE_PERMISSION = Source("https://github.com/pulumi/examples/issues/150")
STORAGE_PERMISSION = Source("https://github.com/ansible-collections/google.cloud/issues/575")
TPU_PERMISSION = Source("https://github.com/tensorflow/tpu/issues/296")
VERTEX_PERMISSION = Source("https://github.com/GoogleCloudPlatform/t5x-on-vertex-ai/issues/5")
SHARED_NETWORK = Source("https://github.com/crossplane-contrib/provider-gcp/issues/436")

# Compute Engine
COMPUTE_NOT_FOUND = Source("https://github.com/tf-encrypted/tf-encrypted/issues/139")
COMPUTE_EXISTS = Source("https://github.com/GoogleCloudPlatform/terraform-dynamic-python-webapp/issues/60")
COMPUTE_IN_USE = Source("https://github.com/genevieve/leftovers/issues/6")
COMPUTE_RANGES = Source("https://github.com/terraform-google-modules/terraform-google-network/issues/20")
COMPUTE_NOT_READY = Source("https://github.com/terraform-google-modules/terraform-google-network/issues/365")
UNKNOWN_REGION = Source("https://github.com/googleapis/nodejs-compute/issues/390")
SUBNET_FINGERPRINT = Source("https://github.com/hashicorp/terraform-provider-google/issues/1469")
RANGE_NAME = Source("https://github.com/kubernetes-sigs/cluster-api-provider-gcp/issues/1058")
NAT_FOR_ALL = Source("https://github.com/google/osv.dev/pull/5629")
NAT_SUBNET = Source("https://github.com/forseti-security/terraform-google-forseti/pull/198")
COMPUTE_FILTER = Source("https://github.com/googleapis/google-api-go-client/issues/815")

RECORDED = Source(
    "https://github.com/GoogleCloudPlatform/k8s-config-connector/tree/master/pkg/test/resourcefixture/testdata"
)
"""Conversations with Google's APIs, which the project records for its tests."""

# GKE
GKE_NOT_FOUND = Source("https://github.com/hashicorp/terraform-provider-google/issues/5229")
GKE_POOL_NOT_FOUND = RECORDED
GKE_EXISTS = Source("https://github.com/cilium/cilium/issues/25918")
GKE_INCOMPATIBLE = Source("https://github.com/rancher/gke-operator/pull/509")
GKE_UNDER_WAY = Source("https://github.com/hashicorp/terraform-provider-google/issues/10366")
GKE_OPERATIONS = Source("https://github.com/hashicorp/terraform-provider-google/issues/15205")
GKE_QUOTA = Source("https://github.com/GoogleCloudPlatform/cloud-ops-sandbox/issues/44")
GKE_STOCKOUT = Source("https://github.com/hashicorp/terraform-provider-google/pull/10121")
GKE_MACHINES_QUOTA = Source("https://github.com/kubernetes-sigs/sig-storage-local-static-provisioner/pull/526")
GKE_ACCOUNT = Source("https://github.com/midl-dev/tezos-on-gke/issues/45")
GKE_MACHINE_TYPE = Source("https://github.com/keras-team/kinetic/issues/305")
GKE_DISK = Source("https://github.com/DataBiosphere/dsub/issues/301")
GKE_QUEUED_TPU = Source("https://github.com/AI-Hypercomputer/xpk/pull/900")
GKE_NODE_COUNT = Source("https://github.com/hashicorp/terraform-provider-google/issues/13540")
GKE_POOL_NAME = Source("https://github.com/pulumi/pulumi-google-native/issues/270")
GKE_POOL_TWICE = Source("https://github.com/rancher/gke-operator/issues/122")
GKE_AUTOPILOT = Source("https://github.com/turbot/steampipe-plugin-gcp/pull/591")
GKE_REGIONAL = Source("https://github.com/GoogleCloudPlatform/ai-on-gke/issues/628")
GKE_LABELS = Source("https://github.com/kyma-project/kyma/issues/4307")
GKE_MASTER_RANGE = Source("https://github.com/rancher/rancher/issues/32032")
GKE_IMAGE = Source("https://github.com/kubernetes/kubernetes/issues/33477")
GKE_DOCKER = Source("https://github.com/NVIDIA/ais-k8s/pull/3")
GKE_VERSION = Source("https://github.com/GoogleCloudPlatform/gke-networking-demos/issues/37")
GKE_NODE_MINOR = Source("https://github.com/hashicorp/terraform-provider-google/issues/6405")
GKE_NODE_VERSION = Source("https://github.com/hashicorp/terraform-provider-google/issues/1682")
GKE_NO_UPDATE = Source("https://github.com/pulumi/pulumi-google-native/issues/418")
GKE_POOL_ID = Source("https://github.com/hashicorp/terraform-provider-google/issues/1274")
GKE_EMPTY_POOL_UPDATE = Source("https://github.com/hashicorp/terraform-provider-google/issues/24407")
GKE_VERSION_FORM = Source("https://github.com/kubernetes-sigs/cluster-api-provider-gcp/pull/1099")
GKE_EMPTY_UPDATE = Source("https://github.com/hashicorp/terraform-provider-google/issues/23462")

# Cloud TPU
TPU_CAPACITY = Source("https://github.com/hashicorp/terraform-provider-google/issues/21243")
TPU_QUOTA = Source("https://github.com/marin-community/marin/pull/1612")
TPU_LABELS = Source("https://github.com/GoogleCloudPlatform/ml-testing-accelerators/pull/461")
TPU_EXISTS = Source("https://github.com/skypilot-org/skypilot/issues/129")

# Cloud Storage
BUCKET_EXISTS = Source("https://github.com/gitpod-io/gitpod/issues/15578")
BUCKET_NOT_EMPTY = Source("https://github.com/googleapis/python-storage/issues/1071")
OBJECT_NOT_FOUND = Source("https://github.com/googleapis/nodejs-storage/issues/1221")
PRECONDITION = Source("https://github.com/opentofu/opentofu/issues/1341")
UPLOAD_PIECE = Source("https://github.com/googleapis/gcs-resumable-upload/issues/17")
RETENTION = Source("https://github.com/treeverse/lakeFS/issues/1339")
UNIFORM_ACCESS = Source("https://github.com/fog/fog-google/issues/537")
STORAGE_CLASS = Source("https://github.com/googleapis/python-storage/issues/879")
CLASS_AND_LOCATION = Source("https://github.com/mrdulin/nodejs-gcp/issues/7")
BUCKET_NAME = Source("https://github.com/googleapis/nodejs-storage/issues/1652")
BUCKET_DOMAIN = Source("https://github.com/google/clusterfuzz/issues/2795")
BUCKET_LOCATION = Source("https://github.com/googleapis/google-cloud-cpp/issues/8566")
BUCKET_LABELS = Source("https://github.com/GoogleCloudPlatform/k8s-config-connector/issues/750")
PUBLIC_ACCESS = Source("https://github.com/GoogleCloudPlatform/gsutil/issues/1620")

# Policies and roles
CONDITION_VERSION = Source("https://github.com/googleapis/python-storage/blob/main/tests/system/test_bucket.py")
IDENTITY_POOL = Source("https://github.com/google/kctf/issues/193")
MEMBER_TYPE = Source("https://github.com/kestra-io/plugin-gcp/issues/318")
PERMISSION_NOT_VALID = Source("https://github.com/aquasecurity/cloudsploit/issues/978")
POLICY_CHANGED = Source("https://github.com/DataBiosphere/leonardo/pull/737")
POLICY_VERSION = Source("https://github.com/hashicorp/vault-plugin-secrets-gcp/issues/88")
PUBLIC_PROJECT = Source("https://github.com/hashicorp/terraform-provider-google/pull/859")
ROLE_NOT_SUPPORTED = Source("https://github.com/hashicorp/terraform-provider-google/issues/9130")
TESTED_PERMISSION = Source("https://github.com/googleapis/google-cloud-java/issues/722")

# Others
ACCOUNT_EXISTS = Source("https://github.com/GoogleCloudPlatform/marketing-analytics-jumpstart/issues/200")
ACCOUNT_NOT_FOUND = Source("https://github.com/GoogleCloudPlatform/cdmc/issues/50")
BUILD_LOGS = Source("https://github.com/in28minutes/course-material/pull/11")
SERVICE_NEEDED = Source("https://github.com/hashicorp/terraform-provider-google/issues/5424")
SERVICE_UNKNOWN = Source(
    "https://github.com/GoogleCloudPlatform/k8s-config-connector/blob/master/mockgcp/mockserviceusage/serviceusagev1.go"
)
REPOSITORY_NOT_FOUND = Source("https://github.com/GoogleCloudPlatform/cloud-run-button/pull/273")
METRIC_NOT_FOUND = Source("https://github.com/hashicorp/terraform-provider-google/issues/11102")
