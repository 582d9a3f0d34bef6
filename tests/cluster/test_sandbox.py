"""A sandbox through its command: real Kubernetes, JobSet and Kueue; hosts are simulated by kwok.

The first test that needs the programs builds them (minutes, once for each change of the pins). Without Go the tests
fail with the message of the command.
"""

import json
import ssl
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from support.box import until
from support.patient_cluster import PatientCluster
from support.sandbox_command import *  # noqa: F403 (fixtures)
from support.sandbox_command import SETTINGS, Box, completed, condition_of, planned, send
from tpukit import catalogue
from tpukit.core.errors import Denied
from tpukit.jobs import render


def test_sandbox_without_jobs_is_small(box):
    other = Box(box.home, "small")
    other.tpu("up", "--addons")
    status = other.status()
    other.tpu("down")
    assert status["running"]
    assert status["memory_bytes"] < 1.5 * 2**30


def test_kubectl_of_the_shell_sees_nodes_as_gke_labels_them(box, cluster):
    selector = "cloud.google.com/gke-tpu-topology=2x2x2"
    until(lambda: all(condition_of(node, "Ready") for node in cluster.list("Node")))
    shown = box.tpu("shell", "kubectl", "get", "nodes", "-l", selector, "-o", "name").stdout.split()
    assert shown == [f"node/pool-{pool}-{host}" for pool in (0, 1) for host in (0, 1)]


@pytest.mark.parametrize(("name", "image"), [("jobset", "jobset:v0.12.0 True"), ("kueue", "kueue:v0.19.2 True")])
def test_versions_are_found_where_one_looks_for_them(box, name, image):
    text = "{.spec.template.spec.containers[0].image} {.status.conditions[?(@.type=='Available')].status}"
    words = ["get", "deployment", f"{name}-controller-manager", "-n", f"{name}-system", "-o", f"jsonpath={text}"]
    until(lambda: box.tpu("shell", "kubectl", *words).stdout.endswith(image))
    assert box.cluster.version() == box.status()["versions"]["kubernetes"]


def test_jobset_of_two_slices_goes_through_its_queue_each_slice_alone_on_a_pool(cluster):
    made = planned(name="through", command=["sleep", "3"])
    send(cluster, made)
    on = {}

    def ended():
        for pod in cluster.list("Pod", "research", labels=f"jobset.sigs.k8s.io/jobset-name={made.id}"):
            if "nodeName" in pod["spec"]:
                where = pod["spec"]["nodeName"].rsplit("-", 1)[0]
                on.setdefault(pod["metadata"]["labels"]["jobset.sigs.k8s.io/job-index"], set()).add(where)
        return completed(cluster, made)

    until(ended)
    (workload,) = [one for one in cluster.list("Workload", "research") if made.id in one["metadata"]["name"]]
    assert condition_of(workload, "Admitted") or condition_of(workload, "Finished")
    assert sorted(on) == ["0", "1"]
    assert all(len(pools) == 1 for pools in on.values())
    assert on["0"] != on["1"]


def test_rollout_of_kueue_is_one_from_the_moment_it_is_written(cluster):
    """Patch the template. Without a process in place of its pods, the rollout would count as complete at once."""
    path = "/apis/apps/v1/namespaces/kueue-system/deployments/kueue-controller-manager"
    until(lambda: cluster.call("GET", path)["spec"]["replicas"] == 0, "Kueue to run")

    def would_have(change):
        content = "application/merge-patch+json"
        return cluster.call("PATCH", path, {"dryRun": "All"}, body=change, content=content)["spec"]["replicas"]

    assert would_have({"metadata": {"annotations": {"seen": "by"}}}) == 0
    assert would_have({"spec": {"template": {"metadata": {"annotations": {"restarted": "now"}}}}}) == 1


def test_job_beyond_the_quota_waits_for_the_one_before_it(cluster):
    first, second = planned(name="before", command=["sleep", "4"]), planned(name="behind", command=["sleep", "0"])
    send(cluster, first)
    until(lambda: not cluster.get("JobSet", first.id, first.team)["spec"].get("suspend"))
    send(cluster, second)
    until(lambda: completed(cluster, first))
    ended = cluster.get("JobSet", first.id, first.team)["status"]["conditions"]
    until(lambda: completed(cluster, second))
    started = cluster.list("Pod", "research", labels=f"jobset.sigs.k8s.io/jobset-name={second.id}")
    done = max(one["lastTransitionTime"] for one in ended if one["type"] == "Completed")
    assert min(pod["metadata"]["creationTimestamp"] for pod in started) >= done


