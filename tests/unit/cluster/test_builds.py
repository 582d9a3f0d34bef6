"""Checks that a Cloud Build of the environment runs before it changes anything."""

from __future__ import annotations

import json
import re
import shlex
import string
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit.cluster import build_checks, build_settings, build_step, substitutions, versions
from tpukit.cluster.busy_pools import CLUSTER, POOL, Doomed
from tpukit.core.errors import Conflict, Denied, Invalid

ROOT = Path(__file__).resolve().parents[3]
DECLARED = (ROOT / "terraform" / "variables.tf").read_text()
ASKED = {
    "PROJECT_ID": "p",
    "BUILD_ID": "b",
    "LOCATION": "global",
    "_TF_STATE_BUCKET": "state",
    "_TF_STATE_PREFIX": "",
    "_REGION": "us-central2",
    "_ZONE": "us-central2-b",
    "_ARTIFACT_REPOSITORY_BUCKET_NAME": "artifacts",
    "_NETWORK_NAME": "network",
    "_SUBNET_NAME": "subnet",
    "_CLUSTER_NAME": "one",
    "_NUM_OF_CHIPS": "",
    "_FORCE_DESTROY": "false",
    "_EVICT": "false",
    "_TF_VARS": "{}",
}
STEPS = build_settings.read(ASKED, DECLARED).steps


def refused(**changed: str) -> str:
    with pytest.raises(Invalid) as error:
        build_settings.read({**ASKED, **changed}, DECLARED)
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "version", "good"),
    [
        ("JobSet", "v0.2.3", False),
        ("JobSet", "v0.7.3", False),
        ("JobSet", "v0.8.0", True),
        ("JobSet", "v0.10.1", True),
        ("JobSet", versions.JOBSET, True),
        ("Kueue", "v0.4.2", False),
        ("Kueue", "v0.14.9", False),
        ("Kueue", "v0.15.0", True),
        ("Kueue", versions.KUEUE, True),
        ("Kueue", "v1.0.0", True),
        ("Kueue", "0.19.2", False),
        ("Kueue", "main", False),
        ("Kueue", "v0.19.2/../x", False),
    ],
)
def test_release_that_cannot_be_installed_is_a_problem_with_one_that_can(name, version, good):
    problem = versions.problem(name, version, "_V")
    assert (problem is None) == good
    if problem:
        assert f"_V={versions.JOBSET if name == 'JobSet' else versions.KUEUE}" in problem.hint


def test_requested_release_with_a_known_fault_is_a_warning():
    asked = {**ASKED, "_JOBSET_API_VERSION": versions.JOBSET, "_KUEUE_API_VERSION": "v0.17.3"}
    assert build_settings.read(asked, DECLARED).steps["KUEUE_VERSION"] == "v0.17.3"
    (line,) = build_settings.warnings(asked)
    assert line.startswith("Kueue v0.17.3 may leave the first job of a queue waiting")


def test_settings_say_every_problem_at_once():
    text = refused(_JOBSET_API_VERSION="v0.2.3", _EVICT="yes", _ZONE="", _TF_VARS='{"labelz": {}, "zone": "x"}')
    for part in (
        "v0.2.3",
        "_EVICT: 'yes' is neither",
        "_ZONE: the value is empty",
        "no variable labelz",
        "write _ZONE=",
    ):
        assert part in text


@pytest.mark.parametrize("text", ["{", "[]", '"a"', "null"])
def test_variables_that_are_no_object_are_refused_with_an_example(text):
    assert '_TF_VARS={"enable_tpu_autoscaling": true}' in refused(_TF_VARS=text)


def test_project_cannot_be_set_beside_the_builds_own():
    assert "no variable project_id to set" in refused(_TF_VARS='{"project_id": "other"}')


def test_every_variable_reaches_terraform():
    names = re.findall(r'^variable "(\w+)"', DECLARED, re.MULTILINE)
    wanted = {name: "value" for name in names if name != "project_id"}
    read = build_settings.read({**ASKED, **substitutions.said({**wanted, "force_destroy": True})}, DECLARED)
    assert read.variables == {**wanted, "project_id": "p", "force_destroy": "true"}


