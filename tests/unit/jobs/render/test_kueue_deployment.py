"""What a cluster's size and our configuration change in Kueue's Deployment."""

from __future__ import annotations

import yaml
from hypothesis import given
from hypothesis import strategies as st

from tpukit.jobs.render import kueue_deployment

NODES = st.integers(0, 20_000)


def held(nodes):
    (box,) = kueue_deployment.change(nodes)["spec"]["template"]["spec"]["containers"]
    return box["resources"]


@given(NODES, NODES)
def test_memory_grows_with_the_cluster_from_four_gib(few, many):
    few, many = sorted((few, many))
    assert 4096 <= kueue_deployment.memory_mib(few) <= kueue_deployment.memory_mib(many)
    assert kueue_deployment.memory_mib(many) >= 32 * many


def test_large_cluster_gets_a_limit_and_a_request_that_any_node_has_room_for():
    assert held(4000) == {"limits": {"memory": "128000Mi"}, "requests": {"memory": "4096Mi"}}


def test_other_configuration_is_another_template(monkeypatch, tmp_path):
    before = kueue_deployment.change(1)
    other = tmp_path / "controller.yaml"
    other.write_bytes(kueue_deployment.configuration().read_bytes() + b"# changed")
    monkeypatch.setattr(kueue_deployment, "configuration", lambda: other)
    assert kueue_deployment.change(1) != before


def test_jobs_that_are_being_deleted_keep_their_quota_until_their_pods_end():
    """Kueue 0.18.0 to 0.19.2 return it too early (https://github.com/kubernetes-sigs/kueue/issues/12820)."""
    document = yaml.safe_load(kueue_deployment.configuration().read_bytes())
    config = yaml.safe_load(document["data"]["controller_manager_config.yaml"])
    assert config["featureGates"]["FinishOrphanedWorkloads"] is False


def test_kueue_follows_what_evictions_cost():
    config = yaml.safe_load(yaml.safe_load(kueue_deployment.configuration().read_bytes())["data"].popitem()[1])
    assert config["featureGates"]["PriorityBoost"] is True
