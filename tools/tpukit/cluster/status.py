"""The status of an environment: state, cluster, pools and add-ons. Parts that cannot be read report why."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tpukit.cluster import busy_pools, diagnosis, gcloud, programs, versions
from tpukit.cluster.busy_pools import POOL_LABEL, TOPOLOGY_LABEL, Doomed
from tpukit.cluster.programs import Command
from tpukit.cluster.spec import ClusterSpec
from tpukit.core.errors import TpukitError
from tpukit.kube.together import together


def lines(spec: ClusterSpec, context: str) -> list[str]:
    return [str(gcloud.describe_cluster(spec)), *map(str, (*busy_pools.questions(context), *_addons(context)))]


def read(spec: ClusterSpec, context: str, resources: Callable[[], list[str]]) -> dict[str, Any]:
    """Return plain data for `--json`, with all parts read in parallel. A part that cannot be read is {"problem": …}.

    Terraform runs in the calling thread, which receives Ctrl-C.
    """
    parts: dict[str, Callable[[], Any]] = {
        "resources": lambda: {"count": len(resources())},
        "cluster": lambda: _cluster(spec),
        "pools": lambda: _pools(spec, context),
        "addons": lambda: _addon_versions(context),
    }
    read = together(*(partial(_try, part) for part in parts.values()))
    return {"cluster_name": spec.cluster_name, "context": context, **dict(zip(parts, read, strict=True))}


def _try(part: Callable[[], Any]) -> Any:
    try:
        return part()
    except TpukitError as error:
        return {"problem": error.message, "hint": error.hint}


def _cluster(spec: ClusterSpec) -> Any:
    return json.loads(gcloud.read_if_there(gcloud.describe_cluster(spec), "looking for the cluster") or "null")


def _pools(spec: ClusterSpec, context: str) -> dict[str, Any]:
    """Return every existing or wanted pool: its slice, its hosts and the jobs on it."""
    nodes, pods = busy_pools.nodes_and_pods(context)
    jobs = busy_pools.busy(Doomed(everything=True), nodes, pods)
    found = {name: _pool(shape.name, shape.topology) for name, shape in spec.shapes.items()}
    for node in nodes["items"]:
        labels = node["metadata"].get("labels", {})
        if POOL_LABEL not in labels:
            continue
        pool = found.setdefault(labels[POOL_LABEL], _pool(None, None))
        pool["topology"] = labels.get(TOPOLOGY_LABEL)
        pool["hosts"] += 1
        pool["ready"] += _ready(node)
        pool["jobs"] = jobs.get(labels[POOL_LABEL], [])
    return found


def _pool(wanted: str | None, topology: str | None) -> dict[str, Any]:
    return {"wanted": wanted, "topology": topology, "hosts": 0, "ready": 0, "jobs": []}


def _ready(node: dict[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _questions(context: str) -> dict[str, Command]:
    return {
        name: programs.command(
            *("kubectl", f"--context={context}", "--request-timeout=20s", "get", "deployments"),
            *(f"--namespace={name}-system", "--output=json"),
        )
        for name in ("jobset", "kueue")
    }


def _addon_versions(context: str) -> dict[str, str | None]:
    questions = _questions(context)
    return dict(zip(questions, together(*(partial(_version, one) for one in questions.values())), strict=True))


def addon_questions(context: str) -> list[str]:
    return list(map(str, _addons(context)))


def addon_warnings(context: str) -> list[str]:
    """Return the known faults of the installed add-ons; none if there is no cluster or it cannot be read."""
    if shutil.which("kubectl") is None:
        return []
    try:
        found = _addon_versions(context)
    except TpukitError:
        return []
    return _faults(found)


def _faults(found: Mapping[str, str | None]) -> list[str]:
    titles = {title.lower(): title for title in versions.TESTED}
    return [line for name, version in found.items() if version for line in versions.warnings(titles[name], version)]


def _addons(context: str) -> tuple[Command, ...]:
    return tuple(_questions(context).values())


def _version(question: Command) -> str | None:
    """Return the tag of the controller's image, or None if it is not installed."""
    done = programs.run(question)
    if done.code:  # kubectl prints an empty list when it was refused or timed out
        raise diagnosis.failure("kubectl", done.errors, "looking for add-ons")
    items = json.loads(done.output or '{"items": []}')["items"]
    images = [box["image"] for item in items for box in item["spec"]["template"]["spec"]["containers"]]
    return next((image.partition("@")[0].rpartition(":")[2] for image in images), None)
