"""A small Cloud Build: its substitutions, and the steps of a build run in order on this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PROVISION = ROOT / "cloudbuild.provision.yaml"
DESTROY = ROOT / "cloudbuild.destroy.yaml"

GUIDE = {
    "_TF_STATE_BUCKET": "tpu-tf-state",
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
"""Substitutions that the guide passes to both builds. Provisioning adds others."""
GUIDE_PROVISION = {
    **GUIDE,
    "_NUM_OF_CHIPS": "32",
    "_JOBSET_API_VERSION": "v0.12.0",
    "_KUEUE_API_VERSION": "v0.19.2",
}


class Refused(Exception):
    """A build that Cloud Build refuses."""


class StepFailed(Exception):
    """A step that failed. Later steps did not run."""


BUILT_IN = {"PROJECT_ID": "tpu-project", "PROJECT_NUMBER": "1", "BUILD_ID": "build-1", "LOCATION": "global"}
_PLACES = ("steps", "images")
"""Fields with substitutions: https://cloud.google.com/build/docs/configuring-builds/substitute-variable-values"""
_FIELDS = {
    "steps", "images", "substitutions", "options", "timeout", "queueTtl", "logsBucket", "serviceAccount", "tags",
    "artifacts", "secrets", "availableSecrets", "source",
}  # fmt: skip
_STEP_FIELDS = {
    "id", "name", "entrypoint", "args", "env", "secretEnv", "dir", "waitFor", "timeout", "script", "volumes",
    "allowFailure", "allowExitCodes", "automapSubstitutions",
}  # fmt: skip
_MOST, _LONGEST_NAME, _LONGEST_VALUE = 200, 100, 4000  # substitutions of a build, and bytes of each (same page)
_LOGS_ELSEWHERE = ("CLOUD_LOGGING_ONLY", "NONE")


def substituted(config: dict, given: dict[str, str]) -> dict:
    """Return the build with all substitutions made, by the rules for a build that is submitted by hand.

    Refuse keys that the build does not use, and keys without a value, unless it allows loose ones; `$$` is a dollar;
    scripts are left alone. Only steps and images are documented to take substitutions, so other fields stay as they
    are. Counting a key that is only mapped to variables as unused is a guess, on the side of refusing.
    """
    options = config.get("options", {})
    loose = options.get("substitutionOption") == "ALLOW_LOOSE"
    own = {**config.get("substitutions", {}), **given}
    _check(config, own)
    values, used = {**BUILT_IN, **own}, set()

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        name = match[1] or match[2]
        if name not in values and not loose:
            raise Refused(f"{name} has no value")
        used.add(name)
        return values.get(name, "")

    def walk(node: object, key: str = "") -> object:
        if isinstance(node, dict):
            return {name: walk(value, name) for name, value in node.items()}
        if isinstance(node, list):
            return [walk(value) for value in node]
        if isinstance(node, str) and key != "script":
            return re.sub(r"\$\$|\$(?:\{(\w+)\}|(\w+))", replace, node)
        return node

    done = {name: walk(value, name) if name in _PLACES else value for name, value in config.items()}
    if (unused := sorted(set(own) - used)) and not loose:
        raise Refused(f"{unused[0]} is not used by the build")
    for step in done["steps"]:
        if step.get("automapSubstitutions", options.get("automapSubstitutions")):
            step["env"] = [*(f"{name}={value}" for name, value in values.items()), *step.get("env", [])]
    return done


def _check(config: dict, own: dict[str, str]) -> None:
    """Refuse invalid builds, whatever the values are."""
    if unknown := sorted(set(config) - _FIELDS):
        raise Refused(f"{unknown[0]} is no field of a build")
    for step in config["steps"]:
        if not isinstance(step, dict):
            continue
        if unknown := sorted(set(step) - _STEP_FIELDS):
            raise Refused(f"{unknown[0]} is no field of a step")
        if "script" in step and {"args", "entrypoint"} & set(step):
            raise Refused("a step with a script has neither args nor entrypoint")
    for name, value in own.items():
        if not re.fullmatch(r"_[A-Z0-9_]+", name):
            raise Refused(f"{name} is no name of a substitution")
        if len(name) > _LONGEST_NAME or len(value.encode()) > _LONGEST_VALUE:
            raise Refused(f"{name} is too long")
    if len(own) > _MOST:
        raise Refused(f"{len(own)} substitutions are too many")
    options = config.get("options", {})
    if options.get("dynamicSubstitutions"):
        raise Refused("dynamicSubstitutions are not imitated here")
    elsewhere = options.get("logging") in _LOGS_ELSEWHERE or options.get("defaultLogsBucketBehavior")
    if config.get("serviceAccount") and not elsewhere and not config.get("logsBucket"):
        raise Refused("with a service account a build says where its logs go: logsBucket, or options.logging")


