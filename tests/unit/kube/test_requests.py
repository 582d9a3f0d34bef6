"""Requests to API servers are counted by kind."""

from __future__ import annotations

import pytest

from tpukit.kube.requests import Requests, described


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("GET", "/api/v1/namespaces/research/pods", {}, ("list", "pods")),
        ("GET", "/api/v1/namespaces/research/pods", {"watch": "true"}, ("watch", "pods")),
        ("GET", "/api/v1/namespaces/research/pods/a-0/log", {"follow": "true"}, ("get", "pods/log")),
        ("GET", "/api/v1/namespaces/kube-system", {}, ("get", "namespaces")),
        ("GET", "/api/v1/namespaces", {}, ("list", "namespaces")),
        ("GET", "/api/v1/nodes", {"limit": "500"}, ("list", "nodes")),
        ("GET", "/apis/jobset.x-k8s.io/v1alpha2/namespaces/research/jobsets/a", {}, ("get", "jobsets")),
        ("POST", "/api/v1/namespaces/research/pods/a-0/eviction", {}, ("create", "pods/eviction")),
        ("PATCH", "/apis/batch/v1/namespaces/research/jobs/a", {}, ("patch", "jobs")),
        ("DELETE", "/apis/batch/v1/namespaces/research/jobs/a", {}, ("delete", "jobs")),
        ("GET", "/version", {}, ("get", "/version")),
        ("GET", "/apis/batch/v1", {}, ("get", "/apis/batch/v1")),
    ],
)
def test_described_request_has_the_verb_and_resource_of_kubernetes(method, path, query, expected):
    assert described(method, path, query) == expected


def test_counts_requests_for_many_objects_add_up_by_resource():
    requests = Requests()
    for pod in range(3):
        requests.add("GET", f"/api/v1/namespaces/research/pods/a-{pod}/log", {})
    requests.add("GET", "/api/v1/nodes", {})
    assert requests.counts() == {("get", "pods/log"): 3, ("list", "nodes"): 1}
