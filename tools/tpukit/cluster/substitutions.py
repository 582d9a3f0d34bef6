"""Pass Terraform's variables to the two Cloud Build files. The build reads this with Python alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

VARIABLES = {
    "region": "_REGION",
    "zone": "_ZONE",
    "cpu_zone": "_CPU_ZONE",
    "artifact_repository_bucket_name": "_ARTIFACT_REPOSITORY_BUCKET_NAME",
    "network_name": "_NETWORK_NAME",
    "subnet_name": "_SUBNET_NAME",
    "cluster_name": "_CLUSTER_NAME",
    "tpu_namespace": "_NAMESPACE",
    "tpu_type": "_TPU_TYPE",
    "num_tpu_pools": "_NUM_TPU_POOLS",
    "num_of_chips": "_NUM_OF_CHIPS",
    "capacity": "_CAPACITY",
    "reservation_name": "_RESERVATION_NAME",
    "force_destroy": "_FORCE_DESTROY",
}
"""Variables with a substitution of their own; an empty one gets Terraform's default."""
REST = "_TF_VARS"
"""Substitution for all other variables, as a JSON object."""
LONGEST = 4000
"""Maximum bytes of one value: https://cloud.google.com/build/docs/configuring-builds/substitute-variable-values"""


def said(variables: Mapping[str, Any]) -> dict[str, str]:
    """Return Terraform's variables as substitutions."""
    own = {VARIABLES[name]: _text(value) for name, value in variables.items() if name in VARIABLES}
    rest = {name: value for name, value in variables.items() if name not in VARIABLES and name != "project_id"}
    return {**own, REST: json.dumps(rest, separators=(",", ":"))} if rest else own


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
