"""Queues: they can admit every job that tpukit renders."""

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit import catalogue
from tpukit.core.errors import Invalid
from tpukit.jobs import plan, render
from tpukit.jobs.render import kueue, pool_kinds
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.teams import quotas
from tpukit.teams.team import Team

REMOTE = "reservation:projects/example.com:mine/reservations/theirs"
QUOTAS = {catalogue.find("v4-32"): 2, catalogue.find("v5e-8"): 1}
EVERY_KIND = QUOTAS | {
    render.PoolKind(catalogue.find(tpu), capacity): 2
    for tpu in ("v4-32", "v5e-8")
    for capacity in ("spot", "flex-start", "reservation:ours", REMOTE, "reservation:other")
}
EVERY = [shape for shape in catalogue.slices() if shape.machine_type]
UNITS = {"m": 0.001, "G": 1e9}


def rendered(slices=QUOTAS, teams=("research", "vision"), cpus=6, memory_gb=24, queued=False):
    return render.queues(slices, teams, cpus=cpus, memory_gb=memory_gb, queued=queued)


def of_kind(documents, kind):
    return {document["metadata"]["name"]: document for document in documents if document["kind"] == kind}


def test_queues_make_one_cluster_queue_and_a_queue_and_namespace_for_each_team():
    documents = rendered()
    (name,) = of_kind(documents, "ClusterQueue")
    queues = of_kind(documents, "LocalQueue")
    assert set(queues) == set(of_kind(documents, "Namespace")) == {"research", "vision"}
    for team, queue in queues.items():
        assert queue["metadata"]["namespace"] == team
        assert queue["spec"]["clusterQueue"] == name


def test_queues_name_namespaces_and_flavors_before_what_refers_to_them():
    kinds = [document["kind"] for document in rendered()]
    assert kinds.index("ResourceFlavor") < kinds.index("ClusterQueue") < kinds.index("LocalQueue")
    assert kinds.index("Namespace") < kinds.index("LocalQueue")


def test_priorities_order_jobs_and_medium_is_what_a_job_without_one_has():
    values = {name: document["value"] for name, document in of_kind(rendered(), "WorkloadPriorityClass").items()}
    assert sorted(values, key=values.get) == ["low", "medium", "high"]
    assert values["medium"] == 0
    (queue,) = of_kind(rendered(), "ClusterQueue").values()
    assert queue["spec"]["preemption"]["withinClusterQueue"] == "LowerPriority"


def test_quotas_count_whole_slices():
    (group,) = of_kind(rendered(), "ClusterQueue")["tpu"]["spec"]["resourceGroups"]
    quotas = {flavor["name"]: quota_of(flavor) for flavor in group["flavors"]}
    assert quotas["v4-2x2x4"] == {"google.com/tpu": 32, "cpu": 8 * 240, "memory": 8 * 407e9}
    assert quotas["v5e-2x4"] == {"google.com/tpu": 8, "cpu": 224, "memory": 384e9}
    assert quotas["cpu"] == {"google.com/tpu": 0, "cpu": 6, "memory": 24e9}


def test_quotas_two_machine_types_of_one_topology_share_a_flavor():
    both = {catalogue.find("v5e-8"): 2, catalogue.find("v5e-8", machine_type="ct5lp-hightpu-4t"): 1}
    (group,) = of_kind(rendered(both), "ClusterQueue")["tpu"]["spec"]["resourceGroups"]
    assert [flavor["name"] for flavor in group["flavors"]] == ["v5e-2x4", "cpu"]
    assert quota_of(group["flavors"][0])["google.com/tpu"] == 24


def test_queues_slice_that_gke_lacks_is_refused():
    with pytest.raises(Invalid, match="v2-8"):
        rendered({catalogue.find("v2-8"): 1})


