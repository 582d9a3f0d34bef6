"""A sandbox as a user has it: the command, real Kubernetes, JobSet and Kueue; hosts are simulated by kwok.

The programs are built by the first test that needs them (minutes, once for each change of the pins). Without Go the
tests fail with the sentence that the command prints.
"""

import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from box import until
from crowd import simulated_pool
from tpukit import catalogue, plan, pods, render
from tpukit.errors import Denied, NotFound
from tpukit.kube import Cluster
from tpukit.spec import JobSpec, Settings

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "us-central2-docker.pkg.dev/my-project-1/images/train@sha256:" + "0" * 64
SETTINGS = Settings.from_json({"artifacts": "gs://my-artifacts", "team": "research"})
V4_16 = catalogue.find("v4-16")


class Box:
    """Runs `tpu sandbox` in a home of its own."""

    def __init__(self, home, name):
        self.home, self.name = home, name

    def tpu(self, *words, check=True):
        env = {**os.environ, "TPUKIT_HOME": str(self.home), "PYTHONPATH": str(ROOT / "tools")}
        # The name goes to the innermost command; a command given to `shell` is not ours.
        ours = len(words) if words[0] != "shell" else 1
        named = [*words[:ours], "--name", self.name, *words[ours:]]
        argv = [sys.executable, "-m", "tpukit", "sandbox", *named]
        done = subprocess.run(argv, env=env, capture_output=True, text=True)
        if check and done.returncode:
            pytest.fail(f"`tpu sandbox {' '.join(words)}`: {done.stderr}")
        return done

    def status(self):
        return json.loads(self.tpu("status", "--json", check=False).stdout)

    @property
    def folder(self):
        return self.home / "data" / "sandbox" / self.name

    @property
    def cluster(self):
        return Cluster(self.folder / "kubeconfig")

    def processes(self):
        """All that carry the sandbox's folder in their command line or, as a mark, in their environment."""
        named = [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if _mentions(entry, self.folder)]
        return {*named, *pods.strays(self.folder)}

    def kill(self, *components):
        """As the kernel does when memory is short: no warning."""
        for one in self.status()["components"]:
            if one["name"] in components:
                os.kill(one["pid"], signal.SIGKILL)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sandbox")
    yield folder
    pods.kill_strays(folder)


@pytest.fixture(scope="module")
def box(home):
    sandbox = Box(home, "first")
    sandbox.tpu("up", "--api=*", "--addons")
    yield sandbox
    if sandbox.folder.exists():
        sandbox.tpu("down")


@pytest.fixture(scope="module")
def cluster(box):
    """Two pools of a slice each, queues over them, and a team."""
    cluster = box.cluster
    for name in ("pool-0", "pool-1"):
        for node in simulated_pool(name, V4_16):
            cluster.create(node)
    for document in render.queues({V4_16: 2}, ["research", "other"], cpus=8, memory_gb=32):
        cluster.apply(document)
    for team in ("research", "other"):
        account = {"metadata": {"name": SETTINGS.service_account, "namespace": team}}
        cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", **account})
    return cluster


def planned(**fields):
    spec = {"name": "job", "tpu": "v4-16", "slices": 2, "command": ["python", "train.py"], "image": IMAGE, **fields}
    return plan.make(JobSpec.from_json(spec), SETTINGS, "gke")


def condition_of(thing, kind):
    conditions = thing.get("status", {}).get("conditions", [])
    return next((one["status"] == "True" for one in conditions if one["type"] == kind), False)


def send(cluster, made):
    for document in render.documents(made):
        cluster.apply(document)


def completed(cluster, made):
    return condition_of(cluster.get("JobSet", made.id, made.team), "Completed")


def seen(cluster, made):
    """What there is of all jobs, for whoever reads that one of them did not end."""
    kinds = ("JobSet", "Workload", "Job", "Pod", "Node")
    found = [one for kind in kinds for one in cluster.list(kind, *([made.team] if kind != "Node" else []))]
    return {one["metadata"]["name"]: one.get("status", {}).get("conditions", []) for one in found}


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


