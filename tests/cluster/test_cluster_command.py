"""`tpu cluster` with the real Terraform, on small configurations that need no provider: streams, plans, Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.waiting import PATIENCE, alive, until

ROOT = Path(__file__).resolve().parents[2]
WORDS = {
    "project_id": "my-project-1",
    "region": "us-central2",
    "zone": "us-central2-b",
    "artifact_repository_bucket_name": "my-artifacts",
    "network_name": "tpu-network",
    "subnet_name": "tpu-subnet",
    "cluster_name": "tpu-cluster",
    "tpu_type": "v4-32",
}
VARIABLES = "".join(f'variable "{name}" {{}}\n' for name in WORDS) + 'variable "num_tpu_pools" { default = 2 }\n'
POOLS = """\
variable "labels" {
  type    = map(string)
  default = {}
}
resource "terraform_data" "pool" {
  count = var.num_tpu_pools
  input = var.labels
}
"""
SLOW = """\
resource "terraform_data" "first" {
  provisioner "local-exec" { command = "touch started; sleep 3" }
}
resource "terraform_data" "second" {
  depends_on = [terraform_data.first]
}
"""
HELD = SLOW.replace("sleep 3", "until [ -e go ]; do sleep 0.1; done")
"""A configuration that waits until a test lets it continue."""


@dataclass
class Here:
    folder: Path

    def write(self, text: str) -> None:
        (self.folder / "modules" / "main.tf").write_text(VARIABLES + text)

    def argv(self, *argv: str) -> list[str]:
        sets = [word for name, value in WORDS.items() for word in ("--set", f"{name}={value}")]
        modules = ["--modules", str(self.folder / "modules"), "--state", "local"]
        return [sys.executable, "-m", "tpukit", "cluster", *argv, *modules, *sets]

    @property
    def env(self) -> dict[str, str]:
        mine = {"PYTHONPATH": str(ROOT / "tools"), "TPUKIT_HOME": str(self.folder), "CHECKPOINT_DISABLE": "1"}
        return {name: value for name, value in os.environ.items() if not name.startswith("TF_")} | mine

    def tpu(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(*argv), env=self.env, cwd=self.folder, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )

    def start(self, *argv: str) -> subprocess.Popen[str]:
        # A separate session, as in a terminal.
        with self._said.open("w") as said:
            return subprocess.Popen(
                self.argv(*argv),
                env=self.env,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )

    def ended(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        """Return the exit code and the output of a started process."""
        return process.wait(PATIENCE), self._said.read_text()

    def cancelled(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        """Let a signalled process finish once it has reported the signal, and return the same."""
        until(lambda: process.poll() is not None or "cancelling:" in self._said.read_text(), "it to hear the signal")
        self.let_go()
        return self.ended(process)

    def let_go(self) -> None:
        (self.copy / "go").touch()

    @property
    def _said(self) -> Path:
        return self.folder / "said"

    @property
    def copy(self) -> Path:
        return self.folder / "data" / "clusters" / "my-project-1" / "tpu-cluster" / "local"

    def state(self) -> list[str]:
        document = json.loads((self.copy / "terraform.tfstate").read_text())
        return sorted(f"{one['type']}.{one['name']}" for one in document["resources"])

    def wait_for(self, name: str) -> None:
        until((self.copy / name).exists, f"{name} to come")


@pytest.fixture
def here(tmp_path) -> Here:
    if shutil.which("terraform") is None:
        pytest.fail("terraform is not on PATH: install Terraform 1.5.7 or newer")
    (tmp_path / "modules").mkdir()
    return Here(tmp_path)


def test_apply_makes_shows_and_repeats_without_change(here):
    here.write(POOLS)
    first = here.tpu("apply", "--yes")
    assert first.returncode == 0, first.stderr
    assert "terraform_data.pool[1]: created after" in first.stderr
    assert "2 to add, 0 to change, 0 to destroy." in first.stderr
    second = here.tpu("apply", "--yes")
    assert "Nothing to change." in second.stderr
    assert here.state() == ["terraform_data.pool"]


def test_plan_json_lists_changes_on_stdout_alone(here):
    here.write(POOLS)
    here.tpu("apply", "--yes")
    done = here.tpu("plan", "--json", "--set", "num_tpu_pools=1")
    assert [(one["address"], one["action"]) for one in json.loads(done.stdout)] == [
        ("terraform_data.pool[1]", "delete")
    ]


def test_values_with_special_characters_arrive_as_they_were_written(here):
    here.write(POOLS)
    nasty = {"a": '${upper("x")} %{ if true } \\ \' " $HOME `id`', "b": "ü\n2"}
    done = here.tpu("apply", "--yes", "--set", f"labels={json.dumps(nasty)}")
    assert done.returncode == 0, done.stderr
    document = json.loads((here.copy / "terraform.tfstate").read_text())
    assert document["resources"][0]["instances"][0]["attributes"]["input"]["value"] == nasty


def test_dry_run_lines_pasted_into_a_shell_do_what_the_command_does(here):
    here.write(POOLS)
    printed = here.tpu("apply", "--dry-run", "--evict")
    assert not here.copy.exists()
    # Only Google knows the quota; the command continues without an answer.
    lines = "".join(line for line in printed.stdout.splitlines(True) if "compute regions describe" not in line)
    done = subprocess.run(["/bin/sh", "-e"], input=lines, env=here.env, cwd=here.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert here.state() == ["terraform_data.pool"]


def test_failure_names_the_resource_and_the_cause_and_what_was_done_stays(here):
    here.write(
        'resource "terraform_data" "good" {}\n'
        'resource "terraform_data" "bad" {\n  depends_on = [terraform_data.good]\n'
        '  provisioner "local-exec" { command = "echo Error 403: Permission denied >&2; exit 1" }\n}\n'
    )
    done = here.tpu("apply", "--yes")
    assert done.returncode == 1
    assert "terraform_data.bad: local-exec provisioner error" in done.stderr
    assert "Permission denied" in done.stderr
    assert "ask an owner" in done.stderr
    assert "terraform_data.good" in here.state()


def test_refusal_of_a_module_is_the_persons_to_mend(here):
    here.write(
        'resource "terraform_data" "a" {\n  lifecycle {\n    precondition {\n'
        '      condition     = var.tpu_type == "v4-64"\n      error_message = "Write v4-64."\n    }\n  }\n}\n'
    )
    done = here.tpu("plan")
    assert done.returncode == 2
    assert "Write v4-64." in done.stderr


def test_broken_configuration_is_an_error_with_its_place(here):
    here.write('resource "terraform_data" {\n')
    done = here.tpu("plan")
    assert done.returncode != 0
    assert "main.tf" in done.stderr
    assert "Traceback" not in done.stderr


def test_one_interrupt_lets_terraform_finish_what_is_under_way_and_save(here):
    here.write(HELD)
    process = here.start("apply", "--yes")
    here.wait_for("started")
    # A terminal signals the whole foreground group. Terraform has its own group, so it receives the signal once.
    os.killpg(process.pid, signal.SIGINT)
    code, said = here.cancelled(process)
    assert code == 130, said
    assert "cancelling: Terraform finishes what is under way" in said
    assert "apply was cancelled" in said
    assert "the state is saved" in said
    assert not (here.copy / ".terraform.tfstate.lock.info").exists()
    assert "terraform_data.second" not in here.state()
    again = here.tpu("apply", "--yes")
    assert again.returncode == 0, again.stderr
    assert here.state() == ["terraform_data.first", "terraform_data.second"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_being_told_to_go_cancels_cleanly_too(here, number):
    here.write(HELD)
    process = here.start("apply", "--yes")
    here.wait_for("started")
    process.send_signal(number)
    code, said = here.cancelled(process)
    assert code == 130, said
    assert not (here.copy / ".terraform.tfstate.lock.info").exists()


def test_interrupt_leaves_nothing_running(here):
    here.write(SLOW.replace("sleep 3", "sleep 600 & echo $! > pid; mv pid child; wait"))
    process = here.start("apply", "--yes")
    here.wait_for("child")
    process.send_signal(signal.SIGINT)
    code, said = here.ended(process)
    assert code == 130, said
    child = int((here.copy / "child").read_text())
    until(lambda: not alive(child), "the child to end")


def test_second_run_at_the_same_time_is_refused(here):
    here.write(HELD)
    process = here.start("apply", "--yes")
    here.wait_for("started")
    other = here.tpu("apply", "--yes")
    assert other.returncode == 1
    assert "another `tpu cluster`, or its Terraform, is working on this cluster" in other.stderr
    here.let_go()
    code, said = here.ended(process)
    assert code == 0, said


def test_state_that_somebody_locked_is_a_conflict_with_the_way_to_unlock(here):
    here.write(HELD)
    process = here.start("apply", "--yes")
    here.wait_for("started")
    process.kill()  # only tpu: Terraform continues and holds the state lock
    process.wait()
    terraform = ["terraform", f"-chdir={here.copy}", "plan", "-lock-timeout=0s"]
    held = subprocess.run(terraform, env=here.env, capture_output=True, text=True, input="x\n" * 20)
    here.let_go()
    from tpukit.cluster import diagnosis
    from tpukit.core.errors import Conflict

    assert isinstance(diagnosis.failure("terraform", held.stderr, "plan"), Conflict)
    assert "force-unlock" in str(diagnosis.failure("terraform", held.stderr, "plan"))


def test_destroy_leaves_nothing(here):
    here.write(POOLS)
    here.tpu("apply", "--yes")
    done = here.tpu("destroy", "--name", "tpu-cluster")
    assert done.returncode == 0, done.stderr
    assert here.state() == []
    found = json.loads(here.tpu("status", "--json").stdout)
    assert found["resources"] == {"count": 0}


def test_progress_on_a_terminal_draws_bars_and_leaves_a_line_for_each_resource(here):
    here.write(HELD)
    bar, shown = "terraform_data.first  creating  ━━━", here.folder / "typescript"
    shown.touch()

    def plain() -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.read_text(errors="replace"))

    line = shlex.join(here.argv("apply", "--yes"))
    process = subprocess.Popen(
        ["script", "-qfec", f"stty cols 120; {line}", str(shown)],
        env=here.env | {"TERM": "xterm"},
        cwd=here.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    until(lambda: process.poll() is not None or bar in plain(), plain)
    here.let_go()
    assert process.wait(PATIENCE) == 0, plain()
    assert bar in plain()
    assert re.search(r"^terraform_data.first: created after \d+s", plain(), re.M)


def test_plan_of_our_modules_with_the_real_provider(terraform_environment, tmp_path):
    here = Here(tmp_path)
    sets = [word for name, value in WORDS.items() for word in ("--set", f"{name}={value}")]
    argv = [sys.executable, "-m", "tpukit", "cluster", "plan", "--json", "--state", "local", *sets]
    done = subprocess.run(
        argv,
        env=terraform_environment | here.env | {"TF_CLI_CONFIG_FILE": terraform_environment["TF_CLI_CONFIG_FILE"]},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    planned = {one["address"]: one["action"] for one in json.loads(done.stdout)}
    assert planned['module.tpu_pools.google_container_node_pool.this["tpu-node-pool-0"]'] == "create"
    assert set(planned.values()) == {"create"}