@pytest.mark.parametrize(
    "spec",
    [
        {"tpu": "v4-32", "slices": 2, "tensorboard": True},
        {"tpu": "v4-32", "capacity": "spot"},
        {"tpu": "v4-32", "capacity": {"reservation": "ours"}},
        {"tpu": "v4-32", "capacity": {"reservation": "projects/example.com:mine/reservations/theirs"}},
        {"tpu": "v5e-8", "capacity": "flex-start", "tensorboard": True},
        {"tpu": "v5e-8"},
        {"tpu": {"type": "v5e-8", "machine_type": "ct5lp-hightpu-4t"}, "tensorboard": True},
    ],
)
def test_every_pod_of_a_job_fits_exactly_one_flavor_which_changes_nothing_in_it(spec):
    documents = rendered(EVERY_KIND)
    flavors = of_kind(documents, "ResourceFlavor")
    (group,) = of_kind(documents, "ClusterQueue")["tpu"]["spec"]["resourceGroups"]
    assert [flavor["name"] for flavor in group["flavors"]] == list(flavors)
    for job in jobset(spec)["spec"]["replicatedJobs"]:
        pod = job["template"]["spec"]["template"]["spec"]
        (flavor,) = [flavor for flavor in group["flavors"] if fits(flavors[flavor["name"]], pod, flavors)]
        assert flavors[flavor["name"]]["spec"]["nodeLabels"].items() <= pod["nodeSelector"].items()
        (requests,) = [container["resources"]["requests"] for container in pod["containers"]]
        assert set(requests) <= set(group["coveredResources"])
        pods = job["replicas"] * job["template"]["spec"]["parallelism"]
        quota = quota_of(flavor)
        assert all(pods * quantity(amount) <= quota[name] for name, amount in requests.items())


def jobset(spec):
    spec = {"name": "job", "command": ["true"], "image": "image", "workdir": "gs://bucket/job", **spec}
    return render.documents(plan.make(JobSpec.from_json(spec), Settings(), "gke"))[0]


KINDS = ["on-demand", "spot", "flex-start", "reservation:ours", "reservation:other"]


# Kueue ignores a label that no flavor of the queue has, and no node is labelled as not reserved. A job for a
# reservation passes for an on-demand job in a queue without one, until it is evicted because no host came.
UNKNOWN_TO_KUEUE = ("reservation:ours", "on-demand")


@pytest.mark.parametrize(("wanted", "there"), [pair for pair in product(KINDS[:4], KINDS) if pair != UNKNOWN_TO_KUEUE])
def test_job_gets_quota_of_the_kind_it_names_and_of_no_other(wanted, there):
    documents = rendered({render.PoolKind(catalogue.find("v4-32"), there): 2})
    flavors = of_kind(documents, "ResourceFlavor")
    capacity = {"reservation": "ours"} if wanted.startswith("reservation") else wanted
    (job,) = jobset({"tpu": "v4-32", "capacity": capacity})["spec"]["replicatedJobs"]
    pod = job["template"]["spec"]["template"]["spec"]
    found = [name for name, flavor in flavors.items() if fits(flavor, pod, flavors) and name != "cpu"]
    assert found == (list(flavors)[:1] if wanted == there else [])


@given(st.sampled_from(EVERY), st.sampled_from(["on-demand", "spot", "flex-start", "reservation:a-1", REMOTE]))
def test_flavor_names_tell_shape_and_way_back(shape, capacity):
    kind = render.PoolKind(shape, capacity)
    back = pool_kinds.of_flavor(kind.flavor)
    assert (back.shape.generation, back.shape.topology, back.capacity) == (shape.generation, shape.topology, capacity)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", kind.flavor)
    assert pool_kinds.of_selector(kind.labels).flavor == kind.flavor
    written, way = pool_kinds.parse(kind.written, "--quota")
    assert (written.topology, way) == (shape.topology, capacity)


@pytest.mark.parametrize("flavor", ["cpu", "mine", "v4-2x2x4-cheap", "v4-9x9x9", "v4-2x2x4-on-demand"])
def test_flavor_of_somebody_else_is_no_kind_of_ours(flavor):
    assert pool_kinds.of_flavor(flavor) is None


def fits(flavor, pod, flavors):
    """Match as Kueue does: by selectors and affinities whose keys any flavor has, and by the flavor's taints."""
    keys = {key for other in flavors.values() for key in other["spec"]["nodeLabels"]}
    wanted = {key: value for key, value in pod["nodeSelector"].items() if key in keys}
    required = pod.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {})
    absent = set()
    for term in required.get("nodeSelectorTerms", []):
        assert all(rule["operator"] == "DoesNotExist" for rule in term["matchExpressions"])
        absent |= {rule["key"] for rule in term["matchExpressions"]}
    labels = flavor["spec"]["nodeLabels"]
    tolerated = {one["key"] for one in pod.get("tolerations", []) if one["operator"] == "Exists"}
    taints = {one["key"] for one in flavor["spec"].get("nodeTaints", [])}
    return wanted.items() <= labels.items() and not absent & set(labels) and taints <= tolerated