def test_account_of_a_team_reads_and_stops_only_its_own(box, cluster):
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "team", "namespace": "research"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kueue-jobset-editor-role"},
        "subjects": [{"kind": "ServiceAccount", "name": SETTINGS.service_account, "namespace": "research"}],
    }
    cluster.apply(binding)
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    path = f"/api/v1/namespaces/research/serviceaccounts/{SETTINGS.service_account}/token"
    token = cluster.call("POST", path, body=asked)["status"]["token"]
    config = json.loads((box.folder / "kubeconfig").read_text())
    config["users"][0]["user"] = {"token": token}
    file = box.home / "team-kubeconfig"
    file.write_text(json.dumps(config))
    team = PatientCluster(file)
    assert isinstance(until(lambda: _allowed(lambda: team.list("JobSet", "research"))), list)
    for refused in (
        lambda: team.list("JobSet", "other"),
        lambda: team.list("JobSet"),
        lambda: team.delete("JobSet", "any", "other"),
        lambda: team.list("Secret", "research"),
        lambda: team.list("Node"),
    ):
        with pytest.raises(Denied, match="forbidden"):
            refused()


def _allowed(call):
    try:
        return call()
    except Denied:
        return None


def test_nothing_listens_but_on_loopback_at_the_ports_that_status_names(box):
    components = box.status()["components"]
    heard = {address for one in components for address in _listening(one["pid"])}
    assert {host for host, _ in heard} == {"0100007F"}, "as /proc writes 127.0.0.1"
    assert {port for _, port in heard} == {port for one in components for port in one["ports"]}


def _listening(pid):
    """Yield the listening addresses, as the kernel writes them, and ports of a process."""
    sockets = set()
    for handle in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            sockets.add(str(handle.readlink()).removeprefix("socket:[").removesuffix("]"))
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in sockets:
                host, port = words[1].split(":")
                yield host, int(port, 16)


def test_no_door_opens_without_the_token(box):
    doors = {one["name"]: one["ports"] for one in box.status()["components"]}
    authority = box.folder / "certificates" / "cluster" / "ca.crt"
    assert _answer(doors["kube-apiserver"][0], "/version", authority) == 401
    assert _answer(doors["agent"][0], "/pools", authority) in (401, 403)
    for component in ("kube-controller-manager", "kube-scheduler"):
        assert _answer(doors[component][0], "/metrics", authority) in (401, 403)
    with pytest.raises(OSError, match=r"(?i)certificate|alert|reset|closed"):
        _answer(doors["etcd"][0], "/version", box.folder / "certificates" / "etcd" / "ca.crt")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            f"http://127.0.0.1:{doors['google'][0]}/emulator/faults", timeout=60
        )


def _answer(port, path, authority):
    trust = ssl.create_default_context(cafile=str(authority))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust))
    try:
        return opener.open(f"https://127.0.0.1:{port}{path}", timeout=60).status
    except urllib.error.HTTPError as error:
        return error.code


def test_pool_made_through_googles_apis_becomes_nodes_grows_for_a_pod_and_goes_with_its_cluster(box, cluster):
    """Send the requests that Terraform sends."""
    google = json.loads((box.folder / "google" / "environment.json").read_text())

    def ask(method, product, path, body=None):
        request = urllib.request.Request(
            f"{google[f'GOOGLE_{product}_CUSTOM_ENDPOINT']}projects/tpu-project/{path}",
            method=method,
            data=json.dumps(body).encode() if body else None,
            headers={"Authorization": f"Bearer {google['GOOGLE_OAUTH_ACCESS_TOKEN']}"},
        )
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=120) as answer:
            return json.loads(answer.read())

    def nodes(pool="real"):
        found = cluster.list("Node", labels=f"cloud.google.com/gke-nodepool={pool}")
        return [node["metadata"]["name"] for node in found]

    network, here = "projects/tpu-project/global/networks/net", "locations/us-central2/clusters"
    ask("POST", "COMPUTE", "global/networks", {"name": "net", "autoCreateSubnetworks": False})
    subnet = {"name": "subnet", "ipCidrRange": "10.0.0.0/16", "network": network}
    ask("POST", "COMPUTE", "regions/us-central2/subnetworks", subnet)
    made = {
        "name": "here",
        "initialNodeCount": 1,
        "locations": ["us-central2-b"],
        "network": "net",
        "subnetwork": "subnet",
    }
    ask("POST", "CONTAINER", here, {"cluster": {**made, "releaseChannel": {"channel": "UNSPECIFIED"}}})
    until(lambda: ask("GET", "CONTAINER", f"{here}/here")["status"] == "RUNNING")
    assert f"https://{ask('GET', 'CONTAINER', f'{here}/here')['endpoint']}" == box.status()["server"]
    pool = {
        "name": "real",
        "initialNodeCount": 2,
        "config": {"machineType": "ct4p-hightpu-4t"},
        "placementPolicy": {"type": "COMPACT", "tpuTopology": "2x2x2"},
    }
    ask("POST", "CONTAINER", f"{here}/here/nodePools", {"nodePool": pool})
    until(lambda: len(nodes()) == 2)
    scaled = {
        **pool,
        "name": "scaled",
        "initialNodeCount": 0,
        "placementPolicy": {"type": "COMPACT", "tpuTopology": "2x2x4"},
        "autoscaling": {"enabled": True, "minNodeCount": 0, "maxNodeCount": 4},
    }
    ask("POST", "CONTAINER", f"{here}/here/nodePools", {"nodePool": scaled})
    assert nodes("scaled") == []
    cluster.create(waiting_pod("2x2x4"))
    until(lambda: cluster.get("Pod", "waiting", "default")["status"]["phase"] == "Succeeded")
    until(lambda: len(nodes("scaled")) == 4, "a slice to come with all its hosts")
    cluster.delete("Pod", "waiting", "default")
    ask("DELETE", "CONTAINER", f"{here}/here")
    until(lambda: len(cluster.list("Node")) == 4, "none but the simulated nodes to be left")


