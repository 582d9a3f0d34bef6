"""`tpu cluster` in a new project: its owner runs bootstrap, the account of builds runs the rest.

Uses real gcloud and Terraform. APIs and roles take effect late, and the account that applies has only the permissions
that bootstrap granted.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support import role_sets, training_account
from support.quick_provider import quicken
from support.role_sets import RoleSets
from support.training_account import Training
from support.waiting import until
from tpubox.google.artifacts import image_pulls
from tpubox.google.artifacts import repositories as artifact_registry
from tpubox.google.wire.server import Emulator
from tpubox.google.wire.settings import Settings
from tpukit.cluster import bootstrap, team_account
from tpukit.core.clock import SystemClock
from tpukit.host.scalars import Scalars

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = """\
project_id: tpu-project
region: us-central2
zone: us-central2-b
artifact_repository_bucket_name: tpu-artifacts
network_name: tpu-network
subnet_name: tpu-subnet
cluster_name: tpu-cluster
tpu_type: v4-32
firestore_database: tpu-jobs
"""
DOMAIN = "tpu-project.iam.gserviceaccount.com"
BUILDER = f"tpu-cluster-build@{DOMAIN}"
SAVING = {
    *("storage.buckets.get", "storage.objects.create", "storage.objects.delete", "storage.objects.get"),
    "storage.objects.list",
}
"""Permissions that Orbax needs to save, replace and restore a checkpoint."""
SCOPE = {"scope": ["https://www.googleapis.com/auth/cloud-platform"]}


class Project:
    def __init__(self, folder: Path, google: Emulator, env: dict[str, str]) -> None:
        self.folder, self.google = folder, google
        modules = shutil.copytree(ROOT / "terraform", folder / "modules", ignore=shutil.ignore_patterns(".terraform*"))
        quicken(modules)
        (folder / "cluster.yaml").write_text(CLUSTER)
        self.env = {
            **env,
            **google.environment(),
            "PYTHONPATH": str(ROOT / "tools"),
            "TPUKIT_HOME": str(folder / "home"),
            "CLOUDSDK_CONFIG": str(folder / "gcloud"),
        }

    def tpu(self, verb: str, *words: str, account: str = "") -> subprocess.CompletedProcess[str]:
        token = {"GOOGLE_OAUTH_ACCESS_TOKEN": self.google.token_of(account)} if account else {}
        argv = [sys.executable, "-m", "tpukit", "cluster", verb, *words]
        env = {**os.environ, **self.env, **token}
        return subprocess.run(argv, cwd=self.folder, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)

    def ask(self, method: str, path: str, body: Any = None, account: str = "") -> int:
        """Send a request, and return the status code."""
        token = self.google.token_of(account) if account else self.google.token
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.google.address}/{path}", content, headers, method=method)
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return int(error.code)

    def let_grants_arrive_after_a_refusal(self) -> None:
        """Put the project's grants in force after the first refusal, independent of the speed of this machine."""
        cloud, name = self.google.cloud, "projects/tpu-project"
        policy = cloud.state.get("policy", name)
        assert policy is not None
        since = {"_since": dict.fromkeys(policy["_since"], cloud.clock.now() + 10**6)}
        cloud.state.put("policy", name, {**policy, **since})
        cloud.state.forget_requests()
        until(lambda: any(one["status"] == 403 for one in cloud.requests(agent="Terraform")), "a refusal", every=0.2)
        cloud.state.put("policy", name, policy)

    def let_grants_arrive(self, email: str) -> None:
        """Put all grants of an account, and of others on it, in force."""
        state = self.google.cloud.state
        for name, policy in state.all("policy").items():
            if email in name or email in str(policy["bindings"]):
                state.put("policy", name, {**policy, "_since": dict.fromkeys(policy["_since"], 0.0)})

    @contextmanager
    def pod(self, namespace: str, account: str, email: str) -> Iterator[tuple[dict[str, str], Training]]:
        """Run a training pod on a node of the cluster, annotated with an account of Google."""
        pools = self.google.cloud.state.all("pool")
        node = next(iter(next(pool for name, pool in pools.items() if name.endswith("/cpu-pool"))["_nodes"]))
        folder = self.folder / namespace
        told = {"node": node, "namespace": namespace, "account": account, "annotated": email}
        with training_account.pod(self.google, folder, **told) as env:
            training = Training(env, folder / "log")
            try:
                yield env, training
            finally:
                training.close()

    @property
    def role_sets(self) -> RoleSets:
        return RoleSets(self.google.address, self.google.token, "tpu-project")

    def accounts(self) -> set[str]:
        return {name.rpartition("/")[2].partition("@")[0] for name in self.google.cloud.state.all("account")}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, terraform_environment: dict[str, str]) -> Iterator[Project]:
    folder = tmp_path_factory.mktemp("identity")
    with Emulator(folder / "google", Settings(seconds={"": 0.2}, arrival_seconds=4.0)) as google:
        yield Project(folder, google, terraform_environment)


