"""Stand-ins in `tpu cluster`'s tests: they accept only what the real gcloud, kubectl and terraform accept."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from tpukit.cli import command

FLAGS = json.loads((Path(__file__).resolve().parents[1] / "fixtures" / "cluster" / "flags.json").read_text())
# Commands outside the dry run. The real gcloud checks the others below; other tests run Terraform's for real.
COMMANDS = [
    ("gcloud", "artifacts docker tags list"),
    ("gcloud", "artifacts repositories add-iam-policy-binding"),
    ("gcloud", "builds describe"),
    ("gcloud", "builds submit"),
    ("gcloud", "compute firewall-rules delete"),
    ("gcloud", "compute firewall-rules list"),
    ("gcloud", "infra-manager resources list"),
    ("gcloud", "storage ls"),
    *(("kubectl", words) for words in FLAGS["kubectl"]["commands"]),
]


@pytest.mark.parametrize(("program", "words"), COMMANDS, ids=lambda word: word.replace(" ", "-"))
def test_command_and_its_flags_are_in_the_help_of_the_real_program(program, words, tmp_path):
    if shutil.which(program) is None:
        pytest.fail(f"{program} is not on PATH: install it")
    text = help_text(program, words, tmp_path)
    known = {*re.findall(r"(?<![\w-])--?[a-z][-a-z]*", text), *negatable(text)}
    wide = set(FLAGS[program]["wide"]) if program == "gcloud" else set()
    if program == "kubectl":
        known |= set(re.findall(r"--[a-z][-a-z]*", help_text(program, "options", tmp_path)))
        wide = set(FLAGS[program]["wide"])
    missing = {*FLAGS[program]["commands"][words], *wide} - known
    assert not missing, text


def negatable(text: str) -> set[str]:
    """Return both spellings of flags such as `--[no-]versioning`."""
    return {f"--{name}" for name in re.findall(r"--\[no-\]([a-z][-a-z]*)", text)}


def help_text(program: str, words: str, home: Path) -> str:
    # gcloud writes logs and asks about updates in its home.
    env = os.environ | {
        "CLOUDSDK_CONFIG": str(home),
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "PAGER": "cat",
        "TERM": "dumb",
    }
    argv = [
        program,
        *words.split(),
        *(() if words == "options" else ("--help",)),
    ]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return re.sub(r".\x08|\x1b\[[0-9;]*m", "", done.stdout)


WORDS = {
    "project_id": "my-project-1",
    "region": "us-central2",
    "zone": "us-central2-b",
    "artifact_repository_bucket_name": "my-artifacts",
    "network_name": "tpu-network",
    "subnet_name": "tpu-subnet",
    "cluster_name": "tpu-cluster",
    "cluster_description": "ours, and theirs; all = one",
}


def gcloud_lines(tmp_path, monkeypatch):
    """Return the lines of a dry run of all commands, one for each form of gcloud call."""
    monkeypatch.setenv("TPUKIT_HOME", str(tmp_path))
    described = [word for name, value in WORDS.items() for word in ("--set", f"{name}={value}")]
    plain = described[:-2]
    calls = [["bootstrap", *plain], ["credentials", *plain]]
    calls += [[verb, "--via", "cloud-build", *plain] for verb in ("apply", "destroy")]
    calls += [[verb, "--via", "infra-manager", *described] for verb in ("plan", "apply", "destroy")]
    found = {}
    for call in calls:
        done = CliRunner().invoke(command, ["cluster", *call, "--dry-run"])
        assert done.exit_code == 0, done.exception
        for line in done.stdout.splitlines():
            for part in line.split(" || "):
                if part.startswith("gcloud "):
                    argv = shlex.split(part)
                    found["condition=^" in part, *(word.partition("=")[0] for word in argv[:4]), len(argv)] = argv
    return found.values()


def test_every_line_of_a_dry_run_is_understood_by_gcloud(tmp_path, monkeypatch):
    if shutil.which("gcloud") is None:
        pytest.fail("gcloud is not on PATH: install it")
    lines = gcloud_lines(tmp_path, monkeypatch)
    assert len(lines) > 12
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "nobody"))
    for argv in lines:
        if "set-iam-policy" in argv:  # gcloud reads the policy before it checks the login
            policy = Path(argv[4])
            policy.parent.mkdir(parents=True, exist_ok=True)
            policy.write_text('{"bindings": []}')
        done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        # Without a login, gcloud asks for one (status 1) once it has parsed the line. A wrong line is status 2.
        assert done.returncode == 1, f"{argv}\n{done.stderr}"
        assert "gcloud auth login" in done.stderr, f"{argv}\n{done.stderr}"
