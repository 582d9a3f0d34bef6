"""What the released manifests of JobSet, Kueue and kwok become when their controllers run outside the cluster.

Definitions, roles and accounts stay as released. Webhooks are called on loopback and not through a Service. A
Deployment stays too, scaled to nothing: the processes stand for its pods, and its image and the mark of whoever
installs releases (`tpu cluster addons`, Cloud Build) tell the version to those who look for one.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

Doc = dict[str, Any]

FRAMEWORKS = ("batch/job", "jobset.x-k8s.io/jobset")
"""What Kueue queues here."""
_KUEUE_WEBHOOKS = ("clusterqueue", "cohort", "resourceflavor", "workload", "job", "jobset")
"""Those of the other frameworks would be called, and answered by nobody."""

_ELSEWHERE = ("APIService", "ConfigMap", "Secret", "Service")
"""Kinds that a controller outside the cluster has no use for."""

_INSTALLED = "tpukit.dev/installed"
"""The version that was installed to its end."""

_RUNS_UNTIL = """
(.spec.containers[0] | (.command // []) + (.args // [])) as $words
| ($words | index("sleep")) as $at
| if $at
  then (.status.startTime | fromdateiso8601) + (($words[$at + 1] | tonumber?) // 0) | todate
  else "0s"
  end
"""
"""When a pod on a simulated node ends: of all programs, kwok's hosts can run `sleep`."""


def jobset(documents: Iterable[Doc], *, version: str, url: str, certificates: Path) -> list[Doc]:
    return list(_outside(documents, f"registry.k8s.io/jobset/jobset:{version}", url, certificates))


def kueue(documents: Iterable[Doc], *, version: str, url: str, certificates: Path) -> list[Doc]:
    adapted = list(_outside(documents, f"registry.k8s.io/kueue/kueue:{version}", url, certificates))
    for document in adapted:
        if document["kind"].endswith("WebhookConfiguration"):
            wanted = [f"{letter}{name}.kb.io" for letter in "mv" for name in _KUEUE_WEBHOOKS]
            document["webhooks"] = [hook for hook in document["webhooks"] if hook["name"] in wanted]
    # Kueue looks after its certificate itself, finds it good, and leaves it.
    files = ("ca.crt", "ca.key", "tls.crt", "tls.key")
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "kueue-webhook-server-cert", "namespace": "kueue-system"},
        "data": {name: _base64(certificates / name) for name in files},
    }
    return [*adapted, secret]


def kwok_stages(documents: Iterable[Doc]) -> list[Doc]:
    stages = copy.deepcopy(list(documents))
    for stage in stages:
        if stage["metadata"]["name"] == "pod-complete":
            stage["spec"]["delay"] = {"durationMilliseconds": 0, "durationFrom": {"jq": {"expression": _RUNS_UNTIL}}}
    return stages


def _outside(documents: Iterable[Doc], image: str, url: str, certificates: Path) -> Iterator[Doc]:
    bundle = _base64(certificates / "ca.crt")
    for document in copy.deepcopy(list(documents)):
        kind = document["kind"]
        if kind in _ELSEWHERE:
            continue
        # Left by a kustomization that would have had cert-manager fill them.
        document["metadata"].get("annotations", {}).pop("cert-manager.io/inject-ca-from", None)
        if kind.endswith("WebhookConfiguration"):
            for hook in document["webhooks"]:
                hook["clientConfig"] = {"url": url + hook["clientConfig"]["service"]["path"], "caBundle": bundle}
        elif kind == "CustomResourceDefinition" and "conversion" in document["spec"]:
            webhook = document["spec"]["conversion"]["webhook"]
            webhook["clientConfig"] = {"url": url + webhook["clientConfig"]["service"]["path"], "caBundle": bundle}
        elif kind == "Deployment":
            document["metadata"].setdefault("annotations", {})[_INSTALLED] = image.rpartition(":")[2]
            document["spec"]["replicas"] = 0
            document["spec"]["template"]["spec"]["containers"][0]["image"] = image
        yield document


def _base64(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
