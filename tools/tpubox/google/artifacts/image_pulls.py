"""Image pulls of GKE nodes.

An image in a project of the emulator must have been pushed, and the node's account must be allowed to read it. A
repository that does not exist answers like one without the image: containerd shortens both 404s to "not found".
Repositories of other projects are assumed to hold every image, because in the sandbox the machine is the image and no
push is needed to try a job.
https://cloud.google.com/kubernetes-engine/docs/troubleshooting/image-pulls
https://github.com/containerd/containerd/blob/main/core/remotes/docker/resolver.go
"""

from __future__ import annotations

import re

from tpubox.google.iam import acting, permissions
from tpubox.google.iam.conditions import Facts
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.state import Doc

IMAGE = re.compile(r"([a-z0-9-]+)-docker\.pkg\.dev/([^/]+)/([^/]+)/([^:@]+)(?::([\w.-]+))?(?:@(sha256:[0-9a-f]{64}))?")
PERMISSION = "artifactregistry.repositories.downloadArtifacts"


def pull(cloud: Cloud, node: str, image: str) -> Doc:
    """Return the error of the node's container runtime in `refused`, as users report it; empty if the pull succeeds."""
    found = IMAGE.fullmatch(image)
    repository = f"projects/{found[2]}/locations/{found[1]}/repositories/{found[3]}" if found else ""
    if not found or found[2] not in cloud.settings.projects:
        return {"refused": ""}
    account = _account(cloud, node)
    failed = f'failed to pull and unpack image "{image}": failed to resolve reference "{image}":'
    scopes = [repository, f"projects/{found[2]}"]
    if account and not acting.may(cloud, "kubelet", account, PERMISSION, scopes, Facts(repository)):
        token = f"https://{found[1]}-docker.pkg.dev/v2/token?scope=repository%3A{found[2]}%2F{found[3]}%3Apull"
        return {
            "refused": f"{failed} failed to authorize: failed to fetch oauth token: unexpected status from GET request "
            f"to {token}: 403 Forbidden"
        }
    return {"refused": "" if _exists(cloud, repository, found) else f"{failed} {image}: not found"}


def _exists(cloud: Cloud, repository: str, found: re.Match[str]) -> bool:
    name, tag, digest = found[4], found[5] or "latest", found[6]
    if digest:
        return cloud.state.get("image", f"{repository}/dockerImages/{name}@{digest}") is not None
    tagged = cloud.state.all("image", f"{repository}/dockerImages/{name}@").values()
    return any(tag in image["tags"] for image in tagged)


def _account(cloud: Cloud, node: str) -> str:
    """Return the node's service account; "" for a machine outside any GKE pool, as the box has from the start."""
    full, pool = next(((full, doc) for full, doc in cloud.state.all("pool").items() if node in doc["_nodes"]), ("", {}))
    if not full:
        return ""
    own = str(pool["config"].get("serviceAccount", "default"))
    return permissions.default_account(full.split("/")[1]) if own == "default" else own