def quota_of(flavor):
    return {resource["name"]: quantity(resource["nominalQuota"]) for resource in flavor["resources"]}


def quantity(amount):
    amount = str(amount)
    unit = UNITS.get(amount[-1], 1)
    return float(amount.rstrip("mG")) * unit


def team_documents(**fields):
    return of_all(render.team(kueue.Team("vision", "tpu", False, "cloud-tpu-sa", **fields)))


def of_all(documents):
    return {(one["kind"], one["metadata"]["name"]): one for one in documents}


def test_team_admits_no_root_and_reaches_everything_unless_asked():
    made = team_documents()
    labels = made["Namespace", "vision"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert ("NetworkPolicy", "team-egress") not in made


def test_team_whose_programs_may_run_as_root_admits_what_the_baseline_does():
    labels = team_documents(allow_root=True)["Namespace", "vision"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "baseline"


def test_team_with_access_to_chips_has_a_policy_that_comes_before_its_namespace_is_opened():
    documents = render.team(kueue.Team("vision", "tpu", False, "cloud-tpu-sa", access="tpu"))
    kinds = [(one["kind"], one["metadata"]["name"]) for one in documents]
    policy, binding = ("ValidatingAdmissionPolicy", "tpukit-pods"), ("ValidatingAdmissionPolicyBinding", "tpukit-pods")
    assert kinds.index(policy) < kinds.index(binding) < kinds.index(("Namespace", "vision"))
    made = of_all(documents)
    labels = made["Namespace", "vision"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
    selector = made[binding]["spec"]["matchResources"]["namespaceSelector"]["matchLabels"]
    assert selector.items() <= labels.items()
    assert made[policy]["spec"]["failurePolicy"] == "Fail"
    assert not any(name == "tpukit-pods" for _, name in team_documents())


def test_team_with_networks_reaches_those_its_own_pods_names_and_tokens_alone():
    made = team_documents(egress=("203.0.113.0/24", "10.0.0.0/8"))
    policy = made["NetworkPolicy", "team-egress"]["spec"]
    assert policy["policyTypes"] == ["Egress"]
    own, names, tokens, listed = policy["egress"]
    assert own == {"to": [{"podSelector": {}}]}
    assert {port["port"] for port in names["ports"]} == {53}
    assert {one["ipBlock"]["cidr"] for one in tokens["to"]} == {"169.254.169.252/32", "169.254.169.254/32"}
    assert [one["ipBlock"]["cidr"] for one in listed["to"]] == ["203.0.113.0/24", "10.0.0.0/8"]
    namespace = made["Namespace", "vision"]["metadata"]
    assert namespace["annotations"] == {"tpukit.dev/egress": "203.0.113.0/24,10.0.0.0/8"}


def test_flex_start_slices_are_asked_for_before_a_job_starts_in_every_queue_that_has_them():
    kinds = {render.PoolKind(catalogue.find("v5p-16"), "flex-start"): 2, render.PoolKind(catalogue.find("v4-32")): 1}
    documents = rendered(kinds, queued=True)
    (config,) = of_kind(documents, "ProvisioningRequestConfig").values()
    assert config["spec"]["provisioningClassName"] == "queued-provisioning.gke.io"
    (check,) = of_kind(documents, "AdmissionCheck").values()
    assert check["spec"]["parameters"]["name"] == config["metadata"]["name"]
    common = of_kind(documents, "ClusterQueue")["tpu"]
    total = quotas.total([common])
    own = [render.cluster_queue(one) for one in quotas.divide(total, [Team("vision", {"v5p-2x2x2-flex-start": 1})])]
    for queue in (common, *own):
        checks = queue["spec"]["admissionChecksStrategy"]["admissionChecks"]
        assert checks == [{"name": check["metadata"]["name"], "onFlavors": ["v5p-2x2x2-flex-start"]}]
    kinds_ = [one["kind"] for one in documents]
    assert kinds_.index("AdmissionCheck") < kinds_.index("ClusterQueue")


def test_flex_start_slices_that_come_one_by_one_need_no_request():
    kinds = {render.PoolKind(catalogue.find("v5p-16"), "flex-start"): 2}
    documents = render.queues(kinds, ["research"], cpus=6, memory_gb=24)
    assert not of_kind(documents, "AdmissionCheck")
    assert "admissionChecksStrategy" not in of_kind(documents, "ClusterQueue")["tpu"]["spec"]
