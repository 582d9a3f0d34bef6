"""Service Usage: which APIs a project has enabled. All are, until one is disabled; that one then refuses its calls."""

from __future__ import annotations

from tpukit.sandbox.google import longrunning
from tpukit.sandbox.google.api import Api, Call, Started
from tpukit.sandbox.google.cloud import Cloud
from tpukit.sandbox.google.emulator_settings import number_of
from tpukit.sandbox.google.refusal import Refused, invalid
from tpukit.sandbox.google.state import Doc

EMULATED = (
    *(
        "aiplatform",
        "artifactregistry",
        "cloudbilling",
        "cloudbuild",
        "cloudresourcemanager",
        "compute",
        "container",
        "firestore",
    ),
    *("iam", "logging", "serviceusage", "storage", "tpu"),
)
NOT_EMULATED = ("cloudtrace", "config", "iamcredentials", "monitoring", "oauth2", "secretmanager")
"""Enabled by people who set up a project; nothing of them is emulated."""
KNOWN = tuple(f"{name}.googleapis.com" for name in sorted((*EMULATED, *NOT_EMULATED)))
SERVICES = "projects/{project}/services"

api = Api(
    "service_usage",
    schema="serviceusage",
    operation=longrunning.operation_format("google.api.serviceusage.v1.OperationMetadata"),
)
longrunning.serve(api, "operations")


@api.on("GET", SERVICES)
def _listed(cloud: Cloud, call: Call) -> Doc:
    services = [_body(cloud, call["project"], service) for service in KNOWN]
    wanted = call.query.get("filter", "").removeprefix("state:")
    return {"services": [service for service in services if wanted in ("", service["state"])]}


@api.on("GET", SERVICES + "/{service}")
def _show(cloud: Cloud, call: Call) -> Doc:
    return _body(cloud, call["project"], _known(call["service"]))


@api.on("POST", SERVICES + ":batchEnable", body="BatchEnableServicesRequest")
def _batch_enable(cloud: Cloud, call: Call) -> Started:
    return _switch(cloud, call["project"], call.body.get("serviceIds", []), "ENABLED")


@api.on("POST", SERVICES + "/{service}:enable")
def _enable(cloud: Cloud, call: Call) -> Started:
    return _switch(cloud, call["project"], [call["service"]], "ENABLED")


@api.on("POST", SERVICES + "/{service}:disable", body="DisableServiceRequest")
def _disable(cloud: Cloud, call: Call) -> Started:
    return _switch(cloud, call["project"], [call["service"]], "DISABLED")


def _switch(cloud: Cloud, project: str, services: list[str], state: str) -> Started:
    if not services or len(services) > 20:
        raise invalid("From 1 to 20 services can be changed at once.")
    for service in services:
        cloud.state.put("service", f"projects/{project}/services/{_known(service)}", {"state": state})
    bodies = {"services": [_body(cloud, project, service) for service in services]}
    response = longrunning.message("google.api.serviceusage.v1.BatchEnableServicesResponse", bodies)
    return cloud.start(api, state, "", f"projects/{project}/services", response=response)


def _known(service: str) -> str:
    if service not in KNOWN:
        raise Refused(404, f"Service {service} not found or permission denied.")
    return service


def _body(cloud: Cloud, project: str, service: str) -> Doc:
    parent = f"projects/{number_of(project)}"
    state = cloud.state.get("service", f"projects/{project}/services/{service}") or {"state": "ENABLED"}
    return {"name": f"{parent}/services/{service}", "parent": parent, **state, "config": {"name": service}}
