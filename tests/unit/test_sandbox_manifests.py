"""Released manifests, made to work with controllers outside the cluster."""

import base64
import copy

import pytest

from tpukit.sandbox import manifests


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


@pytest.fixture
def folder(tmp_path):
    for name in ("ca.crt", "ca.key", "tls.crt", "tls.key"):
        (tmp_path / name).write_text(f"this is {name}")
    return tmp_path


def adapted(folder, make):
    before = copy.deepcopy(RELEASED)
    made = make(RELEASED, version="v9.9.9", url="https://127.0.0.1:20001", certificates=folder)
    assert before == RELEASED, "what was released is read again at the next start"
    return made


def only(documents, kind):
    return next(document for document in documents if document["kind"] == kind)


def test_webhooks_are_called_on_loopback_and_verified(folder):
    for made in (adapted(folder, manifests.jobset), adapted(folder, manifests.kueue)):
        configs = [one["clientConfig"] for one in only(made, "MutatingWebhookConfiguration")["webhooks"]]
        configs.append(only(made, "CustomResourceDefinition")["spec"]["conversion"]["webhook"]["clientConfig"])
        assert {config["caBundle"] for config in configs} == {base64.b64encode(b"this is ca.crt").decode()}
        assert configs[0]["url"] == "https://127.0.0.1:20001/do-mjob"
        assert configs[-1]["url"] == "https://127.0.0.1:20001/convert"
        assert all("service" not in config for config in configs)


def test_kueue_keeps_the_webhooks_of_what_it_queues_and_of_its_own_objects(folder):
    hooks = only(adapted(folder, manifests.kueue), "MutatingWebhookConfiguration")["webhooks"]
    assert [one["name"] for one in hooks] == ["mjob.kb.io", "mjobset.kb.io", "mworkload.kb.io"]


def test_kueue_finds_the_certificate_that_it_would_make(folder):
    secret = only(adapted(folder, manifests.kueue), "Secret")
    assert set(secret["data"]) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}


def test_deployment_tells_the_version_and_runs_nothing(folder):
    deployment = only(adapted(folder, manifests.kueue), "Deployment")
    assert deployment["metadata"]["annotations"]["tpukit.dev/installed"] == "v9.9.9"
    spec = deployment["spec"]
    assert spec["replicas"] == 0
    assert spec["template"]["spec"]["containers"][0]["image"] == "registry.k8s.io/kueue/kueue:v9.9.9"


def test_roles_and_definitions_stay_and_what_only_pods_need_goes(folder):
    made = adapted(folder, manifests.jobset)
    kinds = [document["kind"] for document in made]
    assert not {"ConfigMap", "Secret", "Service", "APIService"} & set(kinds)
    assert only(made, "ClusterRole") == RELEASED[3]
    assert only(made, "CustomResourceDefinition")["metadata"]["annotations"] == {"a": "b"}


def test_only_the_end_of_simulated_pods_is_changed():
    stages = [{"metadata": {"name": name}, "spec": {"next": {}}} for name in ("pod-ready", "pod-complete")]
    ready, complete = manifests.kwok_stages(stages)
    assert ready == stages[0]
    assert "sleep" in complete["spec"]["delay"]["durationFrom"]["jq"]["expression"]
