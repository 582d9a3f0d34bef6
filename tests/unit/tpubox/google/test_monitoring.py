"""Cloud Monitoring of the emulator, and the metrics of logs that its policies watch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.google_world import PROJECT, World
from tpubox.google.wire.settings import number_of
from unit.tpubox.google.test_identity import account, grant

POLICIES = f"monitoring/v3/projects/{PROJECT}/alertPolicies"
CHANNELS = f"monitoring/v3/projects/{PROJECT}/notificationChannels"
DASHBOARDS = f"monitoring/v1/projects/{PROJECT}/dashboards"
METRICS = f"logging/v2/projects/{PROJECT}/metrics"
METRIC = {"name": "failed", "filter": 'resource.type="k8s_container" AND textPayload=~"failed"'}
TYPE = 'resource.type="k8s_container" AND metric.type="logging.googleapis.com/user/failed"'


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


def policy(**changes: Any) -> dict[str, Any]:
    query = {"query": "up == 0", "duration": "60s", "evaluationInterval": "60s", "disableMetricValidation": True}
    query |= changes.pop("query", {})
    condition = {"displayName": "c", "conditionPrometheusQueryLanguage": query}
    return {"displayName": "p", "combiner": "OR", "conditions": [condition], **changes}


def threshold(**changes: Any) -> dict[str, Any]:
    inner = {"filter": TYPE, "comparison": "COMPARISON_GT", "thresholdValue": 5, "duration": "0s", **changes}
    return policy(conditions=[{"displayName": "c", "conditionThreshold": inner}])


def test_policy_is_made_changed_by_its_mask_and_deleted(world):
    made = world.ask("POST", POLICIES, policy(userLabels={"team": "research"}))
    assert made["enabled"]
    assert made["conditions"][0]["name"].startswith(f"{made['name']}/conditions/")
    path = f"monitoring/v3/{made['name']}"
    changed = world.ask("PATCH", path, {"displayName": "q", "combiner": "AND"}, updateMask="displayName")
    assert (changed["displayName"], changed["combiner"], changed["conditions"]) == ("q", "OR", made["conditions"])
    assert world.ask("GET", POLICIES)["alertPolicies"] == [world.ask("GET", path)] == [changed]
    world.ask("DELETE", path)
    assert world.refusal("GET", path)[0] == 404
    assert world.ask("GET", POLICIES) == {}


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (policy(conditions=[]), 400),
        (policy(conditions=[{"displayName": "c"}]), 400),
        (policy(combiner="COMBINE_UNSPECIFIED"), 400),
        (policy(colour="red"), 400),
        (policy(userLabels={"Team": "x"}), 400),
        (policy(query={"evaluationInterval": "45s"}), 400),
        (policy(query={"disableMetricValidation": False}), 404),
        (policy(notificationChannels=[f"projects/{PROJECT}/notificationChannels/1"]), 404),
        (threshold(duration="90s"), 400),
        (threshold(filter='metric.type="logging.googleapis.com/user/failed"'), 400),
    ],
)
def test_policy_that_google_refuses_is_refused(world, asked, status):
    assert world.refusal("POST", POLICIES, asked)[0] == status


def test_threshold_over_a_metric_of_logs_is_refused_until_the_metric_is_known(world):
    assert world.refusal("POST", POLICIES, threshold())[0] == 404
    world.ask("POST", METRICS, METRIC)
    assert "could take up to 10 minutes" in world.refusal("POST", POLICIES, threshold())[2]
    world.pass_time(601)
    world.ask("POST", POLICIES, threshold())


def test_channel_in_use_stays_unless_it_is_forced_away(world):
    made = world.ask("POST", CHANNELS, {"type": "email", "labels": {"email_address": "a@example.com"}})
    watched = world.ask("POST", POLICIES, policy(notificationChannels=[made["name"]]))
    path = f"monitoring/v3/{made['name']}"
    assert world.refusal("DELETE", path)[0] == 400
    world.ask("DELETE", path, force="true")
    assert world.ask("GET", f"monitoring/v3/{watched['name']}")["notificationChannels"] == []


def test_dashboard_has_the_number_of_its_project_and_is_replaced_as_one(world):
    grid = {"columns": "2", "widgets": [{"title": "t", "xyChart": {"dataSets": [{"plotType": "LINE"}]}}]}
    made = world.ask("POST", DASHBOARDS, {"displayName": "d", "gridLayout": grid})
    assert made["name"].startswith(f"projects/{number_of(PROJECT)}/dashboards/")
    path = f"monitoring/v1/{made['name']}"
    changed = world.ask("PATCH", path, {"displayName": "e", "etag": made["etag"]})
    assert "gridLayout" not in changed
    assert world.refusal("PATCH", path, {"displayName": "f", "etag": made["etag"]})[1] == "ABORTED"
    assert world.refusal("POST", DASHBOARDS, {"gridLayout": grid})[0] == 400
    assert world.refusal("POST", DASHBOARDS, {"displayName": "d", "gridLayout": {"rows": 1}})[0] == 400
    world.ask("DELETE", path)
    assert world.ask("GET", DASHBOARDS) == {}


def test_metric_of_logs_is_made_replaced_and_deleted(world):
    made = world.ask("POST", METRICS, METRIC)
    assert made["metricDescriptor"]["type"] == "logging.googleapis.com/user/failed"
    assert world.refusal("POST", METRICS, METRIC)[0] == 409
    world.pass_time(5)
    changed = world.ask("PUT", f"{METRICS}/failed", {**METRIC, "description": "d"})
    assert (changed["createTime"], changed["description"]) == (made["createTime"], "d")
    assert world.ask("GET", METRICS)["metrics"] == [changed]
    assert world.refusal("POST", METRICS, {"name": "x", "filter": "a = ("})[0] == 400
    assert world.refusal("POST", METRICS, {"name": "/x", "filter": "a=b"})[0] == 400
    world.ask("DELETE", f"{METRICS}/failed")
    assert world.refusal("GET", f"{METRICS}/failed")[0] == 404


def test_roles_that_bootstrap_grants_for_monitoring_are_needed_and_enough(world):
    member = account(world)
    for path, body in ((POLICIES, policy()), (DASHBOARDS, {"displayName": "d"}), (METRICS, METRIC)):
        assert world.refusal("POST", path, body, principal=member)[0] == 403
    grant(world, "roles/monitoring.editor", member)
    grant(world, "roles/logging.configWriter", member)
    for path, body in ((POLICIES, policy()), (DASHBOARDS, {"displayName": "d"}), (METRICS, METRIC)):
        world.ask("POST", path, body, principal=member)
