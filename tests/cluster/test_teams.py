"""Teams on a real control plane with real Kueue: order, eviction and resume, borrowing, and isolation.

Hosts are simulated by kwok, on which a pod can `sleep`. There are only two slices of v4-16, so that jobs compete.
"""

import json
import os
import re
import subprocess
import sys
import time
from itertools import count

import pytest

from support.box import ROOT, V4_16, sandbox, until
from support.patient_cluster import PatientCluster
from tpubox.pools.allocatable import allocatable
from tpukit import catalogue
from tpukit.core.clock import SystemClock
from tpukit.core.errors import Denied, Invalid, NotFound, TpukitError
from tpukit.goodput.eviction import EvictionCost
from tpukit.jobs import plan, render
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.places.base import QueueCost
from tpukit.places.gke.eviction_costs import EvictionCosts
from tpukit.teams import queue_rows, registry
from tpukit.teams.team import request

IMAGE = "us-central2-docker.pkg.dev/my-project-1/images/train@sha256:" + "0" * 64
SETTINGS = Settings.from_json({"artifacts": "gs://my-artifacts"})
V4_32 = catalogue.find("v4-32")
ACCOUNT = SETTINGS.service_account
LONG = 86400
NUMBERS = count()


class Desk:
    """The `tpu` command of a user of a sandbox."""

    def __init__(self, sandbox):
        self.sandbox, self.home, self.kubeconfig = sandbox, sandbox.home, sandbox.place.kubeconfig

    def tpu(self, *words, kubeconfig=None, **env):
        own = {"TPUKIT_HOME": str(self.home), "PYTHONPATH": str(ROOT / "tools"), "TPUKIT_SETTINGS": "/nowhere"}
        own["KUBECONFIG"] = str(kubeconfig or self.kubeconfig)
        argv = [sys.executable, "-m", "tpukit", *words]
        return subprocess.run(argv, env={**os.environ, **env, **own}, capture_output=True, text=True)

    def done(self, *words, **more):
        ended = self.tpu(*words, **more)
        assert ended.returncode == 0, f"`tpu {' '.join(words)}`: {ended.stderr}"
        return ended

    def queue(self):
        """Return the content of `tpu team queue --json`, without the second that a process takes to start."""
        queues, _ = registry.read_queues(self.sandbox.cluster)
        return queue_rows.queues_of(queues), queue_rows.jobs(queues)

    def row(self, job):
        return next(row for row in self.queue()[1] if row.job == job)

    def common(self):
        """Return the row of the common queue for v4-16."""
        return next(row for row in self.queue()[0] if (row.queue, row.tpu) == ("tpu", "v4-16"))

    def change(self, name, **options):
        """Change a team as `tpu team add` does, in this process."""
        cluster = self.sandbox.cluster
        registry.apply(cluster, registry.plan(cluster, request(name, **options), ACCOUNT), ACCOUNT, SystemClock())


