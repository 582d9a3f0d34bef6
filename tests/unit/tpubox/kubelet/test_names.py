"""Names that programs in pods can resolve: those of a cluster's DNS, and no others."""

from __future__ import annotations

import pytest

from support.agent_world import World, with_cpu_node

world = pytest.fixture(name="world")(with_cpu_node)


def _endpoints(world: World, service: str, hosts: dict[str, str], namespace: str = "default", **more: object) -> None:
    """Create the EndpointSlice that Kubernetes lists for a headless Service."""
    labels = {"kubernetes.io/service-name": service, "service.kubernetes.io/headless": ""}
    endpoints = [{"hostname": host, "addresses": [address], **more} for host, address in hosts.items()]
    metadata = {"name": f"{service}-x", "namespace": namespace, "uid": f"slice-{namespace}-{service}", "labels": labels}
    world.api.put("EndpointSlice", {"metadata": metadata, "endpoints": endpoints})


def _resolves(name: str) -> str:
    return f"getent ahostsv4 {name} | head -n 1 | cut -d ' ' -f 1 | grep . || echo none"


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("srv.sub", "127.9.1.2"),
        ("srv.sub.default", "127.9.1.2"),
        ("srv.sub.default.svc", "127.9.1.2"),
        ("srv.sub.default.svc.cluster.local", "127.9.1.2"),
        ("sub", "127.9.1.2"),
        ("far.there.other", "127.9.1.3"),
        ("far.there.other.svc.cluster.local", "127.9.1.3"),
        ("far.there", "none"),
        ("srv", "none"),
        ("srv.nosuchsvc", "none"),
        ("late.unready", "none"),
    ],
)
def test_name_resolves_where_a_clusters_dns_has_it(world: World, name: str, address: str):
    _endpoints(world, "sub", {"srv": "10.9.1.2"})
    _endpoints(world, "there", {"far": "10.9.1.3"}, "other")
    _endpoints(world, "unready", {"late": "10.9.1.4"}, conditions={"ready": False})
    world.until(lambda: len(world.agent.kubelet.resolved._slices) == 2)
    world.shell(_resolves(name))
    world.phase("Succeeded")
    assert world.log().strip() == address


def test_pod_knows_its_own_name_and_not_that_of_a_neighbour(world: World):
    world.shell("exec sleep 60", name="neighbour")
    world.phase("Running", name="neighbour")
    world.shell(f"{_resolves('$HOSTNAME')}; {_resolves('neighbour')}")
    world.phase("Succeeded")
    own, other = world.log().split()
    assert own == "127" + world.status()["podIP"].removeprefix("10")
    assert other == "none"


def test_name_comes_and_goes_while_a_pod_runs_and_after_the_agent_was_started_again(world: World):
    world.shell(f"while :; do {_resolves('srv.sub')}; sleep 0.1; done")
    world.phase("Running")
    world.until(lambda: world.log().endswith("none\n"))
    _endpoints(world, "sub", {"srv": "10.9.1.2", "other": "10.9.1.3"})
    world.until(lambda: world.log().endswith("127.9.1.2\n"))
    world.stop()
    again = World(world.home, world.api)
    try:
        again.until(lambda: again.agent.kubelet.resolved._files)
        _endpoints(again, "sub", {"other": "10.9.1.3"})
        again.until(lambda: again.log().endswith("none\n"))
    finally:
        again.close()
