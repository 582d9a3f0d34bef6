"""The reason why a job waits, from documents reduced to the fields that tpukit reads."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tpukit import catalogue
from tpukit.jobs import plan, render
from tpukit.jobs.render import PoolKind
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.kube.documents import SLIM
from tpukit.places.gke.capacity import _when
from tpukit.teams import waiting
from tpukit.teams.waiting import Queues

Doc = dict[str, Any]
SHAPE = catalogue.find("v4-16")
SETTINGS = Settings.from_json({"artifacts": "gs://my-artifacts", "team": "research"})


def slim(kind: str, document: Doc) -> Doc:
    return msgspec.json.decode(msgspec.json.encode(document), type=SLIM[kind])


def queued(capacity: str) -> Doc:
    """Return the Workload that Kueue creates for a job's JobSet."""
    spec = {"name": "train", "tpu": "v4-16", "slices": 2, "command": ["x"], "image": "i:1", "capacity": capacity}
    made = plan.make(JobSpec.from_json(spec), SETTINGS, "gke")
    (jobset,) = [one for one in render.documents(made) if one["kind"] == "JobSet"]
    pod_sets = [
        {
            "name": one["name"],
            "count": one["replicas"] * one["template"]["spec"]["parallelism"],
            "template": one["template"]["spec"]["template"],
        }
        for one in jobset["spec"]["replicatedJobs"]
    ]
    owner = {"kind": "JobSet", "name": made.id, "uid": "js"}
    metadata = {"name": "w", "namespace": "research", "uid": "w", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {
        "metadata": {**metadata, "ownerReferences": [owner]},
        "spec": {"queueName": "research", "podSets": pod_sets},
        "status": {"conditions": []},
    }


def why(workload: Doc, kinds: tuple[str, ...]) -> str:
    made = render.queues({PoolKind(SHAPE, kind): 2 for kind in kinds}, ["research"], cpus=8, memory_gb=32)
    by_kind: dict[str, list[Doc]] = {}
    for one in made:
        by_kind.setdefault(one["kind"], []).append(one)
    return waiting.why(
        workload, Queues([workload], by_kind["LocalQueue"], by_kind["ClusterQueue"], by_kind["ResourceFlavor"])
    )


@pytest.mark.parametrize("kinds", [("spot",), ("on-demand",), ("on-demand", "spot"), ("spot", "on-demand")])
@pytest.mark.parametrize("capacity", ["spot", "on-demand"])
def test_why_in_the_queue_is_the_same_from_all_fields_and_from_those_that_are_read(capacity, kinds):
    workload = queued(capacity)
    said = why(slim("Workload", workload), kinds)
    assert said == why(workload, kinds)
    assert ("has no" in said) == (capacity not in kinds), said


def test_event_that_was_repeated_is_as_new_as_its_last_repetition():
    event = {
        "metadata": {"name": "e", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "series": {"count": 3, "lastObservedTime": "2026-01-01T00:05:00.000000Z"},
    }
    assert _when(slim("Event", event)) == _when(event)
