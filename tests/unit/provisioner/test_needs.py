"""The needs of a leader pod, and the messages where they cannot be met."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tpukit.core.errors import Invalid
from tpukit.provisioner import needs, pool_names, pools, settings
from tpukit.provisioner.needs import Choice, Need, Refusal
from tpukit.provisioner.settings import Capacity

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "examples" / "03-provisioned").glob("*.yaml"))
V4 = {"cloud.google.com/gke-tpu-accelerator": "tpu-v4-podslice", "cloud.google.com/gke-tpu-topology": "2x2x4"}


def leader(jobset: dict) -> dict:
    """Return the leader pod of the first replicated job, as Kubernetes and JobSet create it."""
    replicated = jobset["spec"]["replicatedJobs"][0]
    labels = {
        "batch.kubernetes.io/job-name": f"{jobset['metadata']['name']}-{replicated['name']}-0",
        "jobset.sigs.k8s.io/replicatedjob-name": replicated["name"],
    }
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    return {
        "metadata": {"name": "leader", "namespace": "team", "uid": "pod-uid", "labels": labels},
        "spec": replicated["template"]["spec"]["template"]["spec"],
        "status": {"phase": "Pending", "conditions": [condition]},
    }


def jobset(
    selector: dict | None = None, chips: int = 4, hosts: int = 4, annotations: dict | None = None, **spec
) -> dict:
    resources = {"limits": {"google.com/tpu": str(chips)}}
    pod = {"nodeSelector": V4 if selector is None else selector, "containers": [{"resources": resources}], **spec}
    template = {"spec": {"parallelism": hosts, "template": {"spec": pod}}}
    meta = {"name": "train", "uid": "uid", "annotations": annotations or {}}
    return {"metadata": meta, "spec": {"replicatedJobs": [{"name": "slice", "template": template}]}}


def asked(document: dict, zones: tuple[str, ...] = ("us-central2-b",)) -> Need | Refusal | None:
    return needs.needed(leader(document), document, settings.DEFAULTS, zones, 0.0)


def need(document: dict, zones: tuple[str, ...] = ("us-central2-b",)) -> Need:
    result = asked(document, zones)
    assert isinstance(result, Need), result
    return result


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_asks_for_a_pool_that_can_be_made(example: Path):
    document = yaml.safe_load(example.read_text())
    document["metadata"]["uid"] = "uid"
    result = need(document)
    assert all(
        one.slice.hosts == document["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"]
        for one in result.choices
    )


def test_example_with_fallbacks_tries_spot_in_both_zones_first():
    document = yaml.safe_load((ROOT / "examples" / "03-provisioned" / "v5e-fallbacks.yaml").read_text())
    document["metadata"]["uid"] = "uid"
    tried = [(one.capacity.kind, one.zone) for one in need(document).choices]
    assert tried == [
        ("spot", "us-west4-a"),
        ("spot", "us-west4-b"),
        ("on-demand", "us-west4-a"),
        ("on-demand", "us-west4-b"),
    ]
    body = pools.body("p", need(document), need(document).choices[0], 0, 0.0)
    assert body["config"]["taints"] == [{"key": "cloud.google.com/gke-spot", "value": "true", "effect": "NO_SCHEDULE"}]


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (jobset(chips=3), "write google.com/tpu: 4"),
        (jobset(hosts=8), "write parallelism: 4"),
        (jobset({**V4, "cloud.google.com/gke-tpu-topology": "2x2x5"}), "write one of 2x2"),
        (jobset({**V4, "cloud.google.com/gke-tpu-accelerator": "tpu-v9"}), "tpu-v4-podslice"),
        (jobset({"cloud.google.com/gke-tpu-accelerator": "tpu-v4-podslice"}), "gke-tpu-topology is missing"),
        (jobset(annotations={"provisioner.tpukit.dev/capacity": "cheap"}), "reservation:NAME"),
        (jobset(annotations={"provisioner.tpukit.dev/zones": "moon"}), "is not a zone"),
        (jobset(annotations={"provisioner.tpukit.dev/capacity": "flex-start"}), "flex-start does not offer v4"),
    ],
)
def test_need_of_the_impossible_says_what_to_write(document, says):
    result = asked(document)
    assert isinstance(result, Refusal)
    assert says in result.text


def test_need_without_any_zone_says_where_to_name_one():
    result = asked(jobset(), zones=())
    assert isinstance(result, Refusal)
    assert "zones" in result.text


def test_need_of_selectors_goes_before_what_the_jobset_lists():
    selector = {**V4, "cloud.google.com/gke-spot": "true", "topology.kubernetes.io/zone": "us-central2-c"}
    result = need(jobset(selector, annotations={"provisioner.tpukit.dev/capacity": "on-demand"}))
    assert [(one.capacity, one.zone) for one in result.choices] == [(Capacity("spot"), "us-central2-c")]


def test_need_of_a_reservation_of_another_project_names_it_in_full():
    selector = {**V4, "cloud.google.com/reservation-name": "r", "cloud.google.com/reservation-project": "p"}
    (choice,) = need(jobset(selector)).choices
    affinity = pools.body("p", need(jobset(selector)), choice, 0, 0.0)["config"]["reservationAffinity"]
    assert affinity["values"] == ["projects/p/reservations/r"]


def test_need_own_selectors_and_hints_become_labels_and_those_of_gke_do_not():
    hint = "cloud.google.com/gke-location-hint"
    result = need(jobset({**V4, hint: "here", "team": "a", "topology.kubernetes.io/region": "us-central2"}))
    assert dict(result.labels) == {hint: "here", "team": "a"}


def test_need_of_several_shapes_by_node_affinity_tries_them_in_order():
    terms = [
        {"matchExpressions": [{"key": key, "operator": "In", "values": [value]} for key, value in one.items()]}
        for one in (
            {
                "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
                "cloud.google.com/gke-tpu-topology": "4x4",
            },
            {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice", "cloud.google.com/gke-tpu-topology": "4x4"},
        )
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    result = need(jobset({}, affinity={"nodeAffinity": required}))
    assert [one.slice.generation for one in result.choices] == ["v5e", "v6e"]


def test_need_of_single_host_slices_is_a_pool_with_a_host_for_each_pod():
    selector = {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "2x4",
    }
    result = need(jobset(selector, chips=8, hosts=3))
    (choice,) = result.choices
    body = pools.body("p", result, choice, 0, 0.0)
    assert (body["initialNodeCount"], body["config"]["machineType"]) == (3, "ct5lp-hightpu-8t")


def test_need_of_a_pod_without_chips_is_none():
    assert asked(jobset(chips=0)) is None


@pytest.mark.parametrize("capacity", ["flex-start", "spot", "on-demand", "reservation:r"])
def test_body_says_how_the_pool_is_paid_for(capacity):
    v5e = {"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice", "cloud.google.com/gke-tpu-topology": "4x4"}
    result = need(jobset(v5e, annotations={"provisioner.tpukit.dev/capacity": capacity}), ("us-west4-a",))
    body = pools.body("p", result, result.choices[0], 0, 0.0)
    assert body["config"].get("spot", False) == (capacity == "spot")
    assert body["config"].get("flexStart", False) == (capacity == "flex-start")
    assert ("autoscaling" in body) == (capacity == "flex-start")
    assert body["initialNodeCount"] == (0 if capacity == "flex-start" else 4)
    assert body["management"]["autoRepair"] == (capacity != "flex-start")


def test_body_has_what_the_config_map_says_and_the_jobset_goes_before_it():
    data = {
        "node-service-account": "nodes@p.iam.gserviceaccount.com",
        "secondary-boot-disk": "projects/p/global/images/preloaded",
        "additional-networks": "net-1:sub-1,net-2:sub-2",
        "network-tags": "tpu,training",
        "auto-repair": "false",
        "auto-upgrade": "true",
        "disk-size-gb": "250",
        "disk-kms-key": "projects/p/locations/us-central2/keyRings/r/cryptoKeys/k",
    }
    defaults = settings.of_config_map(data).options
    own = {f"provisioner.tpukit.dev/{name}": value for name, value in (("disk-size-gb", "50"), ("auto-repair", "true"))}
    for chosen, size, repair in (({}, 250, False), (own, 50, True)):
        document = jobset(annotations=chosen)
        asking = needs.needed(leader(document), document, defaults, ("us-central2-b",), 0.0)
        assert isinstance(asking, Need)
        body = pools.body("p", asking, asking.choices[0], 0, 0.0)
        config = body["config"]
        assert (config["diskSizeGb"], body["management"]) == (size, {"autoRepair": repair, "autoUpgrade": True})
        assert config["serviceAccount"] == data["node-service-account"]
        disk = {"diskImage": data["secondary-boot-disk"], "mode": "CONTAINER_IMAGE_CACHE"}
        assert (config["secondaryBootDisks"], config["gcfsConfig"]) == ([disk], {"enabled": True})
        assert (config["tags"], config["bootDiskKmsKey"]) == (["tpu", "training"], data["disk-kms-key"])
        networks = body["networkConfig"]["additionalNodeNetworkConfigs"]
        assert [one["subnetwork"] for one in networks] == ["sub-1", "sub-2"]
        assert config["labels"][pool_names.MANAGED_BY] == pool_names.MANAGER


def test_body_of_a_tpu7x_slice_has_a_workload_policy_and_no_topology():
    tpu7x = {"cloud.google.com/gke-tpu-accelerator": "tpu7x", "cloud.google.com/gke-tpu-topology": "2x2x2"}
    result = need(jobset(tpu7x, hosts=2), ("us-central1-c",))
    body = pools.body("p", result, result.choices[0], 0, 0.0)
    assert body["placementPolicy"] == {"policyName": "tpukit-2x2x2"}
    assert body["config"]["diskType"] == "hyperdisk-balanced"


def test_settings_name_every_problem_at_once():
    with pytest.raises(Invalid) as raised:
        settings.of_config_map({"capacity": "x", "max-operations": "0", "colour": "red", "zones": "moon"})
    assert len(raised.value.problems) == 4


def test_settings_of_the_example_cluster_are_valid():
    text = (ROOT / "deploy" / "example-project" / "example-cluster" / "config.env").read_text()
    pairs = [line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#")]
    assert settings.of_config_map(dict(pairs)).max_operations == 5


def test_choice_says_what_it_is():
    (choice,) = need(jobset()).choices
    assert isinstance(choice, Choice)
    assert str(choice) == "v4-32 (2x2x4), on-demand, us-central2-b"


@pytest.mark.parametrize(
    ("bought", "kinds"), [("standard", ["on-demand"]), ("spot", ["spot"]), ("flex-start", ["flex-start"])]
)
def test_need_that_a_flavor_of_kueue_has_placed_is_paid_for_as_the_flavor_says(bought, kinds):
    v5e = {needs.ACCELERATOR: "tpu-v5-lite-podslice", needs.TOPOLOGY: "4x4", needs.PROVISIONING: bought}
    result = need(jobset(v5e, annotations={"provisioner.tpukit.dev/capacity": "spot,on-demand"}))
    assert [one.capacity.kind for one in result.choices] == kinds
    assert not result.labels


def affine(key: str, operator: str = "In", *values: str) -> dict:
    one = {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
    required = {"nodeSelectorTerms": [{"matchExpressions": [one]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


NAMED = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gke-a"]}]}]}


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (jobset({**V4, "cloud.google.com/gke-nodepool": "static"}), "gke-nodepool: static"),
        (jobset({**V4, "kubernetes.io/hostname": "gke-a"}), "kubernetes.io/hostname: gke-a"),
        (jobset({**V4, "cloud.google.com/gce-topology-block": "b"}), "gce-topology-block"),
        (jobset({**V4, "node.kubernetes.io/instance-type": "n2-standard-4"}), "instance-type"),
        (jobset({**V4, "topology.kubernetes.io/region": "europe-west4"}), "region"),
        (jobset(affinity=affine("disk", "In", "ssd")), "disk In ssd"),
        (jobset(affinity=affine("disk", "Exists")), "disk Exists"),
        (jobset(affinity=affine("cloud.google.com/gke-nodepool", "In", "static")), "gke-nodepool In static"),
        (jobset(affinity=affine("kubernetes.io/hostname", "In", "gke-a")), "hostname In gke-a"),
        (jobset(affinity=affine("topology.kubernetes.io/zone", "In", "us-central2-c")), "zone In us-central2-c"),
        (jobset(affinity=affine("cloud.google.com/gke-spot", "Exists")), "gke-spot Exists"),
        (
            jobset(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": NAMED}}),
            "metadata.name In gke-a",
        ),
    ],
)
def test_need_of_a_pod_that_no_new_pool_could_take_buys_nothing_and_names_the_requirement(document, says):
    result = asked(document)
    assert isinstance(result, Refusal)
    assert says in result.text


@pytest.mark.parametrize(
    "document",
    [
        jobset({**V4, "disk": "ssd"}, affinity=affine("disk", "In", "ssd", "nvme")),
        jobset(affinity=affine("cloud.google.com/gke-spot", "DoesNotExist")),
        jobset(affinity=affine("cloud.google.com/gke-nodepool", "NotIn", "static")),
        jobset({**V4, "kubernetes.io/arch": "amd64", "cloud.google.com/gke-os-distribution": "cos"}),
        jobset({**V4, "topology.kubernetes.io/region": "us-central2"}),
    ],
)
def test_need_of_a_pod_that_selects_what_a_new_pool_has_is_bought(document):
    assert need(document).choices


def test_need_with_affinity_to_one_zone_is_bought_in_that_zone_alone():
    document = jobset(affinity=affine("topology.kubernetes.io/zone", "In", "us-central2-c"))
    (choice,) = need(document, zones=("us-central2-b", "us-central2-c")).choices
    assert choice.zone == "us-central2-c"