def nodes(pool, shape):
    labels = {
        "cloud.google.com/gke-nodepool": pool,
        **render.PoolKind(shape).labels,
        "cloud.google.com/gke-accelerator-count": str(shape.chips_per_host),
    }
    vcpus, memory_gb = render.machine_share.machine(shape)
    amounts = {"cpu": str(vcpus), "memory": f"{memory_gb}G", "pods": "16", "google.com/tpu": str(shape.chips_per_host)}
    amounts["ephemeral-storage"] = "100Gi"
    for index in range(shape.hosts):
        name = f"{pool}-{index}"
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {**labels, "kubernetes.io/hostname": name},
                "annotations": {"kwok.x-k8s.io/node": "fake"},
            },
            "spec": {"taints": [{"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}]},
            "status": {"capacity": amounts, "allocatable": allocatable(amounts)},
        }


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    with sandbox(tmp_path_factory.mktemp("teams"), "teams") as box:
        yield Desk(box)


@pytest.fixture(scope="module")
def cluster(desk):
    """Create two slices, one queue over them, and the team that comes with a cluster."""
    cluster = desk.sandbox.cluster
    for pool in ("pool-0", "pool-1"):
        for node in nodes(pool, V4_16):
            cluster.create(node)
    for document in render.queues({V4_16: 2}, ["tpu-training"], cpus=8, memory_gb=32):
        cluster.apply(document)
    return cluster


@pytest.fixture
def team(desk, cluster):
    """Create teams that are deleted after the test."""
    made = []

    def add(**options):
        name = f"team-{next(NUMBERS)}"
        desk.change(name, **options)
        made.append(name)
        return name

    yield add
    for name in made:
        for left in registry.read_teams(cluster, ACCOUNT, name):
            registry.remove(cluster, left, ACCOUNT, SystemClock())


def apply(cluster, team, name, **fields):
    spec = {"name": name, "tpu": "v4-16", "command": ["sleep", str(LONG)], "image": IMAGE, "team": team, **fields}
    made = plan.make(JobSpec.from_json(spec), SETTINGS, "gke")
    for document in render.documents(made):
        cluster.apply(document)
    return made


def send(cluster, team, name, **fields):
    """Send a job, wait until Kueue has a workload for it, and return its id."""
    made = apply(cluster, team, name, **fields)
    until(lambda: [one for one in cluster.list("Workload", team) if owner(one) == made.id], f"{made.id} is not queued")
    return made.id


def owner(workload):
    return workload["metadata"]["ownerReferences"][0]["name"]


def running(cluster, team):
    """Return jobs of a team whose hosts all run, with the ids of those pods."""
    on = {}
    for pod in cluster.list("Pod", team):
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]:
            job = pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"]
            on.setdefault(job, set()).add(pod["metadata"]["uid"])
    return {job: uids for job, uids in on.items() if len(uids) % V4_16.hosts == 0}


def test_team_is_what_was_asked_for_and_asking_twice_changes_nothing(desk, cluster, team):
    name = team()
    desk.done("team", "add", name, "--quota", "v4-16=1", "--member", "user:ada@example.com", "--borrow", "none")
    said = json.loads(desk.done("team", "show", name, "--json").stdout)
    assert (said["quota"], said["borrow"], said["members"]) == ({"v4-16": 1}, {}, ["user:ada@example.com"])

    def versions():
        kinds = ("ClusterQueue", "LocalQueue", "Role", "RoleBinding", "ServiceAccount", "ClusterRoleBinding")
        found = [one["metadata"] for kind in kinds for one in cluster.list(kind)]
        # Other components write the status of some objects; their generation counts only changes of the spec.
        return [(one["name"], one.get("generation") or one["resourceVersion"]) for one in found]

    queues = {one["metadata"]["name"]: one["spec"] for one in cluster.list("ClusterQueue")}
    before = versions()
    again = desk.done("team", "add", name, "--quota", "v4-16=1", "--borrow", "none")
    assert f"team {name} is already as requested" in again.stderr
    assert versions() == before
    assert {one["metadata"]["name"]: one["spec"] for one in cluster.list("ClusterQueue")} == queues
    desk.done("team", "add", name, "--borrow", "v4-16=1", "--member", "group:all@example.com")
    said = json.loads(desk.done("team", "show", name, "--json").stdout)
    assert (said["quota"], said["borrow"], said["members"]) == ({"v4-16": 1}, {"v4-16": 1}, ["group:all@example.com"])


def test_two_teams_and_three_priorities_over_one_queue_go_in_order_evict_and_resume(desk, cluster, team):
    red, blue = team(), team()
    low = send(cluster, red, "low", priority="low")
    until(lambda: low in running(cluster, red), "the first job runs")
    first = running(cluster, red)[low]
    time.sleep(1.1)  # creation times have a resolution of a second
    later = send(cluster, red, "later", priority="low")
    until(lambda: later in running(cluster, red), "two jobs run on two slices")
    middle = send(cluster, blue, "middle")
    until(lambda: middle in running(cluster, blue), "medium takes a slice of low")
    assert set(running(cluster, red)) <= {low}, "the one that came last is evicted"
    high = send(cluster, blue, "high", priority="high", slices=2)
    until(lambda: high in running(cluster, blue) and not running(cluster, red), "high takes both slices")
    order = [(high, "runs", None), (middle, "waits", 1), (low, "waits", 2), (later, "waits", 3)]
    until(lambda: [(row.job, row.state, row.place) for row in desk.queue()[1]] == order, "nobody to leave any more")
    until(lambda: "needs 1 × v4-16, none free" in desk.row(later).why, "the last job to say what it waits for")
    rows = json.loads(desk.done("team", "queue", "--json").stdout)["jobs"]
    assert [(row["job"], row["state"], row["place"]) for row in rows] == order
    why = {row["job"]: row["why"] for row in rows}
    assert f"by {blue}/{high} (high)" in why[middle]
    assert f"by {blue}/{high} (high)" in why[low]
    assert f"by {blue}/{middle} (medium)" in why[later]
    assert "needs 1 × v4-16, none free" in why[later]
    assert f"2 ahead, first {blue}/{middle} (medium)" in why[later]

    cluster.delete("JobSet", high, blue)
    until(lambda: middle in running(cluster, blue) and low in running(cluster, red), "both run again")
    assert not running(cluster, red)[low] & first, "on new hosts"
    until(lambda: desk.row(later).state == "waits", "the last waits on")
    cluster.delete("JobSet", middle, blue)
    until(lambda: set(running(cluster, red)) == {low, later}, "the last resumes too")
    for job in (low, later):
        assert cluster.get("JobSet", job, red)["status"].get("restarts", 0) == 0, "nobody pays for an eviction"


def test_quota_is_lent_while_idle_and_taken_back_whatever_the_priority(desk, cluster, team):
    owner_, other = team(quota=["v4-16=1"]), team()
    jobs = [send(cluster, other, f"job{number}", priority="high") for number in range(2)]
    until(lambda: set(running(cluster, other)) == set(jobs), "the idle quota is lent")

    def lent():
        common = desk.common()
        return (common.own, common.used, common.borrowed) == ("1", "2", "1")

    until(lent, "Kueue counts what it lent")  # Kueue writes a queue's status some time after admission
    until(lambda: "borrows 1 × v4-16" in desk.row(jobs[0]).why, "the job says what it borrows")
    mine = send(cluster, owner_, "mine", priority="low")
    until(lambda: mine in running(cluster, owner_), "the owner gets its quota back")
    until(lambda: len(running(cluster, other)) == 1, "one of the two has left")
    (evicted,) = set(jobs) - set(running(cluster, other))
    until(lambda: f"by {owner_}/{mine} (low)" in desk.row(evicted).why, "the evicted job says for whom it left")
    cluster.delete("JobSet", mine, owner_)
    until(lambda: set(running(cluster, other)) == set(jobs), "what was evicted resumes")


def test_job_that_loses_least_is_evicted_and_no_cost_protects_from_a_higher_priority(desk, cluster, team):
    red, blue = team(), team()
    older = send(cluster, red, "older")
    until(lambda: older in running(cluster, red), "the first job runs")
    time.sleep(1.1)  # creation times have a resolution of a second
    newer = send(cluster, red, "newer")
    until(lambda: newer in running(cluster, red), "two jobs run on two slices")
    said: list[str] = []
    costs = EvictionCosts(cluster, SystemClock(), said.append)

    def has_cost(job, usd):
        (workload,) = (one for one in cluster.list("Workload", red) if owner(one) == job)
        meta = workload["metadata"]
        cost = EvictionCost(usd, unsaved=480.0, starting=60.0)
        costs.write(red, QueueCost(meta["name"], meta["uid"], meta["resourceVersion"], 0, None, cost))
        return desk.row(job).eviction_usd == usd

    until(lambda: has_cost(older, 0.5), "the cheap job has its cost")
    until(lambda: has_cost(newer, 1e9), "the costly job has its cost")
    assert not said, "this Kueue follows boosts"
    assert re.search(rf"{newer} +runs +1,000,000,000.00 USD, 8m 0s", desk.done("team", "queue").stdout)
    first = send(cluster, blue, "first", priority="high")
    until(lambda: first in running(cluster, blue), "high takes a slice")
    assert set(running(cluster, red)) <= {newer}, "the newest job is spared, because it would lose more"
    second = send(cluster, blue, "second", priority="high")
    until(lambda: second in running(cluster, blue) and not running(cluster, red), "no cost protects from high")


def test_limit_of_borrowing_holds_until_it_is_raised(desk, cluster, team):
    name = team(quota=["v4-16=1"], borrow=["none"])
    first = send(cluster, name, "first")
    until(lambda: first in running(cluster, name), "it runs on its own quota")
    second = send(cluster, name, "second")
    until(lambda: "its queue has 1 and may borrow none" in desk.row(second).why, "the limit is the reason")
    assert set(running(cluster, name)) == {first}, "though a slice is free"
    desk.change(name, borrow=["v4-16=1"])
    until(lambda: second in running(cluster, name), "it borrows")
    until(lambda: "borrows 1 × v4-16" in desk.row(first).why, "the job says what its queue borrows")


def test_job_that_can_never_run_says_so(desk, cluster, team):
    name = team()
    job = send(cluster, name, "huge", slices=3)
    until(lambda: desk.row(job).why == "can never run: asks for 3 × v4-16, and its queue can have 2", "it says so")
    other = send(cluster, name, "other", tpu="v4-32")
    until(lambda: desk.row(other).why == "ClusterQueue tpu has no v4-32", "it names what is missing")


def test_team_given_a_quota_takes_its_waiting_jobs_along_and_gives_it_back(desk, cluster, team):
    name, other = team(), team()
    held = [send(cluster, other, f"held{number}") for number in range(2)]
    until(lambda: set(running(cluster, other)) == set(held), "all slices are taken")
    job = send(cluster, name, "waits")
    assert desk.row(job).queue == "tpu"
    desk.change(name, quota=["v4-16=1"])
    until(lambda: job in running(cluster, name), "its own quota is borrowed by nobody who keeps it")
    assert desk.row(job).queue == name
    desk.change(name, quota=["none"])
    assert desk.common().own == "2"
    assert json.loads(desk.done("team", "show", name, "--json").stdout)["queue"] == "tpu"


def test_change_that_ended_halfway_goes_on_when_called_again(desk, cluster, team):
    name = team()
    change = registry.plan(cluster, request(name, quota=["v4-16=1"]), ACCOUNT)
    for document in change.documents:
        if document["kind"] == "ClusterQueue":
            cluster.apply(document)
    assert cluster.get("LocalQueue", name, name)["spec"]["clusterQueue"] == "tpu"
    desk.change(name, quota=["v4-16=1"])
    assert cluster.get("LocalQueue", name, name)["spec"]["clusterQueue"] == name


def test_team_takes_over_nothing_that_others_made(desk, cluster):
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "theirs"}})
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "their-queue"}}
    cluster.apply({**queue, "spec": {}})
    for words, what in (
        (["theirs"], "namespace theirs"),
        (["their-queue", "--quota", "v4-16=1"], "ClusterQueue their-queue"),
    ):
        refused = desk.tpu("team", "add", *words)
        assert (refused.returncode, f"{what} exists already" in refused.stderr) == (1, True), refused.stderr
    cluster.delete("ClusterQueue", "their-queue")
    until(lambda: "their-queue" not in {one["metadata"]["name"] for one in cluster.list("ClusterQueue")}, "it to go")


