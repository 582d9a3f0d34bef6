"""Service Usage: which APIs a project has enabled. A new project has few; the others refuse their calls.

An API that was just enabled goes on refusing for a while, although it is listed as enabled.
"""

from __future__ import annotations

from tpukit.sandbox.google import longrunning
from tpukit.sandbox.google.api import Api, Call, Started
from tpukit.sandbox.google.cloud import Cloud
from tpukit.sandbox.google.common_refusals import service_disabled
from tpukit.sandbox.google.emulator_settings import number_of
from tpukit.sandbox.google.sources import GUESS
from tpukit.sandbox.google.state import Doc

NOT_EMULATED = (
    *("binaryauthorization", "cloudkms", "cloudtrace", "config", "containerfilesystem"),
    *("containersecurity", "datastore", "oauth2", "secretmanager"),
)
"""Enabled by people who set up a project; nothing of them is emulated."""
SERVICES = "projects/{project}/services"
V1 = "google.api.serviceusage.v1"
FILTERS = ("", "state:ENABLED", "state:DISABLED")
"""All that there are, says the discovery document; the words of the refusal of another one are a guess."""

api = Api(
    "service_usage",
    service="serviceusage.googleapis.com",
    document="serviceusage",
    title="Service Usage API",
    permissions="serviceusage",
    operation=longrunning.operation_format(
        lambda doc: longrunning.message(f"{V1}.OperationMetadata", {"resourceNames": doc["about"]["names"]})
    ),
)
longrunning.serve(api, "operations")


@api.on("GET", SERVICES, lists="")
def _listed(cloud: Cloud, call: Call) -> Doc:
    wanted = call.query.get("filter", "")
    if wanted not in FILTERS:
        raise GUESS.invalid(f"Invalid filter: {wanted!r}. The allowed ones are {' and '.join(FILTERS[1:])}.")
    services = [_body(cloud, call["project"], service) for service in known(cloud)]
    return {"services": [service for service in services if wanted in ("", f"state:{service['state']}")]}


@api.on("GET", SERVICES + "/{service}")
def _show(cloud: Cloud, call: Call) -> Doc:
    return _body(cloud, call["project"], _checked(cloud, call["service"]))


@api.on("POST", SERVICES + ":batchEnable", body="BatchEnableServicesRequest")
def _batch_enable(cloud: Cloud, call: Call) -> Started:
    return _switch(cloud, call["project"], call.body.get("serviceIds", []), "ENABLED", "BatchEnableServicesResponse")


@api.on("POST", SERVICES + "/{service}:enable")
def _enable(cloud: Cloud, call: Call) -> Started:
    return _switch(cloud, call["project"], [call["service"]], "ENABLED", "EnableServiceResponse")


@api.on("POST", SERVICES + "/{service}:disable", body="DisableServiceRequest")
def _disable(cloud: Cloud, call: Call) -> Started:
    return _switch(cloud, call["project"], [call["service"]], "DISABLED", "DisableServiceResponse")


def _switch(cloud: Cloud, project: str, services: list[str], state: str, kind: str) -> Started:
    """`kind`: of the message that it answers with at its end; each of the three ways has its own."""
    if not services or len(services) > 20:
        raise GUESS.invalid("From 1 to 20 services can be changed at once.")
    names = [_body(cloud, project, _checked(cloud, service))["name"] for service in services]
    return cloud.start(api, state, "", f"projects/{project}/services", kind=kind, names=names)


@api.on_operation_end("ENABLED", "DISABLED")
def _switched(cloud: Cloud, operation: Doc) -> None:
    if operation["fail"]:
        cloud.fail(operation)
        return
    project, kind = operation["target"].split("/")[1], operation["about"]["kind"]
    services = [name.rpartition("/")[2] for name in operation["about"]["names"]]
    for service in services:
        if state_of(cloud, project, service)["state"] != operation["type"]:
            changed = {"state": operation["type"], "_since": cloud.clock.now()}
            cloud.state.put("service", f"projects/{project}/services/{service}", changed)
    bodies = [_body(cloud, project, service) for service in services]
    body = {"services": bodies} if kind.startswith("Batch") else {"service": bodies[0]}
    cloud.respond(operation, longrunning.message(f"{V1}.{kind}", body))


def known(cloud: Cloud) -> list[str]:
    """All that a project can enable."""
    emulated = (api.document for api in cloud.apis.values() if api.document)
    return [f"{name}.googleapis.com" for name in sorted((*emulated, *NOT_EMULATED))]


def _checked(cloud: Cloud, service: str) -> str:
    if service not in known(cloud):
        raise GUESS.not_found(f"Service {service} not found or permission denied.")
    return service


def _body(cloud: Cloud, project: str, service: str) -> Doc:
    parent = f"projects/{number_of(project)}"
    state = state_of(cloud, project, service)["state"]
    return {"name": f"{parent}/services/{service}", "parent": parent, "state": state, "config": {"name": service}}


def state_of(cloud: Cloud, project: str, service: str) -> Doc:
    """Whether an API is on, and since when."""
    on = cloud.settings.enabled
    first = {"state": "ENABLED" if "*" in on or service.partition(".")[0] in on else "DISABLED", "_since": 0.0}
    return cloud.state.get("service", f"projects/{project}/services/{service}") or first


def check_enabled(cloud: Cloud, wanted: Api, project: str) -> None:
    """Refuses where the project has the API off, or on for a moment only. Needed by handlers whose path names no
    project."""
    if not wanted.service:
        return
    now = state_of(cloud, project, wanted.service)
    if now["state"] == "ENABLED" and (
        not now["_since"] or now["_since"] + cloud.settings.arrival_seconds <= cloud.clock.now()
    ):
        return
    raise service_disabled(wanted, number_of(project))