def waiting_pod(topology):
    """Return a pod that cannot be scheduled until a slice of this topology exists."""
    container = {"name": "main", "image": "image", "command": ["true"]}
    spec = {
        "restartPolicy": "Never",
        "nodeSelector": {"cloud.google.com/gke-tpu-topology": topology},
        "tolerations": [{"key": "google.com/tpu", "operator": "Exists"}],
        "containers": [{**container, "resources": {"limits": {"google.com/tpu": "4"}}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "waiting", "namespace": "default"}, "spec": spec}


def test_faults_are_ordered_shown_and_taken_away(box):
    name = box.tpu("faults", "add", "stockout", "--match", "us-central2-b", "--times", "2").stdout.strip()
    assert f"{name}: stockout match=us-central2-b times=2" in box.tpu("faults").stdout
    box.tpu("faults", "clear", name)
    assert json.loads(box.tpu("faults", "--json").stdout)["google"] == []
    refused = box.tpu("faults", "add", "nonsense", check=False)
    assert (refused.returncode, "there is no fault of kind 'nonsense'" in refused.stderr) == (2, True)
    assert "there is no pool or host nowhere" in box.tpu("faults", "host", "lose", "nowhere", check=False).stderr


def test_dry_run_accepts_every_row_of_the_catalogue_that_gke_offers(cluster):
    offered = [shape for shape in catalogue.slices() if shape.machine_type]
    for shape in offered:
        tpu = {"generation": shape.generation, "topology": shape.topology, "machine_type": shape.machine_type}
        for document in render.documents(planned(tpu=tpu, slices=1)):
            cluster.apply(document, dry_run=True)
    assert len(offered) > 100


NAMES = [shape.name for shape in catalogue.slices() if shape.machine_type and shape.generation not in ("v2", "v3")]
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=20)
SPECS = st.fixed_dictionaries(
    {
        "name": st.from_regex(r"[a-z][a-z0-9]{0,20}", fullmatch=True),
        "tpu": st.sampled_from(NAMES),
        "slices": st.integers(1, 8),
        "command": st.lists(WORDS, max_size=4).map(lambda words: ["python", *words]),
    },
    optional={
        "priority": st.sampled_from(["low", "medium", "high"]),
        "env": st.dictionaries(st.from_regex(r"[A-Z][A-Z0-9_]{0,10}", fullmatch=True), WORDS, max_size=3),
        "config": st.dictionaries(
            st.sampled_from(["lr", "bs", "model"]), st.integers(-9, 9) | st.booleans(), max_size=3
        ),
        "tensorboard": st.booleans(),
        "capacity": st.sampled_from(["on-demand", "spot", "flex-start", {"reservation": "mine"}]),
        "rule": st.sampled_from(["pass", "resume", "rerun", "reapply", "pre"]),
        "max": st.fixed_dictionaries(
            {},
            optional={
                "restarts": st.integers(0, 100),
                "runtime": st.sampled_from(["1h", "6d"]),
                "grace": st.just("45s"),
            },
        ),
        "tags": st.lists(st.sampled_from(["a", "sweep-3", "x.y"]), max_size=3),
        "mounts": st.just([{"bucket": "my-data", "path": "/data"}]),
    },
)


@settings(
    max_examples=500,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(fields=SPECS)
def test_dry_run_accepts_generated_specs(cluster, fields):
    for document in render.documents(planned(**fields)):
        cluster.apply(document, dry_run=True)
