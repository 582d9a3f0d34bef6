"""`tpu provisioner`: its output, refusals and messages."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from support.waiting import PATIENCE, until
from tpukit.cli.provisioner import command
from tpukit.core.errors import Conflict, Invalid
from tpukit.provisioner import deployment, settings

ROOT = Path(__file__).resolve().parents[2]


def test_init_writes_a_folder_that_kustomize_takes(tmp_path):
    folder = tmp_path / "deploy"
    words = ["init", "my-project", "my-cluster", "--location", "us-central2", "--zones", "us-central2-b", "--folder"]
    done = CliRunner().invoke(command, [*words, str(folder)])
    assert done.exit_code == 0, done.output
    assert "roles create tpuProvisioner" in done.stderr
    assert "clusterAdmin" not in done.output
    made = folder / "my-project" / "my-cluster"
    assert done.stdout.strip() == str(made)
    kustomization = yaml.safe_load((made / "kustomization.yaml").read_text())
    assert (folder / "base" / "deployment.yaml").exists()
    assert kustomization["images"][0]["newTag"] == "1"
    lines = (made / "config.env").read_text().splitlines()
    pairs = [line.split("=", 1) for line in lines if not line.startswith("#")]
    assert settings.of_config_map(dict(pairs)).options.zones == ("us-central2-b",)


def test_init_for_a_cluster_of_the_settings_takes_repository_account_and_upgrades_of_it(tmp_path, monkeypatch):
    settings_file = tmp_path / "settings.yaml"
    monkeypatch.setenv("TPUKIT_SETTINGS", str(settings_file))
    settings_file.write_text(
        "project: my-project-1\ncontext: gke_my-project-1_us-central2_tpu-cluster\n"
        "repository: us-central1-docker.pkg.dev/my-project-1/tpu-cluster\n"
    )
    words = ["init", "my-project-1", "tpu-cluster", "--location", "us-central2", "--zones", "us-central2-b"]
    done = CliRunner().invoke(command, [*words, "--folder", str(tmp_path / "deploy")])
    assert done.exit_code == 0, done.output
    made = tmp_path / "deploy" / "my-project-1" / "tpu-cluster"
    image = yaml.safe_load((made / "kustomization.yaml").read_text())["images"][0]["newName"]
    assert image == "us-central1-docker.pkg.dev/my-project-1/tpu-cluster/tpu-provisioner"
    assert f"--repository {image.rpartition('/')[0]} " in done.stderr
    pairs = [line.split("=", 1) for line in (made / "config.env").read_text().splitlines() if line[:1] != "#"]
    options = settings.of_config_map(dict(pairs)).options
    assert options.auto_upgrade, "its release channel refuses pools without"
    assert "gke-sa@my-project-1.iam.gserviceaccount.com" in done.stderr
    words[2] = "another"
    assert CliRunner().invoke(command, [*words, "--folder", str(tmp_path / "deploy")]).exit_code == 0
    other = (tmp_path / "deploy" / "my-project-1" / "another" / "config.env").read_text()
    assert "auto-upgrade" not in other and "gke-sa" not in other


def test_init_twice_changes_nothing(tmp_path):
    deployment.write(tmp_path, "my-project", "my-cluster", location="us-central2-b")
    with pytest.raises(Conflict, match="exists already"):
        deployment.write(tmp_path, "my-project", "my-cluster", location="us-central2-b")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"location": "us-central2"}, "--zones us-central2-b"),
        ({"location": "us-central2", "zones": "moon"}, "is not a zone"),
        ({"location": "../../etc"}, "small letters"),
    ],
)
def test_init_of_what_cannot_be_says_what_to_write(tmp_path, values, says):
    with pytest.raises(Invalid, match=says):
        deployment.write(tmp_path, "my-project", "my-cluster", **values)
    assert not list(tmp_path.iterdir())


def test_example_cluster_is_what_init_writes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = deployment.write(Path("deploy"), "example-project", "example-cluster", location="us-central2-b").path
    for name in ("kustomization.yaml", "config.env"):
        example = ROOT / "deploy" / "example-project" / "example-cluster" / name
        assert (made / name).read_text() == example.read_text()


def test_roles_of_the_base_have_no_secrets_and_no_wildcards():
    rules = [
        rule
        for document in yaml.safe_load_all((ROOT / "deploy" / "base" / "roles.yaml").read_text())
        for rule in document.get("rules", [])
    ]
    assert not any("*" in words for rule in rules for words in rule.values())
    assert not any("secrets" in rule["resources"] or "delete" in rule["verbs"] for rule in rules)


def test_help_says_what_each_command_does():
    done = CliRunner().invoke(command, ["--help"])
    assert all(word in done.output for word in ("run", "explain", "init", "check"))


def test_check_where_nothing_runs_says_so():
    argv = [sys.executable, "-m", "tpukit", "provisioner", "check", "live", "--port", "1"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    done = subprocess.run(argv, env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert "no `tpu provisioner run` answers" in done.stderr


def test_run_drives_the_cluster_of_the_current_context_with_what_its_options_name(tpu):
    kubeconfig = tpu.folder / "kubeconfig"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = f"http://127.0.0.1:{listening.getsockname()[1]}"
        user = {"name": "u", "user": {"token": "t"}}
        clusters = [
            {"name": name, "cluster": {"server": at}} for name, at in (("a", "http://127.0.0.1:1"), ("b", server))
        ]
        contexts = [{"name": name, "context": {"cluster": name, "user": "u"}} for name in ("a", "b")]
        parts = {"clusters": clusters, "users": [user], "contexts": contexts, "current-context": "b"}
        kubeconfig.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **parts}))
        tpu.env |= {"KUBECONFIG": str(kubeconfig), "GOOGLE_OAUTH_ACCESS_TOKEN": "t"}
        tpu.env |= {"GOOGLE_CONTAINER_CUSTOM_ENDPOINT": "http://127.0.0.1:1/v1/"}
        line = "provisioner run --project my-project --location us-central2 --cluster my-cluster --zones us-central2-b"
        running = tpu.start(*line.split(), "--log", "json", "--port", "0")
        listening.settimeout(PATIENCE)
        listening.accept()[0].close()  # the command connects to the API server of that context
        until(lambda: "drives node pools" in tpu.said(running), lambda: tpu.said(running))
    (driven,) = [json.loads(one) for one in tpu.said(running).splitlines() if "drives node pools" in one]
    assert [driven[name] for name in ("project", "location", "cluster")] == ["my-project", "us-central2", "my-cluster"]