def test_quotas_beyond_what_there_is_are_refused_and_change_nothing(desk, cluster, team):
    has = team(quota=["v4-16=1"])
    before = {one["metadata"]["name"]: one["spec"] for one in cluster.list("ClusterQueue")}
    refused = desk.tpu("team", "add", "greedy", "--quota", "v4-16=2", "--quota", "v5e-16=1")
    assert refused.returncode == 2
    assert f"2 × v4-16 is too much: the cluster has 2, {has} has 1" in refused.stderr
    assert "the cluster has no v5e-16" in refused.stderr
    assert {one["metadata"]["name"]: one["spec"] for one in cluster.list("ClusterQueue")} == before
    with pytest.raises(NotFound):
        cluster.get("Namespace", "greedy")


def as_member(desk, cluster, team):
    """Return the cluster as seen by an account of a team, and its kubeconfig."""
    cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot", "namespace": team}})
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token = cluster.call("POST", f"/api/v1/namespaces/{team}/serviceaccounts/robot/token", body=asked)
    config = json.loads(desk.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token["status"]["token"]}
    file = desk.home / f"{team}.kubeconfig"
    file.write_text(json.dumps(config))
    member = PatientCluster(file)
    for look in (lambda: member.list("JobSet", team), lambda: member.list("ClusterQueue")):
        until(lambda look=look: allowed(look), "roles to take effect")
    return member, file