@pytest.mark.parametrize(("name", "image"), [("jobset", "jobset:v0.12.0 True"), ("kueue", "kueue:v0.16.6 True")])
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
    team = Cluster(file)
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
    """Addresses at which a process waits for connections, as the kernel writes them, and ports."""
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
    """As Terraform asks for it, without Terraform."""
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
    ask("POST", "CONTAINER", here, {"cluster": made})
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
    """A pod that no node has a place for until there is a slice of this topology."""
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


def test_killed_store_and_api_server_come_back_with_their_state(box, cluster):
    made = planned(name="survives", command=["sleep", "1"])
    box.kill("etcd", "kube-apiserver")
    until(lambda: not box.status()["running"])
    assert box.tpu("status", check=False).returncode == 1
    box.tpu("up")
    status = box.status()
    assert status["running"]
    assert {one["name"]: one["restarts"] for one in status["components"]} == {
        one["name"]: int(one["name"] in ("etcd", "kube-apiserver", "jobset", "kueue")) for one in status["components"]
    }
    cluster = box.cluster
    assert len(cluster.list("Node")) == 4
    send(cluster, made)
    until(lambda: completed(cluster, made), lambda: seen(cluster, made))


def test_everything_killed_comes_back_with_its_state(box, cluster):
    made = planned(name="lasting")
    send(cluster, made)
    box.kill(*(one["name"] for one in box.status()["components"]))
    until(lambda: not any(one["running"] for one in box.status()["components"]))
    box.tpu("up")
    until(lambda: completed(box.cluster, made))


def test_up_of_what_runs_changes_nothing(box):
    before = {one["name"]: one["pid"] for one in box.status()["components"]}
    box.tpu("up")
    assert {one["name"]: one["pid"] for one in box.status()["components"]} == before


def test_two_side_by_side_do_not_see_each_other_and_one_leaves_the_other_alone(box, cluster):
    second = Box(box.home, "second")
    second.tpu("up")
    assert second.cluster.list("Node") == []
    comes_and_goes_with_its_deployment(second)
    cluster = Cluster(box.folder / "kubeconfig")
    assert len(cluster.list("Node")) == 4
    second.tpu("down")
    assert not second.folder.exists()
    assert box.status()["running"]


def comes_and_goes_with_its_deployment(bare):
    """A release, in a sandbox that has none: applied by its public address, and deleted."""

    def kubectl(*words):
        done = bare.tpu("shell", "--", "kubectl", *words, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def runs():
        return any(one["running"] for one in bare.status()["components"] if one["name"] == "jobset")

    assert bare.cluster.list("Deployment") == []
    with pytest.raises(NotFound):
        bare.cluster.list("JobSet")
    version = bare.status()["versions"]["jobset"]
    release = f"https://github.com/kubernetes-sigs/jobset/releases/download/{version}/manifests.yaml"
    deployment = ("--namespace=jobset-system", "deployment/jobset-controller-manager")
    for _ in range(2):  # whoever is not sure that it is there applies it again
        kubectl("apply", "--server-side", "--force-conflicts", f"--filename={release}")
        kubectl("wait", *deployment, "--for=condition=Available", "--timeout=5m")
    assert runs()
    kubectl("delete", *deployment)
    until(lambda: not runs())
    unknown = release.replace(version, "v0.2.3")
    done = bare.tpu("shell", "--", "kubectl", "apply", f"--filename={unknown}", check=False)
    assert "404" in done.stderr


def test_down_leaves_no_process_and_no_file(home):
    box = Box(home, "leaving")
    box.tpu("up")
    components = box.status()["components"]
    assert len(box.processes()) >= 2 * len(components), "each has one above it"
    box.tpu("down")
    until(lambda: not box.processes())
    assert not box.folder.exists()
    assert box.tpu("down", check=False).returncode == 1
    assert box.tpu("status", check=False).stderr.startswith("tpu: there is no sandbox leaving")


def _mentions(process, folder):
    try:
        return os.fsencode(folder) in (process / "cmdline").read_bytes()
    except OSError:
        return False


def test_missing_go_is_a_sentence(home, monkeypatch):
    empty = home / "empty"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))
    monkeypatch.setenv("XDG_CACHE_HOME", str(empty))
    box = Box(home, "without-go")
    done = box.tpu("up", check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("tpu: go is not on PATH")
    shutil.rmtree(empty)
    with pytest.raises(NotFound):
        box.cluster.version()
