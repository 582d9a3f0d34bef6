"""`tpu cluster addons` and `status`: installed versions, and installation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from journeys.cluster_machine import PODS
from tpukit.cluster import addons
from tpukit.jobs import render
from tpukit.teams import quotas, shares
from tpukit.teams.team import Team

CPU_NODES = {"items": [{"status": {"allocatable": {"cpu": "3920m", "memory": "12Gi"}}}] * 3}
CLUSTER = (
    {"to": ["kubectl", "get nodes --selector"], "out": json.dumps(CPU_NODES)},
    {"to": ["kubectl", "get clusterqueues"], "out": '{"items": []}'},
)
KUEUE = "registry.k8s.io/kueue/kueue"
GAVE_UP = "Error from server (Timeout): request did not complete within requested timeout - context deadline exceeded"


def sent(calls: list[str]) -> list[dict]:
    """Return the last applied documents: those of the kustomization, then the quotas."""
    folder = Path(next(call for call in reversed(calls) if "--kustomize=" in call).rpartition("--kustomize=")[2])
    files = [folder / name for name in yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]]
    assert any(call.endswith(f"--filename={folder / 'quotas.yaml'}") for call in calls)
    return [document for file in (*files, folder / "quotas.yaml") for document in yaml.safe_load_all(file.read_text())]


def test_addons_installs_waits_and_makes_queues_over_what_the_pools_have(machine):
    machine.answer(*CLUSTER)
    done = machine.tpu("addons")
    assert done.returncode == 0, done.stderr
    calls = machine.calls()
    assert "jobset/releases/download/v0.12.0/manifests.yaml" in calls[2]
    assert "kueue/releases/download/v0.19.2/manifests.yaml" in calls[5]
    assert all("--server-side" in calls[index] for index in (2, 5))
    assert calls[6].endswith("kueue/controller.yaml")
    installed = [["get", "apply", "annotate"], ["get", "apply", "apply", "patch", "annotate"]]
    queues = ["get", "get", "get", "apply", "apply", "get"]
    assert [call.split()[2] for call in calls] == ["get", *installed[0], *installed[1], "wait", "wait", *queues]
    documents = sent(calls)
    (queue,) = [one for one in documents if one["kind"] == "ClusterQueue"]
    assert shares.shares(queue)["v4-2x2x4", "google.com/tpu"].own == 32
    account = next(document for document in documents if document["kind"] == "ServiceAccount")
    assert account["metadata"]["annotations"] == {
        "iam.gke.io/gcp-service-account": "cloud-tpu-sa@my-project-1.iam.gserviceaccount.com"
    }


def test_addons_again_hands_out_nothing_that_a_team_was_given(machine):
    machine.answer(*CLUSTER)
    assert machine.tpu("addons").returncode == 0
    (common,) = [one for one in sent(machine.calls()) if one["kind"] == "ClusterQueue"]
    divided = [render.cluster_queue(one) for one in quotas.divide(quotas.total([common]), [Team("a", {"v4-2x2x4": 1})])]
    machine.answer({"to": ["get clusterqueues"], "out": json.dumps({"items": divided})}, *CLUSTER)
    assert machine.tpu("addons").returncode == 0
    assert [one for one in sent(machine.calls()) if one["kind"] == "ClusterQueue"] == divided, (
        "as `tpu team add` left it"
    )


def test_addons_after_pools_went_away_settles_what_teams_were_given_and_says_so(machine):
    machine.answer(*CLUSTER)
    assert machine.tpu("addons").returncode == 0
    (common,) = [one for one in sent(machine.calls()) if one["kind"] == "ClusterQueue"]
    given = [Team("a", {"v4-2x2x4": 2})]
    divided = [render.cluster_queue(one) for one in quotas.divide(quotas.total([common]), given)]
    machine.answer({"to": ["get clusterqueues"], "out": json.dumps({"items": divided})}, *CLUSTER)
    done = machine.tpu("addons", "--set", "num_tpu_pools=1")
    assert done.returncode == 0, done.stderr
    assert "a was given 2 × v4-32 and has 1: the cluster has no more" in done.stderr
    queues = [one for one in sent(machine.calls()) if one["kind"] == "ClusterQueue"]
    assert not quotas.overdrawn(list({one["metadata"]["name"]: one for one in queues}.values()))


def test_addons_during_a_change_of_quotas_makes_the_queues_once_more(machine):
    lease = ["get", "lease/tpukit-quotas"]
    machine.answer({"to": lease, "out": "17", "times": 1}, {"to": lease, "out": "19"}, *CLUSTER)
    done = machine.tpu("addons")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("quotas were changed meanwhile") == 1
    assert sum("--kustomize" in call for call in machine.calls()) == 2


def test_addons_that_are_there_at_their_versions_are_left_alone(machine):
    machine.answer(
        {"to": ["get", "jobset-system"], "out": "v0.12.0 registry.k8s.io/jobset/jobset:v0.12.0"},
        {"to": ["get", "kueue-system"], "out": f"{addons.mark('kueue')} {KUEUE}:v0.19.1"},  # changed by hand
        *CLUSTER,
    )
    done = machine.tpu("addons")
    assert done.returncode == 0, done.stderr
    assert "jobset v0.12.0 is there" in done.stderr
    releases = [call for call in machine.calls() if "/releases/" in call]
    assert len(releases) == 1
    assert "kueue/releases/download/v0.19.2" in releases[0]


def test_addons_of_a_cluster_that_grew_give_kueue_more_memory_and_install_nothing(machine):
    machine.answer(
        {"to": ["get", "jobset-system"], "out": "v0.12.0 registry.k8s.io/jobset/jobset:v0.12.0"},
        {"to": ["get", "kueue-system"], "out": f"{addons.mark('kueue')} {KUEUE}:v0.19.2@sha256:00"},
        {"to": ["get nodes --output=name"], "out": "".join(f"node/{number}\n" for number in range(200))},
        *CLUSTER,
    )
    assert machine.tpu("addons").returncode == 0
    calls = machine.calls()
    assert not [call for call in calls if "/releases/" in call]
    (patch,) = [call for call in calls if " patch " in call]
    assert '"limits": {"memory": "6400Mi"}' in patch


def test_addons_say_what_is_wrong_with_the_release_that_they_replace(machine):
    machine.answer({"to": ["get", "kueue-system"], "out": f"v0.16.6+0 {KUEUE}:v0.16.6"}, *CLUSTER)
    done = machine.tpu("addons")
    assert done.returncode == 0, done.stderr
    said = done.stderr.splitlines()
    (named,) = [number for number, line in enumerate(said) if line.endswith("kueue/issues/10901")]
    assert named < said.index("installing kueue v0.19.2")


def test_plan_warns_about_installed_releases_with_known_faults(machine):
    answers = []
    for name, version in (("jobset", "v0.12.0"), ("kueue", "v0.16.6")):
        spec = {"template": {"spec": {"containers": [{"image": f"registry.k8s.io/{name}/{name}:{version}"}]}}}
        answers.append({"to": ["get deployments", f"{name}-system"], "out": json.dumps({"items": [{"spec": spec}]})})
    machine.answer(*answers)
    done = machine.tpu("plan")
    assert done.returncode == 0, done.stderr
    assert "Kueue v0.16.6 may mark the Workload of a new JobSet as finished" in done.stderr
    assert "JobSet v" not in done.stderr


def test_addons_keep_a_release_that_is_newer_than_ours(machine):
    machine.answer({"to": ["get", "kueue-system"], "out": f" {KUEUE}:v0.20.1"}, *CLUSTER)
    done = machine.tpu("addons")
    assert done.returncode == 0, done.stderr
    assert "kueue v0.20.1 is newer than v0.19.2" in done.stderr
    assert not [call for call in machine.calls() if "kueue/releases" in call or " patch " in call]


def test_addons_dry_run_prints_the_very_lines_that_it_calls(machine):
    printed = machine.tpu("addons", "--dry-run").stdout.splitlines()
    machine.answer(*CLUSTER)
    assert machine.tpu("addons").returncode == 0
    assert machine.calls() == [line for line in printed if not line.startswith("#")]


def test_addons_that_a_busy_cluster_gave_up_on_are_applied_again(machine, monkeypatch):
    monkeypatch.setattr(addons, "_RETRY_SECONDS", 0.0)
    machine.answer(
        {"to": ["apply", "kueue/releases"], "code": 1, "err": GAVE_UP, "times": 2},
        {"to": ["annotate", "jobset-system"], "code": 1, "err": GAVE_UP, "times": 1},
        {"to": ["apply", "--kustomize"], "code": 1, "err": "failed calling webhook: connection refused", "times": 1},
        *CLUSTER,
    )
    done = machine.tpu("addons")
    assert done.returncode == 0, done.stderr
    often = {part: sum(part in call for call in machine.calls()) for part in ("jobset/releases", "kueue/releases")}
    assert often == {"jobset/releases": 1, "kueue/releases": 3}
    assert sum("--kustomize" in call for call in machine.calls()) == 2


@pytest.mark.parametrize(
    ("to", "what"), [("jobset/releases", "installing jobset v0.12.0"), ("--kustomize", "applying the queues")]
)
def test_addons_that_a_cluster_gives_up_on_for_good_say_what_was_applied(machine, monkeypatch, to, what):
    monkeypatch.setattr(addons, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(addons, "_RETRY_SECONDS", 0.0)
    machine.answer({"to": ["apply", to], "code": 1, "err": GAVE_UP}, *CLUSTER)
    done = machine.tpu("addons")
    assert done.returncode == 1
    assert f"{what}: the cluster does not take it: {GAVE_UP}" in done.stderr
    assert "`tpu cluster addons` again goes on" in done.stderr


def test_release_that_cannot_be_fetched_is_not_waited_for(machine):
    said = "Unable to connect to the server: tls: failed to verify certificate: x509: signed by unknown authority"
    machine.answer({"to": ["apply", "jobset/releases"], "code": 1, "err": said}, *CLUSTER)
    done = machine.tpu("addons")
    assert done.returncode == 1
    assert f"installing jobset v0.12.0 failed: {said}" in done.stderr
    assert sum("jobset/releases" in call for call in machine.calls()) == 1


def test_addons_without_a_cpu_pool_says_so(machine):
    machine.answer({"to": ["kubectl", "get nodes"], "out": '{"items": []}'})
    done = machine.tpu("addons")
    assert done.returncode == 1
    assert "tpukit.dev/pool=cpu" in done.stderr


def test_status_shows_state_cluster_pools_and_addons(machine):
    labels = {"cloud.google.com/gke-nodepool": "tpu-node-pool-1", "cloud.google.com/gke-tpu-topology": "2x2x4"}
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    nodes = {"items": [{"metadata": {"name": "h0", "labels": labels}, "status": ready}]}
    image = "registry.k8s.io/jobset/jobset:v0.12.0@sha256:00"
    spec = {"template": {"spec": {"containers": [{"image": image}]}}}
    machine.answer(
        {"to": ["state list"], "out": "a.b\nc.d\n"},
        {"to": ["clusters describe"], "out": '{"name": "tpu-cluster", "status": "RUNNING"}'},
        {"to": ["get nodes"], "out": json.dumps(nodes)},
        {"to": ["get pods"], "out": json.dumps(PODS)},
        {"to": ["jobset-system"], "out": json.dumps({"items": [{"spec": spec}]})},
        {"to": ["kueue-system"], "out": '{"items": []}'},
    )
    found = json.loads(machine.tpu("status", "--json").stdout)
    assert found["resources"] == {"count": 2}
    assert found["cluster"]["status"] == "RUNNING"
    assert found["addons"] == {"jobset": "v0.12.0", "kueue": None}
    assert found["pools"]["tpu-node-pool-0"]["hosts"] == 0
    pool = {"wanted": "v4-32", "topology": "2x2x4", "hosts": 1, "ready": 1, "jobs": ["tpu-training/pretrain"]}
    assert found["pools"]["tpu-node-pool-1"] == pool
    assert "tpu-training/pretrain" in machine.tpu("status").stdout


def test_status_dry_run_prints_the_very_lines_that_it_calls(machine):
    printed = machine.tpu("status", "--dry-run")
    machine.answer(
        {"to": ["clusters describe"], "code": 1, "err": "NOT_FOUND"}, {"to": ["kubectl"], "out": '{"items": []}'}
    )
    assert machine.tpu("status").returncode == 0
    lines = [line for line in printed.stdout.splitlines() if not line.startswith(("#", "mkdir ", "cp "))]
    assert sorted(call for call in machine.calls() if "version -json" not in call) == sorted(lines)  # in parallel


def test_status_of_what_cannot_be_seen_says_why_and_shows_the_rest(machine):
    machine.answer(
        {"to": ["gcloud"], "code": 1, "err": "ERROR: You do not currently have an active account"},
        {"to": ["kubectl"], "code": 1, "err": "error: context was not found", "out": '{"items": []}'},
        {"to": ["state list"], "out": "a.b\n"},
    )
    assert "problem" in json.loads(machine.tpu("status", "--json").stdout)["addons"]
    done = machine.tpu("status")
    assert done.returncode == 0
    assert "resources count 1" in done.stdout
    assert "unknown: looking for the cluster failed" in done.stdout