def allowed(call):
    """Check that a call is permitted, whatever its result."""
    try:
        call()
    except Denied:
        return False
    except TpukitError:
        return True
    return True


def test_member_does_all_with_the_teams_own_and_nothing_with_anothers(desk, cluster, team):
    ours, theirs = (team(members=["account:robot"]) for _ in range(2))
    member, file = as_member(desk, cluster, ours)
    other = send(cluster, theirs, "theirs")
    mine = send(member, ours, "mine")
    until(lambda: mine in running(cluster, ours) and other in running(cluster, theirs), "both run")
    code = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}

    def acts(namespace, job):
        (pod, *_) = cluster.list("Pod", namespace, labels=f"jobset.sigs.k8s.io/jobset-name={job}")
        name = pod["metadata"]["name"]
        yield "list jobs", lambda: member.list("JobSet", namespace)
        yield "get a job", lambda: member.get("JobSet", job, namespace)
        yield "patch a job", lambda: member.patch("JobSet", job, {"metadata": {"labels": {"a": "b"}}}, namespace)
        yield "list pods", lambda: member.list("Pod", namespace)
        yield "read logs", lambda: list(member.logs(name, namespace))
        yield "list workloads", lambda: member.list("Workload", namespace)
        yield "list events", lambda: member.list("Event", namespace)
        yield "get the queue", lambda: member.get("LocalQueue", namespace, namespace)
        yield "send code", lambda: member.apply({**code, "metadata": {"name": "code", "namespace": namespace}})
        yield "list code", lambda: member.list("ConfigMap", namespace)
        yield "delete code", lambda: member.delete("ConfigMap", "code", namespace)
        yield "delete a pod", lambda: member.delete("Pod", name, namespace)
        yield "stop a job", lambda: member.delete("JobSet", job, namespace)

    refused = {what: not allowed(act) for what, act in acts(theirs, other)}
    assert all(refused.values()), refused
    assert other in running(cluster, theirs)
    granted = {what: allowed(act) for what, act in acts(ours, mine)}
    assert all(granted.values()), granted
    for kind in ("JobSet", "Pod", "Workload", "ConfigMap", "Secret"):
        assert not allowed(lambda kind=kind: member.list(kind)), f"all {kind}s"
    assert not allowed(lambda: member.list("Secret", ours))
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "by-hand", "namespace": ours}, "spec": {}}
    assert not allowed(lambda: member.create(pod)), "which would wait in no queue"
    for kind in ("ClusterQueue", "ResourceFlavor", "WorkloadPriorityClass", "Node"):
        assert member.list(kind), "what there is may be seen"

    desk.done("team", "show", ours, kubeconfig=file)
    shown = desk.done("team", "queue", ours, kubeconfig=file)
    assert other not in shown.stdout
    refused = desk.tpu("team", "queue", kubeconfig=file)
    assert (refused.returncode, "`tpu team queue TEAM`" in refused.stderr) == (1, True)
    assert desk.tpu("team", "queue", theirs, kubeconfig=file).returncode == 1
    assert desk.tpu("team", "remove", theirs, "--force", kubeconfig=file).returncode == 1
    cluster.get("Namespace", theirs)


