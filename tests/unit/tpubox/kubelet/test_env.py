"""Environment and names of containers: expansion, references, quantities, addresses."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpubox.kubelet import tpu_environment
from tpubox.kubelet.env import BadConfig, environment, expand, quantity
from tpubox.kubelet.host_names import Names, reported, rewrite
from tpubox.kubelet.registered_pools import labels, of_slice
from tpukit.catalogue import find, slices


class Known:
    """Config maps and secrets by name."""

    def __init__(self, **things: dict[str, object]) -> None:
        self._things = things

    def config_map(self, namespace: str, name: str) -> dict[str, object] | None:
        return self._things.get(name)

    secret = config_map

    def services(self, namespace: str) -> list[dict[str, object]]:
        return []


def env_of(container: dict[str, object], pod: dict[str, object] | None = None, **things: dict[str, object]):
    metadata = {"name": "p", "namespace": "team", "uid": "u-1", "labels": {"a/b": "c"}, "annotations": {"n": "1"}}
    pod = {"metadata": metadata, "spec": {"nodeName": "n", "serviceAccountName": "s", "containers": [container]}}
    addresses = {"podIP": "127.1.1.1", "hostIP": "127.0.0.1"}
    return environment({"name": "c", **container}, pod, {"FIRST": "f"}, addresses, {"cpu": "8"}, Known(**things))


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"),
        ("$(A)$(B)", "12"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(MISSING)", "$(MISSING)"),
        ("$A ${A} $", "$A ${A} $"),
        ("$$", "$"),
        ("$(A", "$(A"),
    ],
)
def test_expand_follows_kubernetes(text: str, expanded: str):
    assert expand(text, {"A": "1", "B": "2"}) == expanded


@given(st.text(alphabet="$()AB x"))
def test_expand_undoes_doubled_dollars(text: str):
    assert expand(text.replace("$", "$$"), {"A": "1"}) == text


def test_environment_later_values_see_earlier_ones():
    env = env_of({"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)-$(FIRST)-$(C)"}, {"name": "C"}]})
    assert (env["A"], env["B"], env["C"]) == ("1", "1-f-$(C)", "")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "team"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['a/b']", "c"),
        ("metadata.annotations['n']", "1"),
        ("metadata.annotations['missing']", ""),
        ("spec.nodeName", "n"),
        ("spec.serviceAccountName", "s"),
        ("status.podIP", "127.1.1.1"),
        ("status.podIPs", "127.1.1.1"),
        ("status.hostIP", "127.0.0.1"),
    ],
)
def test_environment_knows_the_downward_fields(path: str, value: str):
    assert env_of({"env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}]})["X"] == value


def test_environment_of_resources_is_rounded_up_and_falls_back_to_the_node():
    resources = {"limits": {"memory": "1Gi"}, "requests": {"cpu": "1500m"}}
    ask = [("limits.memory", "1Mi"), ("requests.cpu", "1"), ("limits.cpu", "1"), ("requests.memory", "1Gi")]
    env = env_of(
        {
            "resources": resources,
            "env": [
                {"name": f"X{i}", "valueFrom": {"resourceFieldRef": {"resource": what, "divisor": divisor}}}
                for i, (what, divisor) in enumerate(ask)
            ],
        }
    )
    assert [env[f"X{i}"] for i in range(4)] == ["1024", "2", "8", "1"]


def test_environment_from_whole_config_maps_is_weaker_than_single_values():
    container = {"envFrom": [{"prefix": "P_", "configMapRef": {"name": "m"}}], "env": [{"name": "P_a", "value": "own"}]}
    env = env_of(container, m={"a": "map", "b": "map"})
    assert (env["P_a"], env["P_b"]) == ("own", "map")


def test_environment_secret_bytes_become_text():
    reference = {"secretKeyRef": {"name": "s", "key": "k"}}
    assert env_of({"env": [{"name": "X", "valueFrom": reference}]}, s={"k": b"v\xc3\xa9"})["X"] == "vé"


@pytest.mark.parametrize("kind", ["configMapKeyRef", "secretKeyRef"])
def test_environment_missing_key_is_said_unless_optional(kind: str):
    reference = {"name": "m", "key": "k"}
    with pytest.raises(BadConfig, match="couldn't find key k"):
        env_of({"env": [{"name": "X", "valueFrom": {kind: reference}}]}, m={})
    assert "X" not in env_of({"env": [{"name": "X", "valueFrom": {kind: {**reference, "optional": True}}}]})


@pytest.mark.parametrize(
    ("text", "value"), [("500m", "0.5"), ("2Gi", str(2 << 30)), ("2G", "2e9"), ("1e3", "1000"), ("0.5Ki", "512")]
)
def test_quantity_reads_every_spelling(text: str, value: str):
    assert quantity(text) == Decimal(value)


def test_quantity_refuses_nonsense():
    with pytest.raises(BadConfig, match="not a quantity"):
        quantity("much")


def _job_pod(replicas: str = "2", index: str = "1") -> dict[str, object]:
    prefix = "jobset.sigs.k8s.io/"
    notes = {
        f"{prefix}replicatedjob-replicas": replicas,
        f"{prefix}job-index": "1",
        f"{prefix}jobset-name": "js",
        f"{prefix}replicatedjob-name": "slice",
        "batch.kubernetes.io/job-completion-index": index,
    }
    return {"metadata": {"name": "x", "annotations": notes}, "spec": {"subdomain": "sub", "containers": []}}


JOB = {"metadata": {"name": "js-slice-1"}, "spec": {"completionMode": "Indexed", "parallelism": 2, "completions": 2}}
TPU = {"name": "host", "resources": {"limits": {"google.com/tpu": "4"}}}


def test_tpu_host_of_a_multislice_jobset_finds_what_gke_gives():
    pool = of_slice("pool", find("v4-16"), "z-1-a")
    node, pod = labels(pool, next(iter(pool.nodes))), _job_pod()
    names = tpu_environment.host_names(pod, JOB)
    env = tpu_environment.given(pod, TPU, node, names)
    assert names == ["js-slice-1-0.sub", "js-slice-1-1.sub"]
    assert env["TPU_WORKER_ID"] == "1"
    assert env["TPU_WORKER_HOSTNAMES"] == "js-slice-1-0.sub,js-slice-1-1.sub"
    assert (env["TPU_TOPOLOGY"], env["TPU_ACCELERATOR_TYPE"]) == ("2x2x2", "v4-16")
    assert (env["TPU_HOST_BOUNDS"], env["TPU_CHIPS_PER_HOST_BOUNDS"]) == ("1,1,2", "2,2,1")
    assert (env["MEGASCALE_NUM_SLICES"], env["MEGASCALE_SLICE_ID"]) == ("2", "1")
    assert env["MEGASCALE_COORDINATOR_ADDRESS"] == "js-slice-0-0.sub"


def test_tpu_host_of_one_slice_is_told_so_or_jax_would_ask_google():
    pool = of_slice("pool", find("v4-8"), "z-1-a")
    env = tpu_environment.given(_job_pod("1"), TPU, labels(pool, next(iter(pool.nodes))), [])
    assert (env["TPU_WORKER_ID"], env["TPU_WORKER_HOSTNAMES"]) == ("0", "localhost")
    assert (env["MEGASCALE_NUM_SLICES"], env["MEGASCALE_COORDINATOR_ADDRESS"]) == ("", "")


def test_container_without_chips_gets_nothing_of_a_tpu():
    pool = of_slice("pool", find("v4-8"), "z-1-a")
    node = labels(pool, next(iter(pool.nodes)))
    assert tpu_environment.given(_job_pod(), {"name": "x"}, node, []) == {}
    assert tpu_environment.simulated({"name": "x"}, node, "127.1.1.1", {}) == {}


def _asking(*chips: int) -> dict[str, object]:
    """Return a pod with a container for each of these numbers of chips."""
    return {
        "spec": {
            "containers": [{"resources": {"limits": {"google.com/tpu": str(one)}} if one else {}} for one in chips]
        }
    }


@pytest.mark.parametrize("chips", [(1,), (3,), (2, 2), (4, 1), (8,)])
def test_container_that_asks_for_some_chips_of_a_host_is_refused_in_the_words_of_gke(chips: tuple[int, ...]):
    pool = of_slice("pool", find("v4-16"), "z-1-a")
    assert tpu_environment.refusal(_asking(*chips), labels(pool, next(iter(pool.nodes)))) == (
        "Pod was rejected: Allocate failed due to rpc error: code = Unknown desc = invalid TPU chip count request, "
        "you must request all 4 chips on this node together, which is unexpected"
    )


@pytest.mark.parametrize(("name", "chips"), [("v4-16", (4,)), ("v4-16", (0, 4)), ("v4-16", (0,)), ("tpu7x-16", (2, 2))])
def test_whole_hosts_and_parts_of_hosts_that_gke_spreads_are_given(name: str, chips: tuple[int, ...]):
    pool = of_slice("pool", find(name), "z-1-a")
    assert tpu_environment.refusal(_asking(*chips), labels(pool, next(iter(pool.nodes)))) == ""


def test_host_without_chips_refuses_nothing():
    assert tpu_environment.refusal(_asking(0), {}) == ""


def test_every_slice_that_gke_offers_is_found_by_the_labels_of_its_nodes():
    offered = [shape for shape in slices() if shape.machine_type]
    for shape in offered:
        pool = of_slice("pool", shape, "z-1-a")
        assert tpu_environment.slice_of(labels(pool, next(iter(pool.nodes)))) == shape
    assert len(offered) > 100


def test_names_keep_their_addresses_over_a_restart_and_are_never_reused(tmp_path: Path):
    names = Names(tmp_path)
    first = names.addresses("a", ["h-0.s", "h-1.s"])
    other = names.addresses("b", ["h-0.s", "plain"])
    names.close()
    again = Names(tmp_path)
    assert again.addresses("a", ["h-1.s", "h-0.s"]) == first
    later = again.addresses("a", ["h-2.s"])
    again.close()
    every = [*first.values(), *other.values(), *later.values()]
    assert len(set(every)) == 5
    lines = (tmp_path / "ns-a").read_text().splitlines()
    assert f"{first['h-0.s']}\th-0.s.a.svc.cluster.local h-0.s.a.svc h-0.s h-0" in lines


def test_names_of_two_agents_on_one_machine_never_meet(tmp_path: Path):
    one, two = Names(tmp_path / "1"), Names(tmp_path / "2")
    a, b = one.addresses("n", ["h"])["h"], two.addresses("n", ["h"])["h"]
    one.close()
    two.close()
    assert a.split(".")[1] != b.split(".")[1]


def test_reported_address_is_no_loopback():
    assert reported("127.5.1.2") == "10.5.1.2"


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("h-1.s:8482", "127.1.1.2:8482"),
        ("h-1.s,h-10.s", "127.1.1.2,127.1.1.11"),
        ("xh-1.s h-1.sx", "xh-1.s h-1.sx"),
        ("/data/x:/database", "/pod/data/x:/database"),
    ],
)
def test_rewrite_replaces_whole_names_and_paths(text: str, rewritten: str):
    assert rewrite(text, {"h-1.s": "127.1.1.2", "h-10.s": "127.1.1.11", "/data": "/pod/data"}) == rewritten