def test_empty_substitution_is_left_to_terraform():
    assert "num_of_chips" not in build_settings.read(ASKED, DECLARED).variables


def test_state_has_a_folder_for_each_cluster_unless_one_is_named():
    assert STEPS["STATE_PREFIX"] == "gke-tpu-training-environment/one"
    named = build_settings.read({**ASKED, "_TF_STATE_PREFIX": "mine"}, DECLARED).steps
    assert (named["STATE_PREFIX"], named["OLDER_PREFIX"]) == ("mine", "")


@given(st.text(string.printable + "äß$`'\"\\", min_size=1).filter(lambda text: "\r" not in text))
def test_settings_are_values_to_a_shell_whatever_they_hold(text):
    shell = build_settings.read({**ASKED, "_CLUSTER_NAME": text}, DECLARED).shell()
    assert dict(word.split("=", 1) for word in shlex.split(shell))["CLUSTER_NAME"] == text


def test_settings_are_read_by_a_real_shell(tmp_path):
    nasty = 'a\' $(touch owned) "b" `id`; c\n#'
    file = tmp_path / "settings.sh"
    file.write_text(build_settings.read({**ASKED, "_NETWORK_NAME": nasty}, DECLARED).shell())
    argv = ["/bin/sh", "-euc", '. "$0"; printf %s "$NETWORK_NAME"', str(file)]
    assert subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True).stdout == nasty
    assert [path.name for path in tmp_path.iterdir()] == ["settings.sh"]


@pytest.mark.parametrize(
    ("verb", "limit", "good"),
    [
        ("provision", "7200s", False),
        ("provision", "14400s", True),
        ("provision", "86400.5s", True),
        ("destroy", "7200s", True),
        ("destroy", "3600s", False),
    ],
)
def test_time_limit_shorter_than_a_slice_may_take_is_refused(verb, limit, good):
    if good:
        build_checks.time({"timeout": limit}, verb)
    else:
        with pytest.raises(Invalid, match="leave the state locked"):
            build_checks.time({"timeout": limit}, verb)


def test_time_limit_that_google_does_not_say_is_its_hour():
    with pytest.raises(Invalid, match="3600 s"):
        build_checks.time({}, "provision")


@pytest.mark.parametrize("email", ["", "1-compute@developer.gserviceaccount.com", "1@cloudbuild.gserviceaccount.com"])
def test_account_that_google_chose_must_be_more_than_an_editor(email):
    build = {"serviceAccount": f"projects/p/serviceAccounts/{email}" if email else ""}
    with pytest.raises(Denied, match="setIamPolicy"):
        build_checks.account(build, {"permissions": list(build_checks.PERMISSIONS)}, "p")
    owner = {"permissions": [*build_checks.PERMISSIONS, build_checks.OF_DEFAULTS]}
    build_checks.account(build, owner, "p")


def test_account_of_ours_is_not_asked_for_what_it_has_under_a_condition():
    build = {"serviceAccount": "projects/p/serviceAccounts/tpu-cluster-build@p.iam.gserviceaccount.com"}
    build_checks.account(build, {"permissions": list(build_checks.PERMISSIONS)}, "p")
    with pytest.raises(Denied, match="runs as tpu-cluster-build@p") as error:
        build_checks.account(build, {}, "example.com:p")
    assert "tpu-cluster-build@p.example.com.iam.gserviceaccount.com" in error.value.hint


def older(*clusters: str) -> dict:
    network = {"type": "google_compute_network", "instances": [{"attributes": {"name": "n"}}]}
    held = [{"type": CLUSTER, "instances": [{"attributes": {"name": name}}]} for name in clusters]
    return {"resources": [network, *held]}


def test_state_under_the_old_prefix_of_this_cluster_or_of_nobody_stops_the_build_with_both_ways_on():
    for state in (older("one"), older()):
        with pytest.raises(Conflict) as error:
            build_checks.older_state(state, STEPS)
        assert "_TF_STATE_PREFIX=gke-tpu-training-environment," in error.value.hint
        moved = "gs://state/gke-tpu-training-environment/default.tfstate gs://state/gke-tpu-training-environment/one/"
        assert f"gcloud storage mv {moved}default.tfstate" in error.value.hint


