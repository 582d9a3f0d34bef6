"""Artifact Registry: repositories, their IAM policies, and the names, tags and digests of their images."""

from __future__ import annotations

import re
from urllib.parse import quote

from tpubox.google.iam import held_permissions, policy
from tpubox.google.wire import location_checks, longrunning, update_masks
from tpubox.google.wire.api import Api, Call, Started, replaced
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.refusal import Refused
from tpubox.google.wire.sources import GUESS, REPOSITORY_NOT_FOUND
from tpubox.google.wire.state import Doc

LOCATION = "projects/{project}/locations/{location}"
REPOSITORY = LOCATION + "/repositories/{repository}"
_FIXED = ("format", "kmsKeyName", "mode")
"""Fields whose change makes the Terraform provider recreate the repository."""
_OUTPUT = (
    *("createTime", "name", "registryUri", "satisfiesPzi", "satisfiesPzs", "sizeBytes", "updateTime"),
    "vulnerabilityScanningConfig",
)

api = Api(
    "artifact_registry",
    service="artifactregistry.googleapis.com",
    document="artifactregistry",
    title="Artifact Registry API",
    versions=("v1", "v1beta2"),
    permissions="artifactregistry",
    has_location=location_checks.is_region_or_multi_region,
    operation=longrunning.operation_format(
        lambda _: longrunning.message("google.devtools.artifactregistry.v1.OperationMetadata", {})
    ),
)
longrunning.serve(api, LOCATION + "/operations", listed=False)


@api.on("POST", LOCATION + "/repositories", body="Repository")
def _create(cloud: Cloud, call: Call) -> Started:
    name = call.query.get("repository_id") or call.query.get("repositoryId") or ""
    if not re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", name):
        raise GUESS.invalid(f"Invalid repository ID {name!r}.")
    if not call.body.get("format"):
        raise GUESS.invalid("The format of the repository must be given.")
    scope = LOCATION.format(**call.names)
    full = f"{scope}/repositories/{name}"
    if cloud.state.get("repository", full):
        raise GUESS.exists("the repository already exists")
    stamps = {"createTime": cloud.stamp(), "updateTime": cloud.stamp()}
    given = {field: value for field, value in call.body.items() if field not in _OUTPUT}
    made: Doc = {"mode": "STANDARD_REPOSITORY", **given, "name": full, **stamps, "sizeBytes": "0"}
    made |= {"satisfiesPzi": True, "vulnerabilityScanningConfig": _scanning(call, made)}
    cloud.state.put("repository", full, made)
    response = longrunning.message("google.devtools.artifactregistry.v1.Repository", made)
    return cloud.start(api, "CREATE", scope, full, response=response)


def _scanning(call: Call, repository: Doc) -> Doc:
    """Return a disabled scanning configuration: the sandbox does not have the scanning API."""
    why = "API containerscanning.googleapis.com is not enabled."
    if repository["mode"] != "STANDARD_REPOSITORY":
        why = f"Repository mode {repository['mode']} is not supported."
    elif repository["format"] != "DOCKER":
        why = "Repository format is not supported."  # a guess
    state = "SCANNING_DISABLED" if repository["mode"] == "STANDARD_REPOSITORY" else "SCANNING_UNSUPPORTED"
    return {"enablementState": state, "enablementStateReason": why, "lastEnableTime": repository["createTime"]}


@api.on("GET", LOCATION + "/repositories", lists="Repository")
def _listed(cloud: Cloud, call: Call) -> Doc:
    return {"repositories": list(cloud.state.all("repository", f"{LOCATION.format(**call.names)}/").values())}


@api.on("GET", REPOSITORY)
def _show(cloud: Cloud, call: Call) -> Doc:
    return _find(cloud, call)


