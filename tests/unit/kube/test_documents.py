"""Objects with only the fields that tpukit reads: none of those is lost, and many objects take little memory."""

import json
import tracemalloc
from functools import reduce

import pytest

from tpukit.kube.documents import SLIM
from tpukit.kube.sharing import Sharing
from tpukit.kube.source import _decoders

META = "name namespace uid resourceVersion creationTimestamp deletionTimestamp labels.a"
OWNED = f"{META} annotations.a ownerReferences.0.uid ownerReferences.0.kind ownerReferences.0.name"
CONDITION = "type status reason message lastTransitionTime"
CONTAINER = "name image state.waiting.reason state.waiting.message state.terminated.exitCode state.terminated.reason"
CONTAINER += " state.terminated.message state.terminated.finishedAt"
TEMPLATE = "nodeSelector.a containers.0.resources.limits.a containers.0.resources.requests.a"
TEMPLATE += " initContainers.0.resources.limits.a initContainers.0.resources.requests.a"

READ = {
    "Pod": {
        "metadata": META,
        "spec": "nodeName containers.0.name",
        "status": "phase reason message startTime",
        "status.conditions.0": CONDITION,
        "status.containerStatuses.0": CONTAINER,
        "status.initContainerStatuses.0": CONTAINER,
    },
    "Job": {"metadata": OWNED, "status.conditions.0": CONDITION},
    "JobSet": {
        "metadata": f"{OWNED} managedFields.0.manager managedFields.0.subresource",
        "spec": "suspend replicatedJobs.0.name replicatedJobs.0.replicas",
        "spec.replicatedJobs.0.template.spec.template.spec": TEMPLATE,
        "status": "restarts restartsCountTowardsMax",
        "status.conditions.0": CONDITION,
    },
    "Workload": {
        "metadata": OWNED,
        "spec": "active queueName priority priorityClassRef.name podSets.0.count",
        "spec.podSets.0.template.spec": TEMPLATE,
        "status": "admission.clusterQueue admission.podSetAssignments.0.flavors.a requeueState.requeueAt"
        " admission.podSetAssignments.0.resourceUsage.a admissionChecks.0.name admissionChecks.0.state"
        " schedulingStats.evictions.0.count",
        "status.conditions.0": CONDITION,
    },
    "Node": {
        "metadata": "name uid resourceVersion labels.a",
        "spec": "unschedulable",
        "status": "allocatable.a",
        "status.conditions.0": CONDITION,
    },
    "Event": {"metadata": "name", "": "reason message involvedObject.name involvedObject.uid lastTimestamp"},
}
NUMBERS = {"exitCode", "replicas", "restarts", "restartsCountTowardsMax", "priority", "count"}
TRUTHS = {"suspend", "active", "unschedulable"}


def value(path):
    last = path.rpartition(".")[2]
    return 7 if last in NUMBERS else True if last in TRUTHS else f"of {path}"


def put(document, path):
    """Set the value at a path, with an unread field beside each part."""
    *parents, last = words = path.split(".")
    for part, after in zip(parents, words[1:], strict=True):
        empty = [] if after == "0" else {"unread": "x" * 100}
        if isinstance(document, list):
            if not document:
                document.append(empty)
            document = document[0]
        else:
            document = document.setdefault(part, empty)
    document[last] = value(path)


def get(document, path):
    return reduce(lambda inner, part: inner[int(part) if part == "0" else part], path.split("."), document)


@pytest.mark.parametrize("kind", READ)
def test_fields_that_are_read_are_there_and_the_rest_is_not(kind):
    paths = [f"{base}.{name}".lstrip(".") for base, names in READ[kind].items() for name in names.split()]
    full = {"unread": 1}
    for path in paths:
        put(full, path)
    slim = _decoders(SLIM[kind])[2].decode(json.dumps(full))
    assert {path: get(slim, path) for path in paths} == {path: value(path) for path in paths}
    maps = ("labels", "annotations", "nodeSelector", "limits", "requests", "flavors", "resourceUsage", "allocatable")
    left = json.dumps(slim)
    assert left.count("unread") == sum(left.count(f'"{name}":') for name in maps)


def pod(number):
    labels = {f"jobset.sigs.k8s.io/some-label-{label}": f"job-{number // 64}-{label}" for label in range(15)}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"job-{number // 64}", "uid": f"uid-{number // 64}"}
    states = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "metadata": {
            "name": f"job-{number}",
            "namespace": "team",
            "uid": f"00000000-0000-0000-0000-{number:012}",
            "resourceVersion": str(number),
            "labels": labels,
            "annotations": labels,
            "ownerReferences": [owner],
        },
        "spec": {"containers": [{"name": "host", "env": [{"name": str(one), "value": "x" * 50} for one in range(30)]}]},
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": one, "status": "True", "lastTransitionTime": "2026-11-15T10:00:00Z"} for one in states
            ],
        },
    }


def test_pods_by_the_thousand_take_less_than_four_kilobytes_each():
    count = 1000
    items = [pod(number) for number in range(count)]
    content = json.dumps({"metadata": {}, "items": items})
    decoder, share = _decoders(SLIM["Pod"])[0], Sharing()
    tracemalloc.start()
    slim = [share(one) for one in decoder.decode(content).items]
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(slim) == count
    assert taken / count < 4096
    assert [one["metadata"]["labels"] for one in slim] == [one["metadata"]["labels"] for one in items]
    assert [one["status"] for one in slim] == [one["status"] for one in items]


def test_parts_that_cannot_be_compared_are_left_as_they_are():
    odd = {"metadata": {"labels": {"a": "b"}}, "status": {"conditions": [{"type": "X", "more": {"a": [1]}}]}}
    assert Sharing()(json.loads(json.dumps(odd))) == odd
