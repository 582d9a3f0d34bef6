"""Rendered manifests, checked by checkov and kubectl."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from tpukit.core import resources
from tpukit.jobs.render import template

HERE = Path(__file__).parent
KUBECTL = "https://kubernetes.io/docs/tasks/tools/ says how to get it"
SERVE = HERE.parents[1] / "deploy" / "serve"
QUEUE = HERE.parents[1] / "deploy" / "queue"
PROVISIONER = HERE.parents[1] / "deploy" / "example-project" / "example-cluster"
GOLDEN = sorted((HERE.parent / "golden").glob("*.yaml"))


def tool(name, hint):
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which(name, path=places)
    assert found, f"{name} is needed for this test: {hint}"
    return found


def parsed(file):
    return template.parse(file.read_text(encoding="utf-8"))


def as_jobs(jobset):
    """Yield the Jobs that JobSet creates, one for each kind, because checkov does not support JobSets."""
    meta = jobset["metadata"]
    for job in jobset["spec"]["replicatedJobs"]:
        own = {"name": f"{meta['name']}-{job['name']}-0", "namespace": meta["namespace"]}
        metadata = {**job["template"]["metadata"], **own}
        yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job["template"]["spec"]}


def test_checkov_finds_nothing_in_jobs_queues_serve_queue_and_provisioner(tmp_path):
    checkov = tool("checkov", "pip install 'tpukit[dev]'")
    assert GOLDEN
    for file in GOLDEN:
        (jobset,) = parsed(file)
        (tmp_path / file.name).write_text(yaml.safe_dump_all(as_jobs(jobset)), encoding="utf-8")
    for file in resources.folder("kueue").glob("*.yaml"):
        shutil.copy(file, tmp_path)
    (tmp_path / "serve.yaml").write_text(kubectl("kustomize", SERVE), encoding="utf-8")
    watched = QUEUE.with_name("queue-monitoring")
    (tmp_path / "queue.yaml").write_text(kubectl("kustomize", QUEUE), encoding="utf-8")
    (tmp_path / "queue-monitoring.yaml").write_text(kubectl("kustomize", watched), encoding="utf-8")
    (tmp_path / "provisioner.yaml").write_text(kubectl("kustomize", PROVISIONER), encoding="utf-8")
    config = HERE / "checkov-manifests.yaml"
    line = [checkov, "--directory", tmp_path, "--config-file", config, "--skip-download", "--output", "json"]
    report = json.loads(subprocess.run(line, capture_output=True, text=True, cwd=tmp_path).stdout)
    found = report["results"]["failed_checks"]
    failed = {f"{check['check_id']} {check['check_name']}: {check['resource']}" for check in found}
    assert not failed
    assert report["summary"]["passed"] > 50 * len(GOLDEN)
    assert report["summary"]["parsing_errors"] == 0


def kubectl(*arguments):
    done = subprocess.run([tool("kubectl", KUBECTL), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def key(document):
    return document["kind"], document["metadata"].get("namespace", ""), document["metadata"]["name"]


def test_kubectl_takes_the_kueue_folder_and_finds_every_document():
    folder = resources.folder("kueue")
    # The controller's configuration belongs to the namespace of Kueue's release, once it is installed.
    apart = ("kustomization", "controller")
    written = [document for file in folder.glob("*.yaml") if file.stem not in apart for document in parsed(file)]
    assert sorted(template.parse(kubectl("kustomize", folder)), key=key) == sorted(written, key=key)


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_kubectl_reads_a_job_as_we_do(file):
    # Removing a missing label prints the document as kubectl parsed it, without a cluster.
    assert [json.loads(kubectl("label", "--local", "-f", file, "-o", "json", "none-"))] == parsed(file)


def test_serve_is_made_of_documents_that_kubernetes_knows():
    documents = template.parse(kubectl("kustomize", SERVE))
    for document in documents:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    by_kind = {(one["kind"], one["metadata"]["name"]): one for one in documents}
    account = by_kind["ServiceAccount", "serve"]["metadata"]["annotations"]["iam.gke.io/gcp-service-account"]
    assert account == "tpukit-serve@my-project.iam.gserviceaccount.com"
    (container,) = by_kind["Deployment", "serve"]["spec"]["template"]["spec"]["containers"]
    (source,) = container["envFrom"]
    assert by_kind["ConfigMap", source["configMapRef"]["name"]]["data"]["TPUKIT_STORE"].startswith("firestore://")


def test_serve_may_read_no_secrets_and_change_nothing_of_the_cluster():
    documents = template.parse(kubectl("kustomize", SERVE))
    roles = {one["metadata"]["name"]: one["rules"] for one in documents if one["kind"] == "ClusterRole"}
    rules = [rule for one in roles.values() for rule in one]
    assert not [rule for rule in rules if {"secrets", "*"} & {*rule["resources"], *rule["verbs"], *rule["apiGroups"]}]
    everywhere = [one["roleRef"]["name"] for one in documents if one["kind"] == "ClusterRoleBinding"]
    assert {verb for name in everywhere for rule in roles[name] for verb in rule["verbs"]} == {"get", "list"}


def test_serve_runs_a_command_that_there_is():
    from click.testing import CliRunner

    from tpukit.cli import command

    (deployment,) = [one for one in template.parse(kubectl("kustomize", SERVE)) if one["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    probes = [container[f"{name}Probe"]["exec"]["command"] for name in ("startup", "liveness", "readiness")]
    for program, *arguments in [container["command"], *probes]:
        assert program == "tpu"
        assert CliRunner().invoke(command, [*arguments, "--help"]).exit_code == 0


def test_queue_of_another_team_is_in_that_teams_namespace_and_its_front_end_is_reached(tmp_path):
    folder = tmp_path / "queue"
    shutil.copytree(QUEUE, folder)
    config = (folder / "config.env").read_text(encoding="utf-8")
    (folder / "config.env").write_text(config.replace("QUEUE_TEAM=research", "QUEUE_TEAM=vision"), encoding="utf-8")
    documents = template.parse(kubectl("kustomize", folder))
    for document in documents:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    by_kind = {key(one)[::2]: one for one in documents}
    assert {one["metadata"].get("namespace") for one in documents} == {None, "tpukit-queue", "vision"}
    assert by_kind["Role", "tpukit-queue"]["metadata"]["namespace"] == "vision"
    account = by_kind["ServiceAccount", "rest"]["metadata"]["annotations"]["iam.gke.io/gcp-service-account"]
    assert account == "tpukit-queue-rest@my-project.iam.gserviceaccount.com"
    (port,) = by_kind["Service", "rest"]["spec"]["ports"]
    pod = by_kind["Deployment", "rest"]["spec"]["template"]
    assert by_kind["Service", "rest"]["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    (container,) = pod["spec"]["containers"]
    assert port["targetPort"] in [one["name"] for one in container["ports"]]


def test_queue_runs_commands_that_there_are_with_options_that_they_take():
    from tpukit.cli import command

    for document in template.parse(kubectl("kustomize", QUEUE)):
        if document["kind"] == "Deployment":
            (container,) = document["spec"]["template"]["spec"]["containers"]
            program, group, name, *words = [*container["command"], *container["args"]]
            assert (program, group) == ("tpu", "queue")
            queue = command.get_command(None, group)
            known = {option for parameter in queue.commands[name].params for option in parameter.opts}
            assert {word for word in words if word.startswith("--")} <= known


def test_provisioner_is_made_of_documents_that_kubernetes_knows_and_runs_a_command_that_there_is():
    from click.testing import CliRunner

    from tpukit.cli import command

    documents = template.parse(kubectl("kustomize", PROVISIONER))
    for document in documents:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    by_kind = {one["kind"]: one for one in documents}
    assert by_kind["ConfigMap"]["metadata"]["name"] == "tpu-provisioner"
    (container,) = by_kind["Deployment"]["spec"]["template"]["spec"]["containers"]
    program, *arguments = container["command"]
    assert program == "tpu"
    assert CliRunner().invoke(command, [*arguments, "--help"]).exit_code == 0


def test_queue_is_made_of_documents_that_kubernetes_knows_and_runs_commands_that_there_are():
    from click.testing import CliRunner

    from tpukit.cli import command
    from tpukit.cli.queue import PORT
    from tpukit.kernel import http

    documents = template.parse(kubectl("kustomize", QUEUE))
    for document in documents:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    by_kind = {(one["kind"], one["metadata"]["name"]): one for one in documents}
    (container,) = by_kind["Deployment", "creator"]["spec"]["template"]["spec"]["containers"]
    (source,) = container["envFrom"]
    settings = by_kind["ConfigMap", source["configMapRef"]["name"]]["data"]
    named = {word[2:-1] for word in container["args"] if word.startswith("$(")}
    assert named <= {*settings, *(one["name"] for one in container["env"])}
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
    assert [one["path"] for one in probes] == [http.PROBES[name] for name in ("live", "live", "ready")]
    (port,) = container["ports"]
    assert {one["port"] for one in probes} == {port["name"]}
    assert port["containerPort"] == PORT
    program, *arguments = [*container["command"], *container["args"]]
    assert program == "tpu"
    assert CliRunner().invoke(command, [*arguments, "--help"]).exit_code == 0
    (rules,) = [one["rules"] for one in documents if one["kind"] == "Role"]
    allowed = {resource: rule["verbs"] for rule in rules for resource in rule["resources"]}
    made = ["get", "list", "create", "delete"]
    assert allowed == {"jobs": made, "jobsets": made, "pods": ["list"], "workloads": ["list"]}
    accounts = {
        one["metadata"]["name"]: one["metadata"]["annotations"]["iam.gke.io/gcp-service-account"]
        for one in documents
        if one["kind"] == "ServiceAccount"
    }
    assert accounts == {
        "creator": settings["CREATOR_SERVICE_ACCOUNT"],
        "queue-worker": settings["WORKER_SERVICE_ACCOUNT"],
        "rest": settings["REST_SERVICE_ACCOUNT"],
    }
    policies = {one["metadata"]["name"]: one["spec"] for one in documents if one["kind"] == "NetworkPolicy"}
    assert policies["queue-worker"]["podSelector"]["matchLabels"] == {"tpukit.dev/queue": "worker"}
    assert {name for name, policy in policies.items() if policy.get("ingress")} == {"queue-worker-hosts", "rest"}
    (callers,) = policies["rest"]["ingress"]
    assert callers["from"] == [{"namespaceSelector": {"matchLabels": {"tpukit.dev/queue-client": "true"}}}]
    quotas = {one["metadata"]["namespace"]: one["spec"]["hard"] for one in documents if one["kind"] == "ResourceQuota"}
    assert set(quotas) == {"tpukit-queue", settings["QUEUE_TEAM"]}


def test_queue_with_monitoring_lets_googles_collectors_in_and_nobody_else():
    documents = template.parse(kubectl("kustomize", QUEUE.with_name("queue-monitoring")))
    by_kind = {(one["kind"], one["metadata"]["name"]): one for one in documents}
    (container,) = by_kind["Deployment", "creator"]["spec"]["template"]["spec"]["containers"]
    (port,) = container["ports"]
    (endpoint,) = by_kind["PodMonitoring", "creator"]["spec"]["endpoints"]
    (ingress,) = by_kind["NetworkPolicy", "creator"]["spec"]["ingress"]
    assert container["args"][:2] == ["--bind", "$(POD_IP)"]
    assert (endpoint["port"], endpoint["path"]) == (port["name"], "/metrics")
    assert [one["port"] for one in ingress["ports"]] == [port["containerPort"]]
    labels = {"kubernetes.io/metadata.name": "gmp-system"}
    assert ingress["from"] == [{"namespaceSelector": {"matchLabels": labels}}]