@api.on("PATCH", REPOSITORY, body="Repository")
def _patch(cloud: Cloud, call: Call) -> Doc:
    old = _find(cloud, call)
    fields = update_masks.changed(call, old, fixed=_FIXED, output=_OUTPUT)
    new = {**replaced(old, call.body, fields), "updateTime": cloud.stamp()}
    cloud.state.put("repository", old["name"], new)
    return new


@api.on("DELETE", REPOSITORY)
def _delete(cloud: Cloud, call: Call) -> Started:
    full = _find(cloud, call)["name"]
    return cloud.start(api, "DELETE", LOCATION.format(**call.names), full)


@api.on_operation_end("CREATE", "DELETE")
def _changed(cloud: Cloud, operation: Doc) -> None:
    if operation["fail"]:
        cloud.fail(operation)
    if (operation["type"] == "DELETE") != bool(operation["fail"]):
        cloud.state.delete("repository", operation["target"])
        for image in cloud.state.all("image", f"{operation['target']}/"):
            cloud.state.delete("image", image)
        policy.forget(cloud, operation["target"])


@api.on("GET", REPOSITORY + ":getIamPolicy")
def _get_policy(cloud: Cloud, call: Call) -> Doc:
    return policy.answer(cloud, _find(cloud, call)["name"], call)


@api.on("POST", REPOSITORY + ":setIamPolicy", body="SetIamPolicyRequest")
def _set_policy(cloud: Cloud, call: Call) -> Doc:
    return policy.put(cloud, _find(cloud, call)["name"], call.body.get("policy", {}))


held_permissions.register(api, REPOSITORY, "repository", body="TestIamPermissionsRequest")


@api.on("GET", REPOSITORY + "/dockerImages")
def _images(cloud: Cloud, call: Call) -> Doc:
    return {"dockerImages": list(cloud.state.all("image", f"{_find(cloud, call)['name']}/").values())}


@api.on("GET", REPOSITORY + "/packages/{package}/tags", lists="Tag")
def _tags(cloud: Cloud, call: Call) -> Doc:
    repository = _find(cloud, call)["name"]
    images = cloud.state.all("image", f"{repository}/dockerImages/{call['package']}@")
    if not images:
        raise _not_found()
    package = f"{repository}/packages/{quote(call['package'], safe='')}"
    tags = [
        {"name": f"{package}/tags/{tag}", "version": f"{package}/versions/{name.rpartition('@')[2]}"}
        for name, image in images.items()
        for tag in image["tags"]
    ]
    return {"tags": tags} if tags else {}


def push(cloud: Cloud, repository: str, name: str, tag: str, digest: str) -> None:
    """Store a pushed image and move the tag to it, unless the repository has immutable tags."""
    found = cloud.state.get("repository", repository) or {}
    location, registry = repository.split("/")[3], "/".join(repository.split("/")[1::4])
    for key, image in cloud.state.all("image", f"{repository}/dockerImages/{name}@").items():
        if tag in image["tags"] and not image["uri"].endswith(digest):
            if found.get("dockerConfig", {}).get("immutableTags"):
                why = f"cannot update tag {tag}. The repository has enabled tag immutability"
                raise GUESS.invalid(f"failed to push {name}:{tag}: manifest invalid: {why}")
            cloud.state.put("image", key, {**image, "tags": [one for one in image["tags"] if one != tag]})
    full = f"{repository}/dockerImages/{name}@{digest}"
    old = cloud.state.get("image", full) or {"tags": []}
    made = {
        "name": full,
        "uri": f"{location}-docker.pkg.dev/{registry}/{name}@{digest}",
        "tags": sorted({*old["tags"], tag}),
        "imageSizeBytes": "0",
        "uploadTime": cloud.stamp(),
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
    }
    cloud.state.put("image", full, made)


def _find(cloud: Cloud, call: Call) -> Doc:
    full = REPOSITORY.format(**call.names)
    found = cloud.state.get("repository", full)
    if found is None:
        raise _not_found()
    return found


def _not_found() -> Refused:
    return REPOSITORY_NOT_FOUND.not_found("Requested entity was not found.")
