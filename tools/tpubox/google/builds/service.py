"""Cloud Build: image builds from a Dockerfile in Cloud Storage, run as a service account that needs its permissions.

Nothing is executed. A build checks what would stop a real one: its source and the Dockerfile in it, its account, the
destination of its log, and its permissions to read and push. A pushed image appears in Artifact Registry under a digest
derived from the source.
https://cloud.google.com/build/docs/api/reference/rest/v1/projects.builds
"""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
import uuid

from tpubox.google.artifacts import repositories as artifact_registry
from tpubox.google.artifacts.image_pulls import IMAGE
from tpubox.google.iam import acting
from tpubox.google.iam.conditions import Facts
from tpubox.google.logging import entries as log_entries
from tpubox.google.storage import buckets as storage
from tpubox.google.storage import object_versions
from tpubox.google.wire.api import Api, Call, Started
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.refusal import Refused
from tpubox.google.wire.settings import number_of
from tpubox.google.wire.sources import BUILD_LOGS, GUESS
from tpubox.google.wire.state import Doc

LOCATION = "projects/{project}/locations/{location}"
BUILDS = LOCATION + "/builds"
_DOCKER = "gcr.io/cloud-builders/docker"
_ACCOUNT = re.compile(r"projects/([^/]+)/serviceAccounts/([^/]+)")
_AGENT = "cloud-build"


class _Failed(Exception):
    """The build ran and ended without an image."""


def _operation(doc: Doc) -> Doc:
    about = {
        "@type": "type.googleapis.com/google.devtools.cloudbuild.v1.BuildOperationMetadata",
        "build": doc["about"]["build"],
    }
    return {"name": f"{doc['scope']}/operations/{doc['id']}", "metadata": about, "done": doc["done"]}


api = Api(
    "cloud_build",
    service="cloudbuild.googleapis.com",
    document="cloudbuild",
    title="Cloud Build API",
    operation=_operation,
)


@api.on("POST", BUILDS, body="Build")
def _create(cloud: Cloud, call: Call) -> Started:
    project, asked = call["project"], call.body
    if not asked.get("steps"):
        raise GUESS.invalid("invalid build: no build steps provided")
    account = _account(cloud, project, asked)
    _check_logging(asked)
    scope = LOCATION.format(**call.names)
    build = {
        "timeout": "3600s",
        **asked,
        "id": str(uuid.UUID(int=cloud.state.next(), version=4)),
        "projectId": project,
        "status": "QUEUED",
        "createTime": cloud.stamp(),
        "serviceAccount": account,
    }
    build["name"] = f"{scope}/builds/{build['id']}"
    build["logUrl"] = f"https://console.cloud.google.com/cloud-build/builds/{build['id']}?project={number_of(project)}"
    cloud.state.put("build", build["name"], build)
    return cloud.start(api, "BUILD", scope, build["name"], build=build)


@api.on("GET", BUILDS + "/{build}")
def _show(cloud: Cloud, call: Call) -> Doc:
    found = cloud.state.get("build", f"{LOCATION.format(**call.names)}/builds/{call['build']}")
    if found is None:
        raise GUESS.not_found(f"Requested entity was not found: {call['build']}")
    return found


@api.on_operation_end("BUILD")
def _run(cloud: Cloud, operation: Doc) -> None:
    build = cloud.state.get("build", operation["target"]) or {}
    ended: Doc = {"startTime": build["createTime"], "finishTime": cloud.stamp()}
    try:
        if operation["fail"]:
            raise _Failed(operation["fail"])
        content = _source(cloud, build)
        images = [_pushed(cloud, build, name, content) for name in build.get("images", [])]
    except _Failed as failed:
        ended |= {"status": "FAILURE", "statusDetail": str(failed)}
        printed = f"ERROR: {failed}"
    else:
        ended |= {"status": "SUCCESS", "results": {"images": images}}
        printed = "\n".join(["PUSH", *(f"{image['name']}: digest: {image['digest']}" for image in images), "DONE"])
    if (build.get("options") or {}).get("logging") == "CLOUD_LOGGING_ONLY" and not _logged(cloud, build, printed):
        why = "does not have permission to write logs to Cloud Logging"  # the error text is a guess
        text = f"The service account running this build {_email(build)} {why}."
        ended["warnings"] = [{"text": text, "priority": "WARNING"}]
    cloud.state.put("build", build["name"], {**build, **ended})


def _logged(cloud: Cloud, build: Doc, printed: str) -> bool:
    """Write the build's log, and return False if its account may not write logs.

    The build itself ends the same either way.
    https://cloud.google.com/build/docs/securing-builds/store-manage-build-logs
    """
    project = f"projects/{build['projectId']}"
    if not acting.may(cloud, _AGENT, _email(build), "logging.logEntries.create", [project], Facts(project)):
        return False
    labels = {"build_id": build["id"], "project_id": build["projectId"], "build_trigger_id": ""}
    log_entries.write(cloud, f"{project}/logs/cloudbuild", {"type": "build", "labels": labels}, printed)
    return True


