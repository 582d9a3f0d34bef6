"""Cloud TPU API v2: common parts of TPU VMs and queued resources, and the offer of each zone."""

from __future__ import annotations

from tpubox.google.compute import stock_and_quota
from tpubox.google.compute.stock_and_quota import Holding
from tpubox.google.tpu import versions as tpu_versions
from tpubox.google.wire import location_checks, longrunning
from tpubox.google.wire.api import Api, Call, Started
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.refusal import Refused
from tpubox.google.wire.sources import GUESS, TPU_CAPACITY, TPU_QUOTA
from tpubox.google.wire.state import Doc
from tpukit.catalogue import Slice, find, find_shape, slices
from tpukit.core.errors import Invalid

LOCATION = "projects/{project}/locations/{location}"
RUNTIMES = ("tpu-ubuntu2204-base", "tpu-vm-cos-stable", "v2-alpha-tpuv5", "v2-alpha-tpuv5-lite", "v2-alpha-tpuv6e")
_TYPES = {"V2": "v2", "V3": "v3", "V4": "v4", "V5LITE_POD": "v5e", "V5P": "v5p", "V6E": "v6e"}


def _metadata(doc: Doc) -> Doc:
    version = _version(doc)
    done = {
        "target": doc["target"],
        "verb": doc["type"].partition("_")[0].lower(),
        "apiVersion": version,
        **longrunning.times(doc, end="endTime"),
    }
    # As recorded; the documentation has the message of the same name in the API's own package.
    return longrunning.message("google.cloud.common.OperationMetadata", done)


def _version(operation: Doc) -> str:
    return str(operation["about"].get("version", tpu_versions.V2))


api = Api(
    "tpu",
    service="tpu.googleapis.com",
    document="tpu",
    title="Cloud TPU API",
    versions=("v2", "v2alpha1", "v1"),
    permissions="tpu",
    has_location=location_checks.is_zone,
    terraform={"TPU_V2": "v2/"},
    schemas=tpu_versions.SCHEMAS,
    operation=longrunning.operation_format(_metadata),
)
longrunning.serve(api, LOCATION + "/operations")


def start(cloud: Cloud, call: Call, kind: str, target: str, **about: object) -> Started:
    """Start an operation, which reports in the API version of the call."""
    return cloud.start(api, kind, place(call), target, version=tpu_versions.of(call), **about)


def respond(cloud: Cloud, operation: Doc, message: str, doc: Doc) -> None:
    """Set the response of an operation: a Node or a QueuedResource."""
    version = _version(operation)
    told = tpu_versions.shown(message, doc, version)
    cloud.respond(operation, longrunning.message(f"google.cloud.tpu.{version}.{message}", told))


def place(call: Call) -> str:
    return LOCATION.format(**call.names)


def offered(zone: str) -> list[Slice]:
    """Return the shapes of a zone by name. The newest generation is available only through GKE."""
    known = {shape.name: shape for shape in reversed(slices()) if zone in shape.zones and shape.generation != "tpu7x"}
    return list(reversed(known.values()))


def shape_of(node: Doc, zone: str) -> Slice:
    """Return the slice that a TPU VM requests, by type or by topology."""
    try:
        config = node.get("acceleratorConfig")
        if config:
            found = find_shape(_TYPES.get(config.get("type", ""), ""), config.get("topology", ""))
            named = node.get("acceleratorType")
            if named and find(named).name != found.name:
                raise GUESS.invalid(f"accelerator_type {named} and accelerator_config are not the same accelerator.")
        else:
            found = find(node.get("acceleratorType") or "v2-8")
    except Invalid as error:
        raise GUESS.invalid(f"Invalid accelerator: {error.problems[0].what}") from error
    if found.name not in {shape.name for shape in offered(zone)}:
        raise GUESS.invalid(f'Accelerator type "{found.name}" is not available in zone {zone}.')
    if node.get("runtimeVersion") not in RUNTIMES:
        raise GUESS.invalid(f"Runtime version {node.get('runtimeVersion')!r} was not found in zone {zone}.")
    return found


def check_quota(cloud: Cloud, asked: Holding, target: str) -> None:
    short = stock_and_quota.short_by(cloud, asked, stock_and_quota.TPU_API, target)
    if short:
        kind = "Preemptible" if asked.spot else ""
        limit = f"TPU{asked.generation.upper()}{kind}PerProjectPerRegionForTPUAPI"
        raise TPU_QUOTA.refused(
            429, f"Quota limit '{limit}' has been exceeded. Limit: {short[1]} in region {asked.region}.", reason="quota"
        )


def no_capacity(zone: str) -> Refused:
    return TPU_CAPACITY.refused(
        429,
        f'There is no more capacity in the zone "{zone}"; you can try in another zone where Cloud TPU Nodes are '
        "offered (see https://cloud.google.com/tpu/docs/regions)",
    )


@api.on("GET", "projects/{project}/locations", lists="Location")
def _locations(cloud: Cloud, call: Call) -> Doc:
    return {"locations": [_location(call["project"], zone) for zone in stock_and_quota.zones() if offered(zone)]}


@api.on("GET", LOCATION)
def _show_location(cloud: Cloud, call: Call) -> Doc:
    _known(call["location"])
    return _location(call["project"], call["location"])


def _location(project: str, zone: str) -> Doc:
    return {"name": f"projects/{project}/locations/{zone}", "locationId": zone}


def _known(zone: str) -> None:
    if zone not in stock_and_quota.zones():
        raise GUESS.not_found(f"Location {zone} is not found or access is unauthorized.")


@api.on("GET", LOCATION + "/acceleratorTypes", lists="AcceleratorType")
def _types(cloud: Cloud, call: Call) -> Doc:
    _known(call["location"])
    return {"acceleratorTypes": [_type(call, shape) for shape in offered(call["location"])]}


@api.on("GET", LOCATION + "/acceleratorTypes/{type}")
def _show_type(cloud: Cloud, call: Call) -> Doc:
    for shape in offered(call["location"]):
        if shape.name == call["type"]:
            return _type(call, shape)
    raise GUESS.not_found(f"Accelerator type {call['type']} was not found in {call['location']}.")


def _type(call: Call, shape: Slice) -> Doc:
    configs = [accelerator_config(shape)]
    return {"name": f"{place(call)}/acceleratorTypes/{shape.name}", "type": shape.name, "acceleratorConfigs": configs}


def accelerator_config(shape: Slice) -> Doc:
    words = {generation: word for word, generation in _TYPES.items()}
    return {"type": words[shape.generation], "topology": shape.topology}


@api.on("GET", LOCATION + "/runtimeVersions", lists="RuntimeVersion")
def _runtimes(cloud: Cloud, call: Call) -> Doc:
    _known(call["location"])
    root = f"{place(call)}/runtimeVersions"
    return {"runtimeVersions": [{"name": f"{root}/{version}", "version": version} for version in RUNTIMES]}


@api.on("GET", LOCATION + "/runtimeVersions/{version}")
def _show_runtime(cloud: Cloud, call: Call) -> Doc:
    if call["version"] not in RUNTIMES:
        raise GUESS.not_found(f"Runtime version {call['version']} was not found in {call['location']}.")
    return {"name": f"{place(call)}/runtimeVersions/{call['version']}", "version": call["version"]}
