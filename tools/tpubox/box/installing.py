"""Installation and checks of JobSet, Kueue, and the sandbox's own objects in its cluster."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tpubox.box import components, control_plane, manifests, releases
from tpubox.box.binaries import Binaries
from tpubox.box.folder import Folder
from tpukit.core.errors import NotFound, Transient
from tpukit.kube import Cluster, Doc

_TRIES = 4
_RECORD = "tpukit-sandbox"


def addons(programs: Binaries) -> dict[str, list[Doc]]:
    return {one: releases.marked(one, releases.documents(one, programs.manifests(one))) for one in releases.NAMES}


def install_own(cluster: Cluster, programs: Binaries) -> None:
    """Install the objects that kwok, the autoscaler, and the processes of JobSet and Kueue need."""
    rollouts = manifests.rollouts(map(releases.namespace, releases.NAMES))
    _install(cluster, _RECORD, [*programs.manifests("kwok-rbac"), manifests.provisioning_requests(), *rollouts])


def install_addons(cluster: Cluster, wanted: Mapping[str, list[Doc]]) -> None:
    for name, documents in wanted.items():
        _install(cluster, f"{_RECORD}-{name}", documents, again=not _runs(cluster, name))


def installed_addons(cluster: Cluster) -> list[str]:
    return [name for name in releases.NAMES if _runs(cluster, name)]


def addons_ready(cluster: Cluster, place: Folder, installed: list[str]) -> bool:
    """Return whether they respond, their Deployments are available, and a job passes the webhooks."""
    for name in installed:
        if not components.answers(place, control_plane.addon_probe(place, name)):
            return False
        found = cluster.get("Deployment", releases.deployment(name), releases.namespace(name))
        conditions = found.get("status", {}).get("conditions", [])
        if found["spec"].get("replicas") or not any(
            one["type"] == "Available" and one["status"] == "True" for one in conditions
        ):
            return False
    return "jobset" not in installed or _takes_jobs(cluster)


def _install(cluster: Cluster, record: str, documents: list[Doc], *, again: bool = False) -> None:
    """Apply documents as `kubectl apply` does, unless these were applied before; with `again`, even then."""
    mark = hashlib.sha256(json.dumps(documents).encode()).hexdigest()
    if _installed(cluster, record) == mark and not again:
        return
    first = ("Namespace", "CustomResourceDefinition")
    for document in documents:
        if document["kind"] == "CustomResourceDefinition":
            # Re-apply a definition that was partly processed when the API server was killed.
            document["metadata"].setdefault("annotations", {})["tpukit.dev/applied"] = str(time.time_ns())
    with ThreadPoolExecutor(2) as pool:
        for batch in (
            [document for document in documents if document["kind"] in first],
            [document for document in documents if document["kind"] not in first],
        ):
            list(pool.map(partial(_apply, cluster), batch))
    about = {"metadata": {"name": record, "namespace": "kube-system"}, "data": {"installed": mark}}
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", **about})


def _apply(cluster: Cluster, document: Doc) -> None:
    """Apply a document, with retries: the API server gives up after half a minute, too short on a busy machine."""
    for _ in range(_TRIES):
        try:
            cluster.apply(document)
            return
        except Transient:
            continue
    cluster.apply(document)


def _installed(cluster: Cluster, record: str) -> str:
    try:
        return str(cluster.get("ConfigMap", record, "kube-system")["data"]["installed"])
    except NotFound:
        return ""


def _runs(cluster: Cluster, name: str) -> bool:
    """Return whether a release is installed that the sandbox can run."""
    try:
        found = cluster.get("Deployment", releases.deployment(name), releases.namespace(name))
    except NotFound:
        return False
    return bool(found["spec"]["template"]["spec"]["containers"][0]["image"] == releases.image(name))


def _takes_jobs(cluster: Cluster) -> bool:
    pod = {"restartPolicy": "Never", "containers": [{"name": "probe", "image": "probe"}]}
    job = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "probe", "namespace": "default"},
        "spec": {"replicatedJobs": [{"name": "probe", "template": {"spec": {"template": {"spec": pod}}}}]},
    }
    try:
        cluster.apply(job, dry_run=True)
    except (NotFound, Transient):
        return False
    return True