def _account(cloud: Cloud, project: str, asked: Doc) -> str:
    """Return the full name of the build's account; Compute Engine's default account if the request names none.

    The default applies to projects created since 2024:
    https://cloud.google.com/build/docs/cloud-build-service-account-updates
    """
    named = asked.get("serviceAccount")
    if not named:
        return f"projects/{project}/serviceAccounts/{number_of(project)}-compute@developer.gserviceaccount.com"
    match = _ACCOUNT.fullmatch(named)
    if not match:
        raise GUESS.invalid("invalid value for 'build.service_account'")
    if not cloud.state.get("account", f"projects/{project}/serviceAccounts/{match[2]}"):
        raise GUESS.not_found(f"generic::not_found: Service account {match[2]} does not exist.")
    return str(named)


def _check_logging(asked: Doc) -> None:
    options = asked.get("options", {})
    kept_elsewhere = options.get("logging") in ("CLOUD_LOGGING_ONLY", "NONE")
    regional = options.get("defaultLogsBucketBehavior") == "REGIONAL_USER_OWNED_BUCKET"
    if asked.get("serviceAccount") and not (asked.get("logsBucket") or kept_elsewhere or regional):
        raise BUILD_LOGS.invalid(
            "generic::invalid_argument: if 'build.service_account' is specified, the build must either (a) specify "
            "'build.logs_bucket', (b) use the REGIONAL_USER_OWNED_BUCKET build.options.default_logs_bucket_behavior "
            "option, or (c) use either CLOUD_LOGGING_ONLY / NONE logging options"
        )


def _source(cloud: Cloud, build: Doc) -> bytes:
    """Return the source archive, which must contain the Dockerfile of each docker step."""
    source = build.get("source", {}).get("storageSource", {})
    bucket, name = source.get("bucket", ""), source.get("object", "")
    found = object_versions.live(cloud, bucket, name) if cloud.state.get("bucket", bucket) else None
    if found is None:
        raise _Failed(f"could not resolve source: googleapi: Error 404: No such object: {bucket}/{name}")
    read = Facts(f"projects/_/buckets/{bucket}/objects/{name}", "storage.googleapis.com/Object")
    scopes = storage.scopes(cloud, bucket, name)
    if not acting.may(cloud, _AGENT, _email(build), "storage.objects.get", scopes, read):
        email = _email(build)
        raise _Failed(f"{email} does not have storage.objects.get access to the Google Cloud Storage object.")
    content = object_versions.content_of(cloud, found)
    for step in build["steps"]:
        if step.get("name") != _DOCKER or "build" not in step.get("args", []):
            continue
        wanted = _dockerfile(step["args"])
        if wanted not in _files(content):
            raise _Failed(
                "build step 0 failed: unable to prepare context: unable to evaluate symlinks in Dockerfile path: "
                f"lstat /workspace/{wanted}: no such file or directory"
            )
    return content


def _dockerfile(args: list[str]) -> str:
    for number, word in enumerate(args):
        if word in ("--file", "-f"):
            return args[number + 1]
        if word.startswith("--file="):
            return word.partition("=")[2]
    return "Dockerfile"


def _files(archive: bytes) -> set[str]:
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
            return {name.removeprefix("./") for name in opened.getnames()}
    except tarfile.TarError:
        return set()


def _pushed(cloud: Cloud, build: Doc, name: str, content: bytes) -> Doc:
    image = IMAGE.fullmatch(name)
    if not image or image[6]:
        raise _Failed(f"failed to push {name}: no such registry")
    repository = f"projects/{image[2]}/locations/{image[1]}/repositories/{image[3]}"
    if not cloud.state.get("repository", repository):
        raise _Failed(f'failed to push {name}: name unknown: Repository "{image[3]}" not found')
    permission = "artifactregistry.repositories.uploadArtifacts"
    scopes = [repository, f"projects/{image[2]}"]
    if not acting.may(cloud, _AGENT, _email(build), permission, scopes, Facts(repository)):
        raise _Failed(f'denied: Permission "{permission}" denied on resource "{repository}"')
    digest = f"sha256:{hashlib.sha256(name.encode() + content).hexdigest()}"
    try:
        artifact_registry.push(cloud, repository, image[4], image[5] or "latest", digest)
    except Refused as refused:
        raise _Failed(refused.message) from refused
    return {"name": name, "digest": digest}


def _email(build: Doc) -> str:
    return str(build["serviceAccount"]).rpartition("/")[2]
