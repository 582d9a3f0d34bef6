"""Releases in a sandbox, and their changes for controllers that run outside the cluster."""

import base64
import copy
import subprocess
import sys

import pytest
import yaml

from tpubox.box import binaries, manifests, releases
from tpubox.kubelet import image_names
from tpukit.cluster import addons
from tpukit.jobs.render import kueue_deployment


def hook(name):
    service = {"name": "webhook-service", "namespace": "system", "path": f"/do-{name}"}
    return {"name": f"{name}.kb.io", "clientConfig": {"service": service}, "failurePolicy": "Fail"}


RELEASED = [
    {"kind": "Namespace", "metadata": {"name": "kueue-system"}},
    {
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "workloads", "annotations": {"cert-manager.io/inject-ca-from": "$(NS)/$(NAME)", "a": "b"}},
        "spec": {"conversion": {"webhook": {"clientConfig": {"service": {"path": "/convert"}}}}},
    },
    {"kind": "CustomResourceDefinition", "metadata": {"name": "flavors"}, "spec": {}},
    {"kind": "ClusterRole", "metadata": {"name": "manager"}, "rules": [{"verbs": ["get"]}]},
    {"kind": "ConfigMap", "metadata": {"name": "config"}},
    {"kind": "Secret", "metadata": {"name": "kueue-webhook-server-cert"}},
    {"kind": "Service", "metadata": {"name": "webhook-service"}},
    {"kind": "APIService", "metadata": {"name": "visibility"}},
    {
        "kind": "Deployment",
        "metadata": {"name": "kueue-controller-manager"},
        "spec": {"replicas": 1, "template": {"spec": {"containers": [{"image": "staging/kueue:main"}]}}},
    },
    {
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "kueue-mutating"},
        "webhooks": [hook("mjob"), hook("mjobset"), hook("mpod"), hook("mrayjob"), hook("mworkload")],
    },
]


VERSIONS = binaries.versions()


def only(documents, kind):
    return next(document for document in documents if document["kind"] == kind)


def in_cluster(document):
    """Return the document as the API server returns it."""
    return {**document, "metadata": {**document["metadata"], "resourceVersion": "7"}}


def test_release_is_as_its_project_publishes_it():
    before = copy.deepcopy(RELEASED)
    made = releases.documents("kueue", RELEASED)
    assert before == RELEASED, "what was built is read again at the next start"
    deployment = only(made, "Deployment")
    assert deployment["spec"]["replicas"] == 1
    image = f"registry.k8s.io/kueue/kueue:{VERSIONS['kueue']}"
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == image == releases.image("kueue")
    assert only(made, "CustomResourceDefinition")["metadata"]["annotations"] == {"a": "b"}
    assert [one["kind"] for one in made] == [one["kind"] for one in RELEASED]


def test_release_that_the_sandbox_installs_has_the_mark_of_one_that_was_installed_to_its_end():
    deployment = only(releases.marked("kueue", releases.documents("kueue", RELEASED)), "Deployment")
    assert deployment["metadata"]["annotations"]["tpukit.dev/installed"] == addons.mark("kueue")
    template, adapted = deployment["spec"]["template"], kueue_deployment.change(0)["spec"]["template"]
    assert template["metadata"]["annotations"] == adapted["metadata"]["annotations"], "nothing is left to restart"
    assert template["spec"]["containers"][0]["resources"] == adapted["spec"]["containers"][0]["resources"]


def test_manifest_is_yaml_with_a_document_for_each_object():
    made = releases.documents("jobset", RELEASED)
    assert list(yaml.safe_load_all(releases.manifest(made))) == made


def test_webhooks_stay_behind_their_service_and_trust_the_sandbox():
    definition = in_cluster(only(RELEASED, "CustomResourceDefinition"))
    change = releases.trusted(definition, "Y2E=")
    assert change == {"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": "Y2E="}}}}}
    hooks = in_cluster(only(RELEASED, "MutatingWebhookConfiguration"))
    change = releases.trusted(hooks, "Y2E=")
    assert change["metadata"] == {"resourceVersion": "7"}, "nobody's change in between is lost"
    for one in change["webhooks"]:
        assert one["clientConfig"] == {
            "service": {"name": "webhook-service", "namespace": "system", "path": f"/do-{one['name'][:-6]}"},
            "caBundle": "Y2E=",
        }


def test_webhooks_that_trust_the_sandbox_are_left_alone():
    hooks = in_cluster(only(RELEASED, "MutatingWebhookConfiguration"))
    done = {**hooks, "webhooks": releases.trusted(hooks, "Y2E=")["webhooks"]}
    assert releases.trusted(done, "Y2E=") is None


def test_kueue_keeps_the_webhooks_of_what_it_queues_and_of_its_own_objects():
    hooks = in_cluster(only(RELEASED, "MutatingWebhookConfiguration"))
    names = [one["name"] for one in releases.trusted(hooks, "Y2E=")["webhooks"]]
    assert names == ["mjob.kb.io", "mjobset.kb.io", "mworkload.kb.io"]


def test_what_calls_webhooks_is_known_by_kind_and_what_would_be_silent_by_its_path():
    calling = {"CustomResourceDefinition": ["workloads"], "MutatingWebhookConfiguration": ["kueue-mutating"]}
    assert releases.with_webhooks(RELEASED) == calling
    assert releases.aggregated(RELEASED) == ["/apis/apiregistration.k8s.io/v1/apiservices/visibility"]


def test_kueue_finds_the_certificate_that_it_would_make(tmp_path):
    for name in ("ca.crt", "ca.key", "tls.crt", "tls.key"):
        (tmp_path / name).write_text(f"this is {name}")
    made = releases.certificate(tmp_path)["data"]
    assert {name: base64.b64decode(text).decode() for name, text in made.items()} == {
        name: f"this is {name}" for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")
    }


@pytest.mark.parametrize(
    ("image", "gone"),
    [
        (releases.image("jobset"), False),
        ("registry.k8s.io/jobset/jobset:v0.2.3", True),
        ("registry.k8s.io/kueue/kueue:v0.4.2", True),
        ("gcr.io/kubebuilder/kube-rbac-proxy:v0.13.1", True),
        ("us-docker.pkg.dev/p/r/does-not-exist:1", True),
        ("us-docker.pkg.dev/p/r/train:1", False),
        ("registry.k8s.io/pause:3.10", False),
    ],
)
def test_image_that_nobody_can_pull_is_known(image, gone):
    assert image_names.missing(image) == gone
    assert (image in image_names.ELSEWHERE) == (image == releases.image("jobset"))


def test_only_the_end_of_simulated_pods_is_changed():
    stages = [{"metadata": {"name": name}, "spec": {"next": {}}} for name in ("pod-ready", "pod-complete")]
    ready, complete = manifests.kwok_stages(stages)
    assert ready == stages[0]
    assert "sleep" in complete["spec"]["delay"]["durationFrom"]["jq"]["expression"]


def test_start_of_a_sandbox_reads_neither_the_emulator_nor_the_agent():
    """Both are separate processes: importing them took a third of a second of every start."""
    script = "import sys, tpubox.box.lifecycle; print(*(name for name in sys.modules if name.startswith('tpubox.')))"
    argv = [sys.executable, "-c", script]
    loaded = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    assert "tpubox.box.control_plane" in loaded
    assert not [name for name in loaded if name.startswith(("tpubox.google", "tpubox.kubelet"))]
