"""The rules from which `fields.json` is written: which fields Google's requests have, and what its lists hold, and of
what type.

    python -m tpukit.sandbox.google.request_fields FOLDER    writes it

FOLDER holds Google's discovery documents as `API/VERSION/API-api.json`. The Go module google.golang.org/api carries
them so: `go list -m -f '{{.Dir}}' google.golang.org/api` below tools/provider prints such a folder.

A type is a scalar ("string", "boolean", "int32", "int64", "double", "any"), "$Name" for a message, [type] for a list,
{"*": type} for a map, {"one of": [names]} for an enumeration whose numbers count from 0, and {"one of": {name: number}}
for one whose numbers do not.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("fields.json")

REQUESTS = {
    "artifactregistry/v1": ("Repository", "SetIamPolicyRequest", "TestIamPermissionsRequest"),
    "aiplatform/v1": tuple(
        f"GoogleCloudAiplatformV1{name}"
        for name in (
            *("Tensorboard", "TensorboardExperiment", "TensorboardRun", "TensorboardTimeSeries"),
            *("BatchCreateTensorboardRunsRequest", "BatchCreateTensorboardTimeSeriesRequest"),
            *("WriteTensorboardExperimentDataRequest", "WriteTensorboardRunDataRequest"),
        )
    ),
    "cloudbuild/v1": ("Build",),
    "cloudresourcemanager/v1": ("GetIamPolicyRequest", "SetIamPolicyRequest", "TestIamPermissionsRequest"),
    "compute/v1": (
        *("Firewall", "Metadata", "Network", "RegionSetPolicyRequest", "ResourcePolicy", "Router", "Subnetwork"),
        "TestPermissionsRequest",
    ),
    "container/v1": (
        *("CreateClusterRequest", "UpdateClusterRequest", "SetLabelsRequest", "SetMaintenancePolicyRequest"),
        *("CreateNodePoolRequest", "UpdateNodePoolRequest", "SetNodePoolSizeRequest"),
        *("SetNodePoolManagementRequest", "SetNodePoolAutoscalingRequest"),
    ),
    "firestore/v1": ("GoogleFirestoreAdminV1Database",),
    "iam/v1": (
        *("CreateServiceAccountRequest", "PatchServiceAccountRequest", "SetIamPolicyRequest"),
        *("TestIamPermissionsRequest", "CreateRoleRequest", "QueryTestablePermissionsRequest", "UndeleteRoleRequest"),
    ),
    "iamcredentials/v1": ("GenerateAccessTokenRequest",),
    "logging/v2": ("ListLogEntriesRequest", "LogMetric", "WriteLogEntriesRequest"),
    "monitoring/v1": ("Dashboard",),
    "monitoring/v3": ("AlertPolicy", "NotificationChannel"),
    "oslogin/v1": ("SshPublicKey",),
    "serviceusage/v1": ("BatchEnableServicesRequest", "DisableServiceRequest"),
    "storage/v1": ("Bucket", "ComposeRequest", "ManagedFolder", "Object", "Policy"),
    "tpu/v2": ("GetGuestAttributesRequest", "Node", "QueuedResource"),
    "tpu/v2alpha1": (
        *("GetGuestAttributesRequest", "Node", "QueuedResource", "PerformMaintenanceQueuedResourceRequest"),
        *("PerformMaintenanceRequest", "SimulateMaintenanceEventRequest"),
    ),
}
APART = ("tpu/v2alpha1",)
"""Versions whose messages differ from those of the same names in another: each is kept by itself, under both words."""
LISTED = {
    "artifactregistry/v1": ("Tag",),
    "aiplatform/v1": ("GoogleLongrunningOperation",),
    "compute/v1": ("InstanceGroup", "InstanceGroupManager", "ManagedInstance", "Region", "Zone"),
    "firestore/v1": ("GoogleLongrunningOperation",),
    "serviceusage/v1": ("Operation",),
    "tpu/v2": ("AcceleratorType", "Location", "Operation", "RuntimeVersion"),
}
"""What lists hold besides what requests do: their filters name its fields."""

_LOGGING = (0, 1, 2, 3, 4, 5, 7, 8, 9, 10)
_MONITORING = (0, 1, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)
NUMBERS = {
    "AcceleratorConfig.type": (0, 2, 4, 7, 9, 10, 11),
    "AdvancedDatapathObservabilityConfig.relayMode": (0, 1, 3, 4),
    "DataplaneV2Config.scalabilityMode": (0, 3, 4),
    "GatewayAPIConfig.channel": (0, 1, 3, 4),
    "GPUDirectConfig.gpuDirectStrategy": (0, 2),
    "LogEntry.severity": tuple(range(0, 900, 100)),
    "LoggingComponentConfig.enableComponents": _LOGGING,
    "MonitoringComponentConfig.enableComponents": _MONITORING,
    "UpgradeSettings.strategy": (0, 2, 3, 5),
}
"""Enumerations with gaps: Google's Python clients send numbers, and the discovery documents have only names."""


def gather(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Every message that the requests and the lists are made of, by API."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for api, roots in REQUESTS.items():
        name = api.partition("/")[0]
        schemas = json.loads((folder / api / f"{name}-api.json").read_text(encoding="utf-8"))["schemas"]
        messages: dict[str, dict[str, Any]] = {}
        waiting = [*roots, *LISTED.get(api, ())]
        while waiting:
            message = waiting.pop()
            if message in messages:
                continue
            properties = schemas[message].get("properties", {})
            messages[message] = {field: _type(f"{message}.{field}", what) for field, what in properties.items()}
            for field, what in properties.items():
                inner = what.get("items") or what
                if "properties" in inner:  # a message without a name of its own
                    schemas[f"{message}.{field}"] = inner
                    waiting.append(f"{message}.{field}")
            waiting += [reference for what in properties.values() for reference in _references(what)]
        name = api if api in APART else name
        known = found.get(name, {})
        differing = [one for one in known.keys() & messages.keys() if known[one] != messages[one]]
        if differing:
            raise ValueError(f"versions of {name} have different messages of one name: {', '.join(differing)}")
        found[name] = dict(sorted({**known, **messages}.items()))
    return found


def _type(field: str, what: dict[str, Any]) -> Any:
    if "$ref" in what:
        return f"${what['$ref']}"
    if "enum" in what:
        numbers = NUMBERS.get(field)
        return {"one of": dict(zip(what["enum"], numbers, strict=True)) if numbers else what["enum"]}
    if what["type"] == "array":
        return [_type(field, what["items"])]
    if "properties" in what:
        return f"${field}"
    if what["type"] == "object":
        return {"*": _type(field, what["additionalProperties"])} if "additionalProperties" in what else "any"
    whole = {"int32", "uint32", "int64", "uint64"}
    form = what.get("format")
    if form in whole:
        return form.removeprefix("u")
    return {"integer": "int32", "number": "double"}.get(what["type"], what["type"])


def _references(what: dict[str, Any]) -> list[str]:
    if "$ref" in what:
        return [what["$ref"]]
    inner = what.get("items") or what.get("additionalProperties")
    return _references(inner) if inner else []


def document(folder: Path) -> str:
    """The text of `fields.json`: one message a line, so that a new version of an API shows as what it changed."""
    apis = []
    for api, messages in gather(folder).items():
        lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(fields)}" for name, fields in messages.items())
        apis.append(f"  {json.dumps(api)}: {{\n{lines}\n  }}")
    return "{\n" + ",\n".join(apis) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(document(Path(sys.argv[1])), encoding="utf-8")
