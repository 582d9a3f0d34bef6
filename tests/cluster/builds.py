"""A small Cloud Build: substitutions as it makes them, and the steps of a build run in order on this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PROVISION = ROOT / "cloudbuild.provision.yaml"
DESTROY = ROOT / "cloudbuild.destroy.yaml"

GUIDE = {
    "_TF_STATE_BUCKET": "tpu-tf-state",
    "_TF_STATE_PREFIX": "gke-tpu-training-environment",
    "_REGION": "us-central2",
    "_ZONE": "us-central2-b",
    "_ARTIFACT_REPOSITORY_BUCKET_NAME": "tpu-artifacts",
    "_NETWORK_NAME": "tpu-network",
    "_SUBNET_NAME": "tpu-subnet",
    "_CLUSTER_NAME": "tpu-cluster",
    "_NAMESPACE": "tpu-training",
    "_TPU_TYPE": "v4-32",
    "_NUM_TPU_POOLS": "2",
}
"""What the guide passes to both builds; it adds the rest when provisioning."""
GUIDE_PROVISION = {
    **GUIDE,
    "_NUM_OF_CHIPS": "32",
    "_JOBSET_API_VERSION": "v0.12.0",
    "_KUEUE_API_VERSION": "v0.16.6",
}


class Refused(Exception):
    """Cloud Build does not take such a build."""


class StepFailed(Exception):
    """A step ended with another status than 0; those after it did not run."""


def substituted(config: dict, given: dict[str, str]) -> dict:
    """The build with all substitutions made, by the rules for a build that is sent by hand: a key that the build does
    not know is refused, a key without a value too; `$$` is a dollar; scripts are left alone."""
    builtin = {"PROJECT_ID": "tpu-project", "PROJECT_NUMBER": "1", "BUILD_ID": "build", "LOCATION": "global"}
    values = {**builtin, **config.get("substitutions", {}), **given}
    used = set()

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        name = match[1] or match[2]
        if name not in values:
            raise Refused(f"{name} has no value")
        used.add(name)
        return values[name]

    def walk(node: object, key: str = "") -> object:
        if isinstance(node, dict):
            return {name: walk(value, name) for name, value in node.items()}
        if isinstance(node, list):
            return [walk(value) for value in node]
        if isinstance(node, str) and key != "script":
            return re.sub(r"\$\$|\$(?:\{(\w+)\}|(\w+))", replace, node)
        return node

    done = {name: walk(value, name) for name, value in config.items() if name != "substitutions"}
    for name in {**config.get("substitutions", {}), **given}:
        if not re.fullmatch(r"_[A-Z0-9_]+", name):
            raise Refused(f"{name} is no name of a substitution")
        if name not in used:
            raise Refused(f"{name} is not used by the build")
    return done


class Builder:
    """Runs the steps of a build in a workspace of its own. Terraform, gcloud and kubectl are the real ones, and what
    they are called with is written down. Two things are imitated: tpukit is not installed but found in the checkout,
    and nobody sleeps."""

    PROGRAM = """#!{python}
import json, os, sys
name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
line = " ".join([name, *words])
with open({calls!r}, "a") as calls:
    calls.write(line + "\\n")
for text, status, said in json.load(open({answers!r})):
    if text in line:
        print(said, end="\\n" if said else "")
        sys.exit(status)
if name in {real!r}:
    os.execv({real!r}[name], [name, *words])
elif name == "python3" and "pip" not in words:
    os.execve({python!r}, [{python!r}, *words], {{**os.environ, "PYTHONPATH": {tools!r}}})
"""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.workspace, self.programs, self.calls_file = folder / "workspace", folder / "bin", folder / "calls"
        self.home, self.answers_file = folder, folder / "answers.json"
        self.said: dict[str, str] = {}
        self.workspace.mkdir(parents=True)
        shutil.copytree(ROOT / "terraform", self.workspace / "terraform", ignore=shutil.ignore_patterns(".terraform*"))
        shutil.copytree(ROOT / "kueue", self.workspace / "kueue")
        self.programs.mkdir()
        self.answer()
        path = environment.get("PATH", os.environ["PATH"])
        real = {name: shutil.which(name, path=path) for name in ("terraform", "kubectl", "gcloud")}
        if missing := [name for name, found in real.items() if found is None]:
            pytest.fail(f"{' and '.join(missing)} must be on PATH: the steps of the builds run them")
        text = self.PROGRAM.format(
            python=sys.executable,
            calls=str(self.calls_file),
            answers=str(self.answers_file),
            tools=str(ROOT / "tools"),
            real=real,
        )
        for name in ("gcloud", "terraform", "kubectl", "python3", "sleep"):
            program = self.programs / name
            program.write_text(text)
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.environment = {
            **environment,
            "PATH": f"{self.programs}{os.pathsep}{path}",
            "HOME": str(folder),
            "KUBECONFIG": str(folder / "kubeconfig"),
            "CLOUDSDK_CONFIG": str(folder / "gcloud"),
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        }

    def answer(self, *answers: tuple[str, int, str]) -> None:
        """Whatever is run with this text in its command line ends with this status, having said this."""
        self.answers_file.write_text(json.dumps(answers))

    @property
    def calls(self) -> list[str]:
        return self.calls_file.read_text().replace(str(self.workspace), "/workspace").splitlines()

    def run(self, file: Path, given: dict[str, str], only: str = "") -> list[str]:
        """Runs all steps, or one; gives back the command lines that they ran."""
        build = substituted(yaml.safe_load(file.read_text()), given)
        self.calls_file.write_text("")
        variables = dict(one.split("=", 1) for one in build["options"]["env"])
        for step in [step for step in build["steps"] if only in ("", step["id"])]:
            script = self.workspace.parent / f"{step['id']}.script"
            script.write_text(step["script"].replace("/workspace", str(self.workspace)))
            script.chmod(0o700)
            done = subprocess.run(
                [script],
                cwd=self.workspace / step.get("dir", ""),
                env={**self.environment, **variables},
                capture_output=True,
                text=True,
            )
            self.said[step["id"]] = done.stdout + done.stderr
            if done.returncode:
                raise StepFailed(step["id"], self.said[step["id"]])
        return self.calls

    def tool(self, name: str, *words: str, **variables: str) -> str:
        """What one of the programs says, run as in a step."""
        done = subprocess.run(
            [self.programs / name, *words],
            cwd=self.workspace / "terraform",
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout
