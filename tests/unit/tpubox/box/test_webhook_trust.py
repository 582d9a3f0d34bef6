"""Trust of webhook callers: installed, restored after changes by others, and read only when needed."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest

from tpubox.box.webhook_trust import WebhookTrust
from tpukit.core.errors import NotFound

DEFINITION = {
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "workloads"},
    "spec": {"conversion": {"webhook": {"clientConfig": {"service": {"name": "kueue-webhook-service"}}}}},
}
PLAIN = {"kind": "CustomResourceDefinition", "metadata": {"name": "topologies"}, "spec": {}}
HOOKS = {
    "kind": "ValidatingWebhookConfiguration",
    "metadata": {"name": "jobset-validating"},
    "webhooks": [{"name": "vjobset.kb.io", "clientConfig": {"service": {"name": "jobset-webhook-service"}}}],
}


class Objects:
    """A cluster's objects, each with a version that grows with changes; counts reads and writes."""

    def __init__(self, *documents: dict[str, Any]) -> None:
        self.held: dict[tuple[str, str], dict[str, Any]] = {}
        self.asked: Counter[str] = Counter()
        self._version = 0
        for document in documents:
            self.put(copy.deepcopy(document))

    def put(self, document: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        document["metadata"]["resourceVersion"] = str(self._version)
        self.held[document["kind"], document["metadata"]["name"]] = document
        return document

    def list_metadata(self, kind: str) -> list[dict[str, Any]]:
        return [{"metadata": one["metadata"]} for (of, _), one in self.held.items() if of == kind]

    def get(self, kind: str, name: str) -> dict[str, Any]:
        self.asked["get"] += 1
        if (kind, name) not in self.held:
            raise NotFound(f"{kind} {name}")
        return copy.deepcopy(self.held[kind, name])

    def patch(self, kind: str, name: str, change: dict[str, Any]) -> dict[str, Any]:
        self.asked["patch"] += 1
        document = self.held[kind, name]
        if kind == "CustomResourceDefinition":
            client = document["spec"]["conversion"]["webhook"]["clientConfig"]
            client |= change["spec"]["conversion"]["webhook"]["clientConfig"]
        else:
            assert change["metadata"] == {"resourceVersion": document["metadata"]["resourceVersion"]}
            document["webhooks"] = change["webhooks"]
        return self.put(document)

    def bundles(self) -> list[str | None]:
        definition, hooks = (
            self.held["CustomResourceDefinition", "workloads"],
            self.held[HOOKS["kind"], "jobset-validating"],
        )
        clients = [definition["spec"]["conversion"]["webhook"], hooks["webhooks"][0]]
        return [one["clientConfig"].get("caBundle") for one in clients]


@pytest.fixture
def objects() -> Objects:
    return Objects(DEFINITION, PLAIN, HOOKS)


def trust(objects: Objects) -> WebhookTrust:
    return WebhookTrust(objects, [DEFINITION, PLAIN, HOOKS], "Y2E=")  # type: ignore[arg-type]


def test_callers_that_do_not_trust_are_changed_once_and_then_not_read(objects: Objects):
    settled = trust(objects)
    assert settled.settle()
    assert objects.bundles() == ["Y2E=", "Y2E="]
    assert objects.asked == {"get": 2, "patch": 2}
    assert all(settled.settle() for _ in range(5))
    assert objects.asked == {"get": 2, "patch": 2}


def test_caller_that_somebody_changed_is_read_and_trusts_again(objects: Objects):
    settled = trust(objects)
    settled.settle()
    objects.put(copy.deepcopy(DEFINITION))
    assert settled.settle()
    assert objects.bundles() == ["Y2E=", "Y2E="]
    assert objects.asked == {"get": 3, "patch": 3}


def test_caller_that_is_not_there_is_waited_for_and_one_made_anew_is_looked_at(objects: Objects):
    settled = trust(objects)
    settled.settle()
    del objects.held["CustomResourceDefinition", "workloads"]
    assert not settled.settle()
    objects.put(copy.deepcopy(DEFINITION))
    assert settled.settle()
    assert objects.bundles() == ["Y2E=", "Y2E="]