class CloudBuild:
    """Google's APIs as a build queries them about itself: timeout, account, and the account's permissions."""

    OURS = "tpu-cluster-build@tpu-project.iam.gserviceaccount.com"
    BY_DEFAULT = "1-compute@developer.gserviceaccount.com"

    def __init__(self) -> None:
        self.timeout, self.account = "14400s", self.OURS
        self.visible = True
        self.permissions = {self.OURS: {"compute.networks.create", "container.clusters.create"}}
        build = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if not build.visible:
                    self.say(403, {"error": {"code": 403, "status": "PERMISSION_DENIED", "message": "denied"}})
                else:
                    self.say(200, build.document())

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["permissions"]
                held = build.permissions.get(build.account, set())
                self.say(200, {"permissions": [one for one in asked if one in held]} if held else {})

            def say(self, status: int, document: object) -> None:
                content = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *words: object) -> None:
                """Discard log messages."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def document(self) -> dict[str, object]:
        account = f"projects/tpu-project/serviceAccounts/{self.account}"
        return {"id": BUILT_IN["BUILD_ID"], "timeout": self.timeout, "serviceAccount": account, "status": "WORKING"}

    @property
    def environment(self) -> dict[str, str]:
        address = f"http://127.0.0.1:{self.server.server_address[1]}/"
        names = ("CLOUDBUILD", "CLOUDRESOURCEMANAGER")
        return {f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{name}": address for name in names}


class Builder:
    """A runner of a build's steps in a separate workspace.

    Terraform, gcloud and kubectl are the real ones, and their calls are recorded. Two things are imitated: tpukit is
    run from the checkout instead of an installation, and sleeps return at once.
    """

    PROGRAM = """#!{python}
import json, os, sys
name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
line = " ".join([name, *words])
with open({calls!r}, "a") as calls:
    calls.write(line + "\\n")
for text, status, said in json.load(open({answers!r})):
    if text in line:
        into = open(words[words.index("--output") + 1], "w") if name == "curl" else sys.stdout
        print(said, end="\\n" if said else "", file=into)
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
        self.build = CloudBuild()
        self.workspace.mkdir(parents=True)
        shutil.copytree(ROOT / "terraform", self.workspace / "terraform", ignore=shutil.ignore_patterns(".terraform*"))
        shutil.copytree(ROOT / "kueue", self.workspace / "kueue")
        self.programs.mkdir()
        self.answer()
        path = environment.get("PATH", os.environ["PATH"])
        real = {name: shutil.which(name, path=path) for name in ("terraform", "kubectl", "gcloud", "curl")}
        if missing := [name for name, found in real.items() if found is None]:
            pytest.fail(f"{' and '.join(missing)} must be on PATH: the steps of the builds run them")
        text = self.PROGRAM.format(
            python=sys.executable,
            calls=str(self.calls_file),
            answers=str(self.answers_file),
            tools=str(ROOT / "tools"),
            real=real,
        )
        for name in (*real, "python3", "sleep"):
            program = self.programs / name
            program.write_text(text)
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.environment = {
            **environment,
            **self.build.environment,
            "PATH": f"{self.programs}{os.pathsep}{path}",
            "HOME": str(folder),
            "KUBECONFIG": str(folder / "kubeconfig"),
            "CLOUDSDK_CONFIG": str(folder / "gcloud"),
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        }

    def answer(self, *answers: tuple[str, int, str]) -> None:
        """Set the status and output of commands whose line contains a text, as (text, status, output)."""
        self.answers_file.write_text(json.dumps(answers))

    @property
    def calls(self) -> list[str]:
        return self.calls_file.read_text().replace(str(self.workspace), "/workspace").splitlines()

    def run(self, file: Path, given: dict[str, str], *, only: str = "", seconds: float = 3600.0) -> list[str]:
        """Run all steps, or only one in the workspace of the last build, and return the command lines that they ran.

        Kill a build that takes longer than `seconds`.
        """
        build = substituted(yaml.safe_load(file.read_text()), given)
        self.calls_file.write_text("")
        if not only:
            self._clean()
        due = time.monotonic() + seconds
        common = build["options"].get("env", [])
        for step in [step for step in build["steps"] if only in ("", step["id"])]:
            script = self.workspace.parent / f"{step['id']}.script"
            script.write_text(step["script"].replace("/workspace", str(self.workspace)))
            script.chmod(0o700)
            # A step's own variables override the common ones, and substitutions are not passed to it.
            variables = dict(one.split("=", 1) for one in (*common, *step.get("env", [])))
            process = subprocess.Popen(
                [script],
                cwd=self.workspace / step.get("dir", ""),
                env={**self.environment, **variables},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            try:
                said, _ = process.communicate(timeout=max(0.0, due - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                said, _ = process.communicate()
                raise StepFailed(step["id"], f"{said}TIMEOUT") from None
            self.said[step["id"]] = said
            if process.returncode:
                raise StepFailed(step["id"], said)
        return self.calls

    def _clean(self) -> None:
        """Remove files of earlier builds from the workspace."""
        for left in (*self.workspace.iterdir(), self.workspace / "terraform" / "build.auto.tfvars.json"):
            if left.is_file():
                left.unlink()

    def tool(self, name: str, *words: str, **variables: str) -> str:
        """Return the output of a program, run as in a step."""
        done = subprocess.run(
            [self.programs / name, *words],
            cwd=self.workspace / "terraform",
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout
