"""`tpu cluster`: its calls, messages and refusals, with stand-ins for gcloud, kubectl and terraform."""

from __future__ import annotations

import json
import os
import resource
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from journeys.cluster_machine import POOL, RECORDED, ROOT, RUNS_A_JOB, deletes, shown_plan
from support.waiting import alive, until


@pytest.mark.parametrize(
    "wrong",
    ["zone=us-central2-q", "zone=europe-west4-a", "tpu_type=v4-31", "pods_ip_range=10.129.0.0/20", "subnet_ip_range=x"],
)
def test_plan_wrong_zone_type_or_range_is_refused_and_calls_nothing(machine, wrong):
    done = machine.tpu("plan", "--set", wrong)
    assert done.returncode == 2
    assert "  write " in done.stderr or "  give " in done.stderr
    assert machine.calls() == []


def test_plan_wrong_zone_answers_in_less_than_half_a_second(machine):
    argv = [sys.executable, "-m", "tpukit", "cluster", "plan", "--set", "zone=us-central2-q"]
    taken = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            argv, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT / "tools")}
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert (done.returncode, done.stdout) == (2, "")
        assert "us-central2-q is not known to have v4-32\n  write us-central2-b" in done.stderr
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    # CPU time, so that other work on this machine does not affect the result.
    assert min(taken) < 0.5


def test_plan_without_file_or_settings_says_what_to_write(machine):
    (machine.folder / "cluster.yaml").unlink()
    done = machine.tpu("plan")
    assert (done.returncode, machine.calls()) == (2, [])
    assert "cluster.yaml: this folder has no such file\n  name a cluster file" in done.stderr


@pytest.mark.parametrize("via", ["local", "cloud-build", "infra-manager"])
@pytest.mark.parametrize("verb", ["apply", "destroy"])
def test_dry_run_prints_the_very_lines_that_a_run_calls_and_calls_none(machine, verb, via):
    printed = machine.tpu(verb, "--via", via, "--evict", "--dry-run", "--set", "force_destroy=true")
    assert (printed.returncode, machine.calls()) == (0, [])
    machine.answer(shown_plan())
    named = ["--name", "tpu-cluster"] if verb == "destroy" else []
    done = machine.tpu(verb, "--via", via, "--evict", "--yes", *named, "--set", "force_destroy=true")
    assert done.returncode == 0, done.stderr
    lines = [line for line in printed.stdout.splitlines() if not line.startswith(("#", "mkdir ", "cp ", "rm "))]
    assert [call for call in machine.calls() if "version -json" not in call] == lines


def test_dry_run_of_everything_is_read_by_a_shell_as_the_arguments_that_are_meant(machine):
    printed = machine.tpu("plan", "--dry-run", "--set", 'cluster_description=it\'s "mine"; rm -rf $HOME')
    line = next(line for line in printed.stdout.splitlines() if " plan " in line)
    assert '-var=cluster_description=it\'s "mine"; rm -rf $HOME' in shlex.split(line)


def test_bootstrap_makes_what_is_missing_and_leaves_what_is_there(machine):
    missing = {"to": ["service-accounts describe infrastructure-manager-sa"], "code": 1, "err": "ERROR: NOT_FOUND"}
    machine.answer(missing, {"to": ["get-iam-policy"], "out": '{"etag": "x"}'})
    done = machine.tpu("bootstrap")
    assert done.returncode == 0, done.stderr
    calls = "\n".join(machine.calls())
    assert "buckets create" not in calls
    assert "buckets update gs://my-project-1-tf-state --versioning" in calls
    (forget,) = [line for line in calls.splitlines() if "buckets update gs://my-project-1-image-source" in line]
    (file,) = [word.partition("=")[2] for word in shlex.split(forget) if word.startswith("--lifecycle-file=")]
    assert json.loads(Path(file).read_text()) == {"rule": [{"action": {"type": "Delete"}, "condition": {"age": 7}}]}
    assert "--clear-soft-delete" in forget
    assert "service-accounts create tpu-cluster-build" not in calls
    assert "service-accounts create infrastructure-manager-sa" in calls
    assert "roles/owner" not in calls
    assert "roles/editor" not in calls
    assert "state bucket gs://my-project-1-tf-state: exists already" in done.stderr
    assert calls.count("set-iam-policy") == 1  # all roles in one change


def test_bootstrap_lets_builds_become_no_account_but_that_of_the_nodes(machine):
    lines = machine.tpu("bootstrap", "--dry-run").stdout.splitlines()
    given = [line for line in lines if line.startswith("#   serviceAccount:")]
    assert any("tpu-cluster-build" in line and "roles/container.admin" in line for line in given)
    builds = [line for line in given if "tpu-cluster-build" in line or "infrastructure-manager-sa" in line]
    assert not [line for line in builds if "roles/iam." in line or "projectIamAdmin" in line]
    acting = [line for line in lines if "roles/iam.serviceAccountUser" in line and not line.startswith("#")]
    assert len(acting) == 2
    assert all("add-iam-policy-binding gke-sa@my-project-1." in line for line in acting)
    before = "serviceAccount:tpu-cluster-build@my-project-1.iam.gserviceaccount.com has roles/iam.serviceAccountUser"
    assert f"# and takes away that {before}" in lines


def test_bootstrap_turns_on_what_streaming_images_needs_and_gives_nodes_the_role(machine):
    lines = machine.tpu("bootstrap", "--dry-run").stdout
    assert "containerfilesystem.googleapis.com" in lines
    assert "gke-sa@my-project-1.iam.gserviceaccount.com has roles/serviceusage.serviceUsageConsumer" in lines


def test_bootstrap_that_may_not_look_stops_and_says_so(machine):
    machine.answer({"to": ["buckets describe"], "code": 1, "err": "ERROR: 403 Permission storage.buckets.get denied"})
    done = machine.tpu("bootstrap")
    assert done.returncode == 1
    assert "Permission storage.buckets.get denied" in done.stderr
    assert not any("buckets create" in call for call in machine.calls())


def test_apply_shows_the_plan_asks_and_applies_that_plan(machine):
    machine.answer(shown_plan())
    done = machine.tpu("apply", "--yes")
    assert done.returncode == 0, done.stderr
    assert 'module.tpu_pools.google_container_node_pool.this["tpu-node-pool-1"]' in done.stderr
    verbs = [shlex.split(call)[2] for call in machine.calls() if "-chdir" in call]
    assert verbs == ["init", "plan", "show", "apply"]
    assert machine.calls()[-1].endswith(" shown.tfplan")


def test_apply_without_a_terminal_and_without_yes_applies_nothing(machine):
    machine.answer(shown_plan())
    done = machine.tpu("apply")
    assert done.returncode == 2
    assert "pass --yes" in done.stderr
    assert not any(" apply " in call for call in machine.calls())


def test_apply_that_takes_a_pool_from_a_running_job_is_refused_and_names_both(machine):
    machine.answer(shown_plan(deletes(POOL, name="tpu-node-pool-1")), *RUNS_A_JOB)
    done = machine.tpu("apply", "--yes")
    assert done.returncode == 1
    assert "tpu-node-pool-1 runs tpu-training/pretrain" in done.stderr
    assert not any(" apply " in call for call in machine.calls())
    assert machine.tpu("apply", "--yes", "--evict").returncode == 0
    assert any(" apply " in call for call in machine.calls())


def test_apply_that_takes_another_pool_goes_ahead(machine):
    machine.answer(shown_plan(deletes(POOL, name="tpu-node-pool-0")), *RUNS_A_JOB)
    assert machine.tpu("apply", "--yes").returncode == 0


def test_apply_that_takes_a_pool_from_a_cluster_that_does_not_answer_is_refused(machine):
    # kubectl prints an empty list when it is refused or times out.
    silent = {"to": ["kubectl"], "code": 1, "err": "error: context was not found", "out": '{"items": []}'}
    machine.answer(shown_plan(deletes(POOL, name="tpu-node-pool-1")), silent)
    done = machine.tpu("apply", "--yes")
    assert done.returncode == 1
    assert "cannot be listed: error: context was not found" in done.stderr
    assert "tpu cluster credentials" in done.stderr
    assert not any(" apply " in call for call in machine.calls())


def test_failed_apply_says_resource_what_and_what_to_do(machine):
    machine.answer(shown_plan(), {"to": ["terraform", " apply "], "out": "".join(RECORDED), "code": 1})
    done = machine.tpu("apply", "--yes")
    assert done.returncode == 1
    assert 'google_container_node_pool.this["tpu-node-pool-0"]: Error waiting for creating GKE NodePool' in done.stderr
    assert "use another zone" in done.stderr


def test_old_terraform_is_refused_with_the_version_to_install(machine):
    machine.answer({"to": ["terraform version"], "out": '{"terraform_version": "1.5.6"}'})
    done = machine.tpu("plan")
    assert done.returncode == 1
    assert "terraform 1.5.6 is too old\n  install 1.5.7 or newer" in done.stderr


@pytest.mark.parametrize("name", ["terraform", "gcloud", "kubectl"])
def test_missing_program_is_a_sentence_with_the_way_to_get_it(machine, name):
    (machine.folder / "bin" / name).unlink()
    verb = {"terraform": "plan", "gcloud": "credentials", "kubectl": "addons"}[name]
    done = machine.tpu(verb)
    assert done.returncode == 1
    assert "on PATH" in done.stderr
    assert "install" in done.stderr
    assert "Traceback" not in done.stderr


def test_tokens_in_what_programs_say_are_not_passed_on(machine):
    machine.answer({"to": ["get-credentials"], "code": 1, "err": "401 with Bearer abc.def and ya29.a0AfH-secret\n"})
    done = machine.tpu("credentials")
    assert done.returncode == 1
    assert "secret" not in done.stderr
    assert "abc.def" not in done.stderr


def test_job_that_starts_while_the_person_reads_the_plan_is_seen(machine):
    idle = {"to": ["kubectl", "get pods"], "out": '{"items": []}', "times": 1}
    machine.answer(shown_plan(deletes(POOL, name="tpu-node-pool-1")), idle, *RUNS_A_JOB)
    done = machine.tpu("apply", "--yes")
    assert done.returncode == 1
    assert "tpu-node-pool-1 runs tpu-training/pretrain" in done.stderr
    assert not any(" apply " in call for call in machine.calls())


def test_working_copy_follows_the_modules_and_keeps_what_terraform_wrote(machine):
    modules = machine.folder / "modules"
    (modules / "part").mkdir(parents=True)
    for name in ("main.tf", "backend.tf", "part/main.tf"):
        (modules / name).write_text("# first\n")
    machine.tpu("plan", "--modules", str(modules), "--state", "local")
    copy = machine.folder / "home" / "data" / "clusters" / "my-project-1" / "tpu-cluster" / "local"
    assert sorted(path.name for path in copy.rglob("*.tf")) == ["main.tf", "main.tf"]  # no backend: the state is local
    (copy / "terraform.tfstate").write_text("{}")
    (modules / "part" / "main.tf").unlink()
    (modules / "main.tf").write_text("# second\n")
    machine.tpu("plan", "--modules", str(modules), "--state", "local")
    assert [path.read_text() for path in copy.rglob("*.tf")] == ["# second\n"]
    assert (copy / "terraform.tfstate").exists()
    assert not list(copy.glob("*.tfplan"))
    assert sorted(path.name for path in modules.rglob("*")) == ["backend.tf", "main.tf", "part"]  # left unchanged


def test_second_interrupt_kills_a_terraform_that_does_not_leave_and_all_it_started(machine):
    stubborn = """#!/bin/sh
case "$*" in
  *version*) echo '{"terraform_version": "1.9.0"}' ;;
  *init*) ;;
  *) trap '' INT TERM; /bin/sleep 600 & echo $! > child.new; /bin/mv child.new child; while :; do wait; done ;;
esac
"""
    (machine.folder / "bin" / "terraform").write_text(stubborn)
    argv = [sys.executable, "-m", "tpukit", "cluster", "plan"]
    env = os.environ | {"PYTHONPATH": str(ROOT / "tools")}
    process = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    with process:
        until((machine.folder / "child").exists)
        process.send_signal(signal.SIGINT)
        said = [process.stderr.readline()]
        assert "Another Ctrl-C kills Terraform" in said[0]
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        said += process.stderr.readlines()
    assert process.returncode == 1
    assert "plan was killed before it finished" in "".join(said)
    assert "force-unlock" in "".join(said)
    child = int((machine.folder / "child").read_text())
    until(lambda: not alive(child))


def test_apply_shows_the_values_of_now_and_then_of_what_changes_in_place(machine):
    address = 'module.tpu_pools.google_container_node_pool.this["tpu-node-pool-1"]'
    change = {"actions": ["update"], "before": {"node_count": 3}, "after": {"node_count": 4}}
    machine.answer(shown_plan({"address": address, "type": POOL, "change": change}))
    assert "node_count: 3 → 4" in machine.tpu("apply", "--yes").stderr


def test_locked_state_names_the_line_that_unlocks_it_with_its_folder(machine):
    lock = {
        "@level": "error",
        "type": "diagnostic",
        "diagnostic": {"severity": "error", "summary": "Error acquiring the state lock", "detail": "ID: 17"},
    }
    machine.answer({"to": ["terraform", " plan "], "code": 1, "out": json.dumps(lock) + "\n"})
    done = machine.tpu("plan")
    folder = machine.folder / "home" / "data" / "clusters" / "my-project-1" / "tpu-cluster" / "gcs"
    assert f"`terraform -chdir={folder} force-unlock ID`" in done.stderr


THERE = ({"to": ["clusters describe"], "out": "{}"}, {"to": ["kubectl"], "out": '{"items": []}'})


def inits(machine) -> int:
    return sum(" init " in call for call in machine.calls())


@pytest.fixture
def initialized(machine):
    """Return a machine with a Terraform data folder, as after a plan."""
    (machine.folder / "home/data/clusters/my-project-1/tpu-cluster/gcs/.terraform").mkdir(parents=True)
    assert machine.tpu("plan").returncode == 0
    assert inits(machine) == 1
    return machine


def test_plan_where_nothing_changed_runs_no_init(initialized):
    initialized.answer(*THERE)
    assert initialized.tpu("plan").returncode == 0
    assert initialized.tpu("status").returncode == 0
    assert inits(initialized) == 1


@pytest.mark.parametrize("change", ["a module", "the lock file", "the backend", "the program", "terraform's folder"])
def test_plan_where_something_changed_runs_init(initialized, change):
    folder = initialized.folder / "home/data/clusters/my-project-1/tpu-cluster/gcs"
    options = []
    if change == "a module":
        (folder / "main.tf").write_text("")  # differs as with another version of the modules
        (folder / ".terraform/tpukit-init").write_text("of another version")
    elif change == "the lock file":
        (folder / ".terraform.lock.hcl").write_text("# others")
    elif change == "the backend":
        options = ["--set", "tf_state_bucket=another-bucket"]
    elif change == "the program":
        os.utime(initialized.folder / "bin/terraform", (1, 1))
    else:
        (folder / ".terraform/tpukit-init").unlink()
        (folder / ".terraform").rmdir()
    assert initialized.tpu("plan", *options).returncode == 0
    assert inits(initialized) == 2


def test_plan_whose_providers_are_gone_runs_init_and_goes_on(initialized):
    gone = "Error: Required plugins are not installed\n\nrun terraform init"
    initialized.answer({"to": ["terraform", " plan "], "code": 1, "err": gone, "times": 1})
    assert initialized.tpu("plan").returncode == 0
    assert inits(initialized) == 2


def test_status_asks_google_for_the_cluster_once(machine):
    machine.answer(*THERE)
    assert machine.tpu("status").returncode == 0
    assert sum("clusters describe" in call for call in machine.calls()) == 1