def test_job_that_names_no_queue_is_refused_in_a_teams_namespace(cluster, team):
    name = team()
    spec = {"name": "past", "tpu": "v4-16", "command": ["sleep", "1"], "image": IMAGE, "team": name}
    (jobset,) = render.documents(plan.make(JobSpec.from_json(spec), SETTINGS, "gke"))
    del jobset["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    with pytest.raises((Invalid, Denied), match="a team's jobs wait in its queue"):
        until(lambda: cluster.apply(jobset, dry_run=True) and None, "the policy to take effect")


def test_remove_asks_first_then_leaves_nothing(desk, cluster, team):
    name = team(quota=["v4-16=1"], members=["user:ada@example.com"])
    job = send(cluster, name, "job")
    refused = desk.tpu("team", "remove", name)
    assert (refused.returncode, job in refused.stderr) == (1, True)
    until(lambda: job in running(cluster, name), "it goes on")
    said = desk.done("team", "remove", name, "--force").stderr
    assert "its quota: 1 × v4-16, returned to the common queue" in said
    for kind in ("Namespace", "ClusterQueue", "ClusterRoleBinding", "ClusterRole", "Workload", "Pod", "JobSet"):
        left = [one["metadata"]["name"] for one in cluster.list(kind) if name in json.dumps(one["metadata"])]
        assert not left, kind
    assert desk.common().own == "2"
    if len(json.loads(desk.done("team", "list", "--json").stdout)) == 1:
        assert "tpukit-member" not in {one["metadata"]["name"] for one in cluster.list("ClusterRole")}
    kept = desk.tpu("team", "remove", "tpu-training")
    assert (kept.returncode, "was created with the cluster" in kept.stderr) == (1, True)


def test_bind_lets_a_teams_jobs_act_as_its_google_account(desk, team):
    google = json.loads((desk.kubeconfig.parent / "google" / "environment.json").read_text())
    accounts = "iam/v1/projects/tpu-project/serviceAccounts"
    email = desk.sandbox.ask("POST", accounts, {"accountId": "team-runner", "serviceAccount": {}})["email"]

    def bindings():
        return desk.sandbox.ask("POST", f"{accounts}/{email}:getIamPolicy", {}).get("bindings", [])

    name = team(email=email)
    line = desk.done("team", "add", name).stderr
    assert f"gcloud iam service-accounts add-iam-policy-binding {email}" in line
    assert not bindings()
    desk.done("team", "add", name, "--bind", **google)
    (binding,) = bindings()
    assert binding["role"] == "roles/iam.workloadIdentityUser"
    assert binding["members"] == [f"serviceAccount:tpu-project.svc.id.goog[{name}/cloud-tpu-sa]"]
    desk.done("team", "remove", name, "--unbind", **google)
    assert not bindings()


def test_queues_applied_anew_hand_out_too_much_until_the_next_team_is_added(desk, cluster, team):
    has = team(quota=["v4-16=1"])
    for document in render.queues({V4_16: 2}, ["tpu-training"], cpus=8, memory_gb=32):
        cluster.apply(document)
    assert "3 × v4-16 are assigned to teams, and the cluster has 2" in desk.done("team", "queue").stderr
    team()
    assert "are assigned to teams" not in desk.done("team", "queue").stderr
    assert {(row.queue, row.own) for row in desk.queue()[0]} == {("tpu", "1"), (has, "1")}
