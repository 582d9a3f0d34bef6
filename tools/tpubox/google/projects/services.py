"""Service Usage: the enabled APIs of a project. A new project has few; the others refuse their calls.

A newly enabled API refuses calls for a while, although it is listed as enabled. Its dependencies are enabled with it,
and stay enabled as long as it is.
"""

from __future__ import annotations

from tpubox.google.projects import service_dependencies
from tpubox.google.wire import longrunning
from tpubox.google.wire.api import Api, Call, Started
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.common_refusals import service_disabled
from tpubox.google.wire.settings import number_of
from tpubox.google.wire.sources import GUESS
from tpubox.google.wire.state import Doc

NOT_EMULATED = (
    *("binaryauthorization", "cloudapis", "cloudkms", "cloudtrace", "config", "containerfilesystem"),
    *("containersecurity", "datastore", "oauth2", "secretmanager"),
)
"""APIs that users enable when they set up a project, without an emulation."""
SERVICES = "projects/{project}/services"
USAGE_SECONDS = 30 * 86400.0
V1 = "google.api.serviceusage.v1"
FILTERS = ("", "state:ENABLED", "state:DISABLED")
"""All filters, according to the discovery document; the error text for another one is a guess."""

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
    _check(cloud, [call["service"]])
    return _body(cloud, call["project"], call["service"])


@api.on("POST", SERVICES + ":batchEnable", body="BatchEnableServicesRequest")
def _batch_enable(cloud: Cloud, call: Call) -> Started:
    return _enable_all(cloud, call["project"], call.body.get("serviceIds", []), "BatchEnableServicesResponse")


@api.on("POST", SERVICES + "/{service}:enable")
def _enable(cloud: Cloud, call: Call) -> Started:
    return _enable_all(cloud, call["project"], [call["service"]], "EnableServiceResponse")


@api.on("POST", SERVICES + "/{service}:disable", body="DisableServiceRequest")
def _disable(cloud: Cloud, call: Call) -> Started:
    project, service = call["project"], call["service"]
    _check(cloud, [service])
    dependents = service_dependencies.dependents(service, lambda one: _is_on(cloud, project, one))
    if dependents and not call.body.get("disableDependentServices"):
        raise service_dependencies.still_needed(service, dependents)
    if call.body.get("checkIfServiceHasUsage") == "CHECK":
        used = [one for one in (service, *dependents) if _is_used(cloud, project, one)]
        if used:
            raise GUESS.not_ready(f"The services {','.join(used)} have usage in the last 30 days.")
    return _switch(cloud, project, [service], dependents, "DISABLED", "DisableServiceResponse")


def _enable_all(cloud: Cloud, project: str, services: list[str], kind: str) -> Started:
    if not services or len(services) > 20:
        raise GUESS.invalid("From 1 to 20 services can be enabled at once.")
    _check(cloud, services)
    others = [one for service in services for one in service_dependencies.needed(service)]
    return _switch(cloud, project, services, others, "ENABLED", kind)


def _switch(cloud: Cloud, project: str, services: list[str], others: list[str], state: str, kind: str) -> Started:
    """Start to enable or disable services, together with `others`. `kind` is the message of the final response."""
    names = [_body(cloud, project, service)["name"] for service in services]
    return cloud.start(api, state, "", f"projects/{project}/services", kind=kind, names=names, others=others)


@api.on_operation_end("ENABLED", "DISABLED")
def _switched(cloud: Cloud, operation: Doc) -> None:
    if operation["fail"]:
        cloud.fail(operation)
        return
    project, kind = operation["target"].split("/")[1], operation["about"]["kind"]
    services = [name.rpartition("/")[2] for name in operation["about"]["names"]]
    for service in (*services, *operation["about"]["others"]):
        if state_of(cloud, project, service)["state"] != operation["type"]:
            changed = {"state": operation["type"], "_since": cloud.clock.now()}
            cloud.state.put("service", f"projects/{project}/services/{service}", changed)
    bodies = [_body(cloud, project, service) for service in services]
    body = {"services": bodies} if kind.startswith("Batch") else {"service": bodies[0]}
    cloud.respond(operation, longrunning.message(f"{V1}.{kind}", body))


def known(cloud: Cloud) -> list[str]:
    """Return all services that a project can enable."""
    emulated = (api.document for api in cloud.apis.values() if api.document)
    return [f"{name}.googleapis.com" for name in sorted((*emulated, *NOT_EMULATED))]


def _check(cloud: Cloud, services: list[str]) -> None:
    there = known(cloud)
    if missing := [service for service in services if service not in there]:
        raise service_dependencies.unknown(missing)


def _is_on(cloud: Cloud, project: str, service: str) -> bool:
    return bool(state_of(cloud, project, service)["state"] == "ENABLED")


def _is_used(cloud: Cloud, project: str, service: str) -> bool:
    """Return True if recent requests, as far as they are remembered and name the project, used the service."""
    doors = [one.name for one in cloud.apis.values() if one.service == service]
    return any(
        one["path"].partition("/")[0] in doors
        and f"projects/{project}/" in f"{one['path']}/"
        and one["status"] < 300
        and one["at"] > cloud.clock.now() - USAGE_SECONDS
        for one in cloud.state.requests()
    )


def _body(cloud: Cloud, project: str, service: str) -> Doc:
    parent = f"projects/{number_of(project)}"
    state = state_of(cloud, project, service)["state"]
    return {"name": f"{parent}/services/{service}", "parent": parent, "state": state, "config": {"name": service}}


def state_of(cloud: Cloud, project: str, service: str) -> Doc:
    """Return the state of an API and the time since which it applies."""
    on = cloud.settings.enabled
    first = {"state": "ENABLED" if "*" in on or service.partition(".")[0] in on else "DISABLED", "_since": 0.0}
    return cloud.state.get("service", f"projects/{project}/services/{service}") or first


def check_enabled(cloud: Cloud, wanted: Api, project: str) -> None:
    """Refuse if the project has the API disabled, or enabled it a moment ago.

    For handlers whose path names no project.
    """
    if not wanted.service:
        return
    now = state_of(cloud, project, wanted.service)
    if now["state"] == "ENABLED" and (
        not now["_since"] or now["_since"] + cloud.settings.arrival_seconds <= cloud.clock.now()
    ):
        return
    raise service_disabled(wanted, number_of(project))