def test_state_under_the_old_prefix_of_another_cluster_or_of_nothing_is_no_matter():
    for state in (older("two"), {}, {"resources": []}):
        build_checks.older_state(state, STEPS)


def test_state_of_another_cluster_is_refused_before_it_is_planned_away():
    cluster = {"type": CLUSTER, "values": {"name": "two"}}
    state = {"values": {"root_module": {"child_modules": [{"child_modules": [{"resources": [cluster]}]}]}}}
    with pytest.raises(Conflict, match="cluster two, which would be deleted for one"):
        build_checks.same_cluster(state, STEPS)
    build_checks.same_cluster({"values": {"root_module": {"resources": []}}}, STEPS)
    build_checks.same_cluster({}, STEPS)


@pytest.mark.parametrize(
    ("going", "what"), [(Doomed(frozenset({"a", "b"})), "a, b"), (Doomed(everything=True), "the cluster")]
)
def test_pools_go_only_from_people_who_said_so(going, what):
    with pytest.raises(Conflict, match=f"delete or replace {what};") as error:
        build_checks.replacing(going, {"ALLOW_REPLACE": "false"})
    assert "_ALLOW_REPLACE=true" in error.value.hint
    build_checks.replacing(going, {"ALLOW_REPLACE": "true"})
    build_checks.replacing(Doomed(), {"ALLOW_REPLACE": "false"})


NODES = {"items": [{"metadata": {"name": "n", "labels": {"cloud.google.com/gke-nodepool": "a"}}}]}
POD = {
    "metadata": {"name": "x", "namespace": "research", "labels": {"job-name": "pretrain"}},
    "spec": {"nodeName": "n"},
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    ("going", "cluster", "evict", "why"),
    [
        (Doomed(frozenset({"a"})), "asked", False, "a runs research/pretrain"),
        (Doomed(everything=True), "asked", False, "a runs research/pretrain"),
        (Doomed(frozenset({"b"})), "asked", False, ""),
        (Doomed(frozenset({"a"})), "asked", True, ""),
        (Doomed(frozenset({"a"})), "silent", False, "does not respond"),
        (Doomed(frozenset({"a"})), "silent", True, ""),
        (Doomed(everything=True), "absent", False, ""),
        (Doomed(), "silent", False, ""),
    ],
)
def test_jobs_that_run_hold_up_what_would_go(going, cluster, evict, why):
    if why:
        with pytest.raises(Conflict, match=why):
            build_checks.running(going, cluster, NODES, {"items": [POD]}, evict)
    else:
        build_checks.running(going, cluster, NODES, {"items": [POD]}, evict)


def test_guard_reads_what_the_steps_before_it_left(tmp_path, monkeypatch, capsys):
    """The plan replaces a pool that runs a job."""
    monkeypatch.chdir(tmp_path)
    allowed = build_settings.read({**ASKED, "_ALLOW_REPLACE": "true"}, DECLARED)
    Path(build_step.SETTINGS).write_text(allowed.shell())
    change = {"type": POOL, "change": {"actions": ["delete", "create"], "before": {"name": "a"}}}
    files = {
        build_step.PLAN: json.dumps({"resource_changes": [change]}),
        build_step.CLUSTER: "asked\n",
        build_step.NODES: json.dumps(NODES),
        build_step.PODS: json.dumps({"items": [POD]}),
    }
    for name, text in files.items():
        Path(name).write_text(text)
    assert build_step.main(["guard", "provision"]) == 1
    assert "a runs research/pretrain" in capsys.readouterr().err
    Path(build_step.PODS).write_text('{"items": []}')
    assert build_step.main(["guard", "provision"]) == 0


def test_lock_file_has_the_provider_that_is_tested():
    lock = (ROOT / "terraform" / ".terraform.lock.hcl").read_text()
    tested = re.search(r'^VERSION = "(.+)"', (ROOT / "tools" / "provider" / "build.py").read_text(), re.MULTILINE)
    assert f'version     = "{tested[1]}"' in lock
