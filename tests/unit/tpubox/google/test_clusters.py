"""Clusters of the emulator: accepted and refused requests and changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.google_world import PROJECT, World, pool
from tpubox.google.gke.versions import VERSIONS

CLUSTERS = f"container/v1/projects/{PROJECT}/locations/us-central2/clusters"
NEWEST, BEFORE, OLDEST = VERSIONS


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        made.network()
        yield made


def cluster(**fields: Any) -> dict[str, Any]:
    """Return a request for a cluster, without the fields that are None."""
    wanted = {"name": "one", "locations": ["us-central2-b"], "initialNodeCount": 1, "network": "net"}
    wanted |= {"subnetwork": "subnet", **fields}
    return {"cluster": {key: value for key, value in wanted.items() if value is not None}}


def cpu_pool(name: str | None = "cpu", **fields: Any) -> dict[str, Any]:
    made = {"initialNodeCount": 1, "config": {"machineType": "n2-standard-4"}, **fields}
    return made if name is None else {"name": name, **made}


def window(**fields: Any) -> dict[str, Any]:
    return {"maintenancePolicy": {"window": fields}}


def recurring(start: str, end: str, recurrence: str = "FREQ=WEEKLY;BYDAY=SA,SU") -> dict[str, Any]:
    return window(recurringWindow={"window": {"startTime": start, "endTime": end}, "recurrence": recurrence})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"initialNodeCount": 0}, "Cluster.initial_node_count must be greater than zero."),
        ({"initialNodeCount": None}, "Cluster.initial_node_count must be greater than zero."),
        ({"initialNodeCount": None, "nodePools": []}, "Cluster.initial_node_count must be greater than zero."),
        ({"nodePools": [cpu_pool()]}, "must not be set together with node_pools"),
        ({"initialNodeCount": None, "nodePools": [cpu_pool("Bad_Name")]}, "node_pool.name"),
        ({"initialNodeCount": None, "nodePools": [cpu_pool(None)]}, "Node_pool.name must be specified."),
        ({"initialNodeCount": None, "nodePools": [cpu_pool(version="1.99.0-gke.1")]}, "is unsupported"),
        ({"nodeConfig": {"machineType": "n2-banana"}}, 'Invalid machine type "n2-banana"'),
        ({"workloadIdentityConfig": {"workloadPool": "nonsense"}}, f'must be "{PROJECT}.svc.id.goog"'),
        ({"workloadIdentityConfig": {"workloadPool": "other.svc.id.goog"}}, f'must be "{PROJECT}.svc.id.goog"'),
        ({"resourceLabels": {"Bad Key": "v"}}, "Invalid field 'cluster.resource_labels.key': \"Bad Key\"."),
        ({"resourceLabels": {"1st": "v"}}, "cluster.resource_labels.key"),
        ({"resourceLabels": {"": "v"}}, "cluster.resource_labels.key"),
        ({"resourceLabels": {"key": "V V"}}, "Invalid field 'cluster.resource_labels.value': \"V V\"."),
        ({"resourceLabels": {"key": "v" * 64}}, "cluster.resource_labels.value"),
        ({"locations": ["mars-a"]}, 'Location "mars-a" does not exist.'),
        ({"locations": ["us-central1-a"]}, "Zone us-central1-a is not in region us-central2"),
        ({"initialClusterVersion": "1.3"}, 'Master version "1.3" is unsupported.'),
        ({"defaultMaxPodsConstraint": {"maxPodsPerNode": "1000"}}, "It must be between 8 and 256."),
        ({"privateClusterConfig": {"masterIpv4CidrBlock": "mars"}}, 'Unable to parse cluster.master_ipv4_cidr "mars"'),
        ({"privateClusterConfig": {"masterIpv4CidrBlock": "172.16.0.0/24"}}, "the mask must be /28"),
        ({"masterAuthorizedNetworksConfig": {"cidrBlocks": [{"cidrBlock": "10.0.0.0/40"}]}}, '"10.0.0.0/40" is not'),
        (window(dailyMaintenanceWindow={"startTime": "25:00"}), 'start_time "25:00" is not HH:MM'),
        (recurring("tomorrow", "2026-01-04T00:00:00Z"), '"tomorrow" is not a time'),
        (recurring("2026-01-04T00:00:00Z", "2026-01-03T00:00:00Z"), "end_time must be after start_time"),
        (recurring("2026-01-03T00:00:00Z", "2026-01-04T00:00:00Z", "on Sundays"), "is not an RRULE"),
        (window(maintenanceExclusions={"x": {"startTime": "2026-01-01"}}), '"2026-01-01" is not a time'),
    ],
)
def test_cluster_that_gke_refuses_is_refused_and_leaves_nothing(world, fields, words):
    status, word, text = world.refusal("POST", CLUSTERS, cluster(**fields))
    assert (status, word) == (400, "INVALID_ARGUMENT")
    assert words in text
    assert world.ask("GET", CLUSTERS) == {"clusters": []}


def test_two_pools_of_one_name_in_a_cluster_are_an_internal_error_as_google_has_it(world):
    asked = cluster(initialNodeCount=None, nodePools=[cpu_pool(), cpu_pool()])
    assert world.refusal("POST", CLUSTERS, asked) == (500, "INTERNAL", "Internal error encountered.")
    assert world.ask("GET", CLUSTERS) == {"clusters": []}


@pytest.mark.parametrize(
    "fields",
    [
        {"initialNodeCount": 0, "nodePools": [cpu_pool("a"), cpu_pool("b")]},
        {"nodePools": []},
        {"resourceLabels": {"team": "größe-1_b", "empty": ""}},
        {"workloadIdentityConfig": {"workloadPool": f"{PROJECT}.svc.id.goog"}},
        {"privateClusterConfig": {"enablePrivateNodes": True, "masterIpv4CidrBlock": "172.16.0.0/28"}},
        {"masterAuthorizedNetworksConfig": {"enabled": True, "cidrBlocks": [{"cidrBlock": "203.0.113.7/32"}]}},
        window(dailyMaintenanceWindow={"startTime": "03:00"}),
        recurring("2026-01-03T00:00:00Z", "2026-01-04T00:00:00Z"),
        window(maintenanceExclusions={"training": {"startTime": "2026-01-01T00:00:00Z"}}),
    ],
)
def test_cluster_that_gke_takes_is_made(world, fields):
    world.ask("POST", CLUSTERS, cluster(**fields))
    assert world.ask("GET", f"{CLUSTERS}/one")["status"] == "RUNNING"


def test_pools_of_an_autopilot_cluster_are_its_own_business(world):
    world.ask("POST", CLUSTERS, cluster(initialNodeCount=None, autopilot={"enabled": True}))
    pools = f"{CLUSTERS}/one/nodePools"
    words = (400, "INVALID_ARGUMENT", "Autopilot node pools cannot be accessed or modified.")
    assert world.refusal("POST", pools, pool()) == words
    assert world.refusal("GET", pools) == words
    assert world.refusal("POST", f"{pools}/default-pool:setSize", {"nodeCount": 1}) == words
    assert world.ask("GET", f"{CLUSTERS}/one")["status"] == "RUNNING"


@pytest.mark.parametrize(
    ("asked", "version"),
    [
        (None, NEWEST),
        ("-", NEWEST),
        ("latest", NEWEST),
        (BEFORE, BEFORE),
        (BEFORE.partition("-")[0], BEFORE),
        (".".join(BEFORE.split(".")[:2]), BEFORE),
    ],
)
def test_cluster_of_a_named_version_has_the_version_itself(world, asked, version):
    world.ask("POST", CLUSTERS, cluster(initialClusterVersion=asked))
    assert world.ask("GET", f"{CLUSTERS}/one")["currentMasterVersion"] == version


@pytest.mark.parametrize("asked", [NEWEST, "latest", "-", NEWEST.partition("-")[0], ".".join(NEWEST.split(".")[:2])])
def test_control_plane_is_upgraded_to_what_a_name_stands_for(world, asked):
    world.ask("POST", CLUSTERS, cluster(initialClusterVersion=BEFORE))
    world.ask("PUT", f"{CLUSTERS}/one", {"update": {"desiredMasterVersion": asked}})
    assert world.ask("GET", f"{CLUSTERS}/one")["currentMasterVersion"] == NEWEST


@pytest.mark.parametrize(
    ("first", "asked", "words"),
    [
        (OLDEST, NEWEST, "cannot upgrade the master more than a minor version at a time"),
        (OLDEST, "latest", "cannot upgrade the master more than a minor version at a time"),
        (NEWEST, BEFORE, "cannot be decreased"),
        (NEWEST, OLDEST, "cannot be decreased"),
        (NEWEST, "1.99", 'Master version "1.99" is unsupported.'),
    ],
)
def test_control_plane_goes_one_minor_version_forward_and_none_back(world, first, asked, words):
    world.ask("POST", CLUSTERS, cluster(initialClusterVersion=first))
    status, _, text = world.refusal("PUT", f"{CLUSTERS}/one", {"update": {"desiredMasterVersion": asked}})
    assert (status, words in text) == (400, True)
    assert world.ask("GET", f"{CLUSTERS}/one")["currentMasterVersion"] == first


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "Must provide an update."),
        ({"update": {}}, "Must specify a field to update."),
        ({"update": {"desiredLocations": ["mars-a"]}}, 'Location "mars-a" does not exist.'),
        ({"update": {"desiredLocations": ["us-central1-a"]}}, "is not in region"),
        ({"update": {"desiredWorkloadIdentityConfig": {"workloadPool": "nonsense"}}}, "svc.id.goog"),
        (
            {"update": {"desiredShieldedNodes": {"enabled": True}, "desiredReleaseChannel": {"channel": "RAPID"}}},
            "Exactly one update can be applied with each request",
        ),
    ],
)
def test_update_that_gke_refuses_is_refused_and_changes_nothing(world, body, words):
    world.ask("POST", CLUSTERS, cluster())
    before = world.ask("GET", f"{CLUSTERS}/one")
    status, word, text = world.refusal("PUT", f"{CLUSTERS}/one", body)
    assert (status, word) == (400, "INVALID_ARGUMENT")
    assert words in text
    assert world.ask("GET", f"{CLUSTERS}/one") == before


def test_logging_and_monitoring_are_changed_together_as_gcloud_sends_them(world):
    world.ask("POST", CLUSTERS, cluster())
    components = {"componentConfig": {"enableComponents": ["SYSTEM_COMPONENTS"]}}
    world.ask(
        "PUT",
        f"{CLUSTERS}/one",
        {"update": dict.fromkeys(("desiredLoggingConfig", "desiredMonitoringConfig"), components)},
    )
    made = world.ask("GET", f"{CLUSTERS}/one")
    assert (made["loggingConfig"], made["monitoringConfig"]) == (components, components)


@pytest.mark.parametrize(
    ("verb", "body", "words"),
    [
        ("setResourceLabels", {"resourceLabels": {"Bad": "v"}}, "cluster.resource_labels.key"),
        ("setMaintenancePolicy", window(dailyMaintenanceWindow={"startTime": "noon"}), "is not HH:MM"),
    ],
)
def test_labels_and_windows_of_a_bad_form_are_refused_of_a_cluster_that_is_there_too(world, verb, body, words):
    world.ask("POST", CLUSTERS, cluster())
    status, _, text = world.refusal("POST", f"{CLUSTERS}/one:{verb}", body)
    assert (status, words in text) == (400, True)


def test_cluster_of_one_zone_keeps_that_zone(world):
    clusters = CLUSTERS.replace("us-central2", "us-central1-a")
    world.network("us-central1", pods="10.72.0.0/14")
    wanted = cluster(locations=["us-central1-b"])
    assert "must contain the primary zone us-central1-a" in world.refusal("POST", clusters, wanted)[2]
    world.ask("POST", clusters, cluster(locations=["us-central1-a", "us-central1-b"]))


def test_autopilot_cluster_in_one_zone_is_refused(world):
    clusters = CLUSTERS.replace("us-central2", "us-central2-b")
    wanted = cluster(initialNodeCount=None, autopilot={"enabled": True})
    assert world.refusal("POST", clusters, wanted)[2] == "Autopilot clusters must be regional clusters."
