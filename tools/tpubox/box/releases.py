"""The releases of JobSet and Kueue in a sandbox: as published, and adapted to controllers that run as processes. Pure.

Definitions, roles, accounts, Services and Deployments are as released. Webhooks stay behind their Service, and trust
the sandbox's authority; those of frameworks that Kueue does not queue here are left out.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tpubox.box import binaries
from tpukit.jobs.render import kueue_deployment

Doc = dict[str, Any]

NAMES = ("jobset", "kueue")
FRAMEWORKS = ("batch/job", "jobset.x-k8s.io/jobset")
"""Frameworks that Kueue queues here."""
CONFIG = "controller_manager_config.yaml"
MARK = "tpukit.dev/installed"
"""Annotation with the version that was completely installed, as `tpu cluster addons` and Cloud Build write it."""

_KUEUE_WEBHOOKS = ("clusterqueue", "cohort", "resourceflavor", "workload", "job", "jobset")
"""Webhooks that are kept: those of other frameworks have no server here."""
SERVED = {
    "jobset": {"/apis/jobset.x-k8s.io/v1alpha2": {"jobsets"}},
    "kueue": {"/apis/kueue.x-k8s.io/v1beta2": {"clusterqueues", "localqueues", "resourceflavors", "workloads"}},
}
"""APIs that must be served before a controller can start."""


def namespace(name: str) -> str:
    return f"{name}-system"


def deployment(name: str) -> str:
    return f"{name}-controller-manager"


def image(name: str) -> str:
    """Return the image of the released Deployment; no other version can run here."""
    return f"registry.k8s.io/{name}/{name}:{binaries.versions()[name]}"


def documents(name: str, built: Iterable[Doc]) -> list[Doc]:
    """Return the release from the files of its module, which name the image of a development build."""
    released = copy.deepcopy(list(built))
    for document in released:
        # Left by a kustomization in which cert-manager would fill them.
        document["metadata"].get("annotations", {}).pop("cert-manager.io/inject-ca-from", None)
        if document["kind"] == "Deployment":
            document["spec"]["template"]["spec"]["containers"][0]["image"] = image(name)
    return released


def marked(name: str, released: Iterable[Doc]) -> list[Doc]:
    """Return the documents as after a complete installation, with our configuration of Kueue."""
    import yaml

    made, version, ours = copy.deepcopy(list(released)), binaries.versions()[name], name == "kueue"
    for document in made:
        if document["kind"] == "Deployment":
            mark = f"{version}+{kueue_deployment.digest()}" if ours else version
            document["metadata"].setdefault("annotations", {})[MARK] = mark
            if ours:
                _adapt(document["spec"]["template"], kueue_deployment.change(0)["spec"]["template"])
        elif ours and document["kind"] == "ConfigMap" and CONFIG in document.get("data", {}):
            document["data"] = yaml.safe_load(kueue_deployment.configuration().read_bytes())["data"]
    return made


def _adapt(template: Doc, change: Doc) -> None:
    """Apply the change as the API server does a strategic merge patch."""
    metadata = template.setdefault("metadata", {})
    metadata["annotations"] = {**metadata.get("annotations", {}), **change["metadata"]["annotations"]}
    (box,), (wanted,) = template["spec"]["containers"], change["spec"]["containers"]
    held = box.get("resources", {})
    box["resources"] = {**held, **{what: {**held.get(what, {}), **own} for what, own in wanted["resources"].items()}}


def manifest(released: Iterable[Doc]) -> bytes:
    """Return manifests.yaml: JSON is YAML, and is fast to write."""
    return "".join(f"---\n{json.dumps(document)}\n" for document in released).encode()


def path(name: str) -> str:
    return f"/kubernetes-sigs/{name}/releases/download/{binaries.versions()[name]}/manifests.yaml"


def trusted(document: Doc, bundle: str) -> Doc | None:
    """Return the change that makes an object with webhooks trust `bundle`; None if it already does."""
    if document["kind"] == "CustomResourceDefinition":
        client = document["spec"]["conversion"]["webhook"]["clientConfig"]
        change = {"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": bundle}}}}}
        return None if client.get("caBundle") == bundle else change
    wanted = [hook for hook in document["webhooks"] if _answered(document["metadata"]["name"], hook)]
    hooks = [{**hook, "clientConfig": {**hook["clientConfig"], "caBundle": bundle}} for hook in wanted]
    version = {"resourceVersion": document["metadata"]["resourceVersion"]}
    return None if hooks == document["webhooks"] else {"metadata": version, "webhooks": hooks}


def _answered(configuration: str, hook: Mapping[str, Any]) -> bool:
    known = [f"{letter}{name}.kb.io" for letter in "mv" for name in _KUEUE_WEBHOOKS]
    return not configuration.startswith("kueue-") or hook["name"] in known


def with_webhooks(released: Iterable[Doc]) -> dict[str, list[str]]:
    """Return the names of everything that calls webhooks, by kind."""
    made: dict[str, list[str]] = {}
    for document in released:
        converted = document["kind"] == "CustomResourceDefinition" and "conversion" in document["spec"]
        if converted or document["kind"] in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
            made.setdefault(document["kind"], []).append(document["metadata"]["name"])
    return made


def aggregated(released: Iterable[Doc]) -> list[str]:
    """Return the paths of the APIs that a release serves itself.

    They have no server here, and one that does not respond delays others:
    https://kubernetes.io/docs/concepts/extend-kubernetes/api-extension/apiserver-aggregation/
    """
    return [
        f"/apis/apiregistration.k8s.io/v1/apiservices/{document['metadata']['name']}"
        for document in released
        if document["kind"] == "APIService"
    ]


def certificate(certificates: Path) -> Doc:
    """Return the data of Kueue's Secret: Kueue manages its certificate itself, and keeps this valid one."""
    files = ("ca.crt", "ca.key", "tls.crt", "tls.key")
    return {"data": {name: encoded(certificates / name) for name in files}}


def encoded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
