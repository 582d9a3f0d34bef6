"""Where refusals are known from: pages of Google's, and reports of people who met them.

What is not known from either is a GUESS. What Google would answer and this emulator cannot is refused in words of the
EMULATOR's own.
"""

from __future__ import annotations

from tpukit.sandbox.google.refusal import Source

GUESS = Source("guess")
EMULATOR = Source("the emulator's own")

# Of every API
UNAUTHENTICATED = Source("https://github.com/rohitaryal/imageFX-api/issues/2")
SERVICE_DISABLED = Source("https://github.com/terraform-google-modules/terraform-google-project-factory/issues/753")
REQUEST_QUOTA = Source("https://cloud.google.com/docs/quotas/error-messages")
UNKNOWN_PARAMETER = Source("https://github.com/rapidwebltd/php-google-people-api/issues/25")
UNKNOWN_FIELD = Source("https://github.com/decolua/9router/issues/1876")

# Permissions: each API has words of its own
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
COMPUTE_FILTER = Source("https://github.com/googleapis/google-api-go-client/issues/815")

# GKE
GKE_NOT_FOUND = Source("https://github.com/hashicorp/terraform-provider-google/issues/5229")
GKE_EXISTS = Source("https://github.com/cilium/cilium/issues/25918")
GKE_INCOMPATIBLE = Source("https://github.com/rancher/gke-operator/pull/509")
GKE_UNDER_WAY = Source("https://github.com/hashicorp/terraform-provider-google/issues/10366")
GKE_OPERATIONS = Source("https://github.com/hashicorp/terraform-provider-google/issues/15205")
GKE_QUOTA = Source("https://github.com/GoogleCloudPlatform/cloud-ops-sandbox/issues/44")
GKE_STOCKOUT = Source("https://github.com/hashicorp/terraform-provider-google/pull/10121")
GKE_MACHINES_QUOTA = Source("https://github.com/kubernetes-sigs/sig-storage-local-static-provisioner/pull/526")
GKE_ACCOUNT = Source("https://github.com/midl-dev/tezos-on-gke/issues/45")
GKE_MACHINE_TYPE = Source("https://github.com/keras-team/kinetic/issues/305")

# Cloud TPU
TPU_CAPACITY = Source("https://github.com/hashicorp/terraform-provider-google/issues/21243")
TPU_QUOTA = Source("https://github.com/marin-community/marin/pull/1612")
TPU_EXISTS = Source("https://github.com/skypilot-org/skypilot/issues/129")

# Cloud Storage
BUCKET_EXISTS = Source("https://github.com/gitpod-io/gitpod/issues/15578")
BUCKET_NOT_EMPTY = Source("https://github.com/googleapis/python-storage/issues/1071")
OBJECT_NOT_FOUND = Source("https://github.com/googleapis/nodejs-storage/issues/1221")
PRECONDITION = Source("https://github.com/opentofu/opentofu/issues/1341")

# Others
ACCOUNT_EXISTS = Source("https://github.com/GoogleCloudPlatform/marketing-analytics-jumpstart/issues/200")
ACCOUNT_NOT_FOUND = Source("https://github.com/GoogleCloudPlatform/cdmc/issues/50")
BUILD_LOGS = Source("https://github.com/in28minutes/course-material/pull/11")
IDENTITY_POOL = Source("https://github.com/google/kctf/issues/193")
POLICY_CHANGED = Source("https://github.com/DataBiosphere/leonardo/pull/737")
REPOSITORY_NOT_FOUND = Source("https://github.com/GoogleCloudPlatform/cloud-run-button/pull/273")
METRIC_NOT_FOUND = Source("https://github.com/hashicorp/terraform-provider-google/issues/11102")