def test_bootstrap_of_a_new_project_outlasts_what_arrives_late(project):
    done = project.tpu("bootstrap")
    assert done.returncode == 0, done.stderr
    assert {"gke-sa", "cloud-tpu-sa", "tpu-cluster-build"} <= project.accounts()


def test_apply_by_the_account_of_builds_right_after_it_goes_through(project):
    arriving = threading.Thread(target=project.let_grants_arrive_after_a_refusal)
    arriving.start()
    done = project.tpu("apply", "--yes", "--modules", "modules", account=BUILDER)
    arriving.join()
    assert done.returncode == 0, done.stderr
    assert "have not taken effect everywhere" in done.stderr
    assert len(project.google.cloud.state.all("pool")) == 2
    again = project.tpu("apply", "--yes", "--modules", "modules", account=BUILDER)
    assert "Nothing to change." in again.stderr


def test_account_of_builds_has_no_role_that_it_did_not_need(project):
    """Check the record of calls: without any one of its roles, a request of the tests above would be refused."""
    assert set(bootstrap.ROLES) <= project.role_sets.granted(role_sets.BUILDS.account)
    project.role_sets.check(role_sets.BUILDS)


def test_account_of_nodes_pulls_images_and_has_no_role_but_for_that_and_what_gke_asks_for(project):
    cloud = project.google.cloud
    (repository,) = cloud.state.all("repository")
    artifact_registry.push(cloud, repository, "train", "1", "sha256:" + "1" * 64)
    (image,) = cloud.state.all("image").values()
    node = next(name for pool in cloud.state.all("pool").values() for name in pool["_nodes"])

    def works() -> bool:
        return image_pulls.pull(cloud, node, image["uri"]) == {"refused": ""}

    assert works()
    project.role_sets.check(role_sets.NODES)
    granted = project.role_sets.granted(role_sets.NODES.account)
    assert granted == {*role_sets.NODES.idle, "roles/artifactregistry.reader"}
    assert project.role_sets.check_each_is_needed(role_sets.NODES.account, works) == {image_pulls.PERMISSION}


def test_workloads_have_the_roles_that_checkpoints_and_tensorboard_need_and_need_each_permission(project):
    """Save, replace and restore checkpoints in the bucket from a pod, and write to Vertex AI from its uploader."""
    account = role_sets.WORKLOADS.account
    events = project.folder / "events"
    scalars = Scalars(str(events / "train"))
    scalars.write(1, loss=1.0)
    scalars.close()
    (board,) = project.google.cloud.state.all("tensorboard")
    words = ["--logdir", str(events), "--tensorboard", board, "--experiment", "identity", "--once"]
    with project.pod("tpu-training", account, f"{account}@{DOMAIN}") as (env, training):

        def works() -> bool:
            argv = [sys.executable, "-m", "tpukit.host.tensorboard", *words]
            uploaded = subprocess.run(argv, env=env, capture_output=True, text=True)
            return uploaded.returncode == 0 and training.run("gs://tpu-artifacts/runs")

        assert works(), training.said()[-3000:]
        project.role_sets.check(role_sets.WORKLOADS)
        assert project.role_sets.check_each_is_needed(account, works) == {
            *("aiplatform.tensorboardExperiments.create", "aiplatform.tensorboardExperiments.write"),
            *("aiplatform.tensorboardRuns.create", "aiplatform.tensorboardTimeSeries.create"),
            *SAVING,
        }


def test_own_account_of_a_team_can_save_checkpoints_and_needs_each_of_its_permissions(project, monkeypatch):
    for name, value in project.env.items():
        monkeypatch.setenv(name, value)
    team_account.run(team_account.steps("vision", "tpu-project", "gs://tpu-artifacts"), SystemClock(), print)
    email = f"{role_sets.TEAM.account}@{DOMAIN}"
    users = {
        "role": "roles/iam.workloadIdentityUser",
        "members": ["serviceAccount:tpu-project.svc.id.goog[vision/pods]"],
    }
    bind = f"iam/v1/projects/tpu-project/serviceAccounts/{email}:setIamPolicy"
    assert project.ask("POST", bind, {"policy": {"bindings": [users]}}) == 200
    project.let_grants_arrive(email)
    with project.pod("vision", "pods", email) as (_, training):
        assert training.run("gs://tpu-artifacts/teams/vision"), training.said()[-3000:]
        project.role_sets.check(role_sets.TEAM)
        needed = project.role_sets.check_each_is_needed(
            role_sets.TEAM.account, lambda: training.run("gs://tpu-artifacts/teams/vision")
        )
        assert needed == SAVING
        assert not training.run("gs://tpu-artifacts/teams/speech")


def test_account_of_builds_can_become_no_other_account_and_hand_out_no_role(project):
    project.ask("POST", "iam/v1/projects/tpu-project/serviceAccounts", {"accountId": "somebody-else"})
    token = "iam_credentials/v1/projects/-/serviceAccounts/{}:generateAccessToken"
    for name in ("gke-sa", "cloud-tpu-sa", "infrastructure-manager-sa", "somebody-else"):
        assert project.ask("POST", token.format(f"{name}@{DOMAIN}"), SCOPE, account=BUILDER) == 403, name
    owner = {"policy": {"bindings": [{"role": "roles/owner", "members": [f"serviceAccount:{BUILDER}"]}]}}
    assert project.ask("POST", "resource_manager/v1/projects/tpu-project:setIamPolicy", owner, account=BUILDER) == 403
    creator = "roles/iam.serviceAccountTokenCreator"
    become = {"policy": {"bindings": [{"role": creator, "members": [f"serviceAccount:{BUILDER}"]}]}}
    accounts = "iam/v1/projects/tpu-project/serviceAccounts"
    for name in ("gke-sa", "somebody-else", "infrastructure-manager-sa"):
        assert project.ask("POST", f"{accounts}/{name}@{DOMAIN}:setIamPolicy", become, account=BUILDER) == 403, name
    assert project.ask("POST", accounts, {"accountId": "one-of-mine"}, account=BUILDER) == 403


def test_own_account_of_a_team_reaches_its_folder_of_the_bucket_and_no_other(project, monkeypatch):
    for name, value in project.env.items():
        monkeypatch.setenv(name, value)
    for name in ("vision", "speech"):
        team_account.run(team_account.steps(name, "tpu-project", "gs://tpu-artifacts"), SystemClock(), print)
    vision = f"team-vision@{DOMAIN}"
    upload = "upload/storage/v1/b/tpu-artifacts/o?uploadType=media&name=teams/{}/checkpoint"
    until(lambda: project.ask("POST", upload.format("vision"), {}, account=vision) == 200, "the grant")
    assert project.ask("POST", upload.format("speech"), {}, account=vision) == 403
    assert project.ask("POST", upload.format("vision"), {}, account=f"team-speech@{DOMAIN}") == 403
    objects = "storage/v1/b/tpu-artifacts/o"
    assert project.ask("GET", f"{objects}?prefix=teams/vision/", account=vision) == 200
    assert project.ask("GET", f"{objects}?prefix=teams/speech/", account=vision) == 403
    assert project.ask("GET", objects, account=vision) == 403
    assert project.ask("GET", "storage/v1/b/tpu-project-tf-state/o", account=vision) == 403
    for name in ("vision", "speech"):
        folder = f"storage/v1/b/tpu-artifacts/managedFolders/teams%2F{name}%2F"
        assert project.ask("DELETE", f"{folder}?allowNonEmpty=true") == 204


def test_destroy_stops_for_the_database_and_leaves_the_accounts_to_the_other_clusters_of_the_project(project):
    words = ("--name", "tpu-cluster", "--modules", "modules", "--evict")
    done = project.tpu("destroy", *words, account=BUILDER)
    assert done.returncode == 1
    assert "the Firestore database tpu-jobs is protected" in done.stderr
    force = ("--set", "force_destroy=true")
    done = project.tpu("apply", "--yes", "--modules", "modules", *force, account=BUILDER)
    assert done.returncode == 0, done.stderr
    done = project.tpu("destroy", *words, *force, account=BUILDER)
    assert done.returncode == 0, done.stderr
    assert not project.google.cloud.state.all("cluster")
    assert {"gke-sa", "cloud-tpu-sa"} <= project.accounts()
