"""The README's commands for a real cluster, as printed: from an empty project to a trained model and back.

Uses real Terraform, gcloud and kubectl in a sandbox; questions are answered at a terminal. The tests run in order.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt

from support import role_sets, terminal
from support.quick_provider import quicken
from support.role_sets import RoleSets
from support.terminal import Typed
from support.waiting import until
from tpukit.places.local import processes as pods

ROOT = Path(__file__).resolve().parents[2]
SECTION = "To a real cluster"
ANSWERS = {  # the question about a new project comes first, then the plan
    r"create these in my-project-1\? \[y/N\]:": "y",
    r"(?<!my-project-1\?) \[y/N\]:": "y",
    r"Type tpu-cluster to do so:": "tpu-cluster",
}
BOOTSTRAP = re.compile(
    r"bucket my-project-1-(tf-state|image-source)$|object my-project-1-(tf-state|image-source)/"
    r"|account .*/(tpu-cluster-build|tpu-image-build|infrastructure-manager-sa|gke-sa|cloud-tpu-sa)@"
    r"|policy (projects/my-project-1|b/my-project-1-image-source|projects/my-project-1/serviceAccounts/.*)$"
)
"""Resources that `tpu cluster bootstrap` creates once per project. They cost nothing, and stay."""


def section() -> tuple[dict[str, str], list[list[str]]]:
    """Return the files of the section by the name in their first line, and its command lines as words."""
    files, lines, inside = {}, [], False
    tokens = MarkdownIt("commonmark").parse((ROOT / "README.md").read_text(encoding="utf-8"))
    for before, token in zip([None, *tokens], tokens, strict=False):
        if before is not None and before.type == "heading_open":
            inside = token.content == SECTION
        if not inside or token.type != "fence":
            continue
        if token.info == "yaml":
            files[token.content.splitlines()[0].removeprefix("# ")] = token.content
        elif token.info == "console":
            lines += [shlex.split(line) for line in token.content.splitlines()]
    return files, lines


FILES, (UP, SHELL, *LINES) = section()


@dataclass(frozen=True)
class Way:
    """A checkout in which the commands run, and the cloud that they use."""

    folder: Path
    env: dict[str, str]
    google: str
    token: str

    def type(self, words: list[str], **options: Any) -> Typed:
        return terminal.run(words, self.env, self.folder, answers=ANSWERS, **options)

    def resources(self) -> set[str]:
        return set(self.ask("emulator/resources"))

    def left(self) -> set[str]:
        """Return the resources that bootstrap did not create."""
        return {one for one in self.resources() if not BOOTSTRAP.match(one)}

    def ask(self, path: str) -> Any:
        request = urllib.request.Request(f"{self.google}/{path}", headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
            return json.load(answer)

    def settings(self) -> dict[str, str]:
        found: dict[str, str] = yaml.safe_load(Path(self.env["TPUKIT_SETTINGS"]).read_text())
        return found


@pytest.fixture(scope="module")
def way(tmp_path_factory: pytest.TempPathFactory, terraform_environment: dict[str, str]) -> Iterator[Way]:
    home = tmp_path_factory.mktemp("readme")
    checkout = home / "tpukit"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in tracked.split("\0"):
        if name and not name.startswith("tests/") and (ROOT / name).is_file():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, checkout / name)
    quicken(checkout / "terraform")
    tpu = home / "bin" / "tpu"
    tpu.parent.mkdir()
    tpu.write_text(f'#!/bin/sh\nexec {sys.executable} -m tpukit "$@"\n')
    tpu.chmod(tpu.stat().st_mode | stat.S_IXUSR)
    env = {
        **terraform_environment,
        "PATH": f"{tpu.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(checkout / "tools"),
        "TPUKIT_HOME": str(home / "data"),
    }
    own = {"HOME": str(home), "CLOUDSDK_CONFIG": str(home / "gcloud"), "COLUMNS": "160", "TERM": "xterm"}
    for name, text in FILES.items():
        (checkout / name).write_text(text)

    def sandbox(*words: str) -> str:
        done = subprocess.run([tpu, "sandbox", *words], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        sandbox(*UP[2:])
        program = "import json, os; print(json.dumps(dict(os.environ)))"
        inside = json.loads(sandbox(*SHELL[2:], sys.executable, "-c", program))
        google = inside["GOOGLE_CONTAINER_CUSTOM_ENDPOINT"].removesuffix("/container/v1/")
        yield Way(checkout, {**inside, **own}, google, inside["GOOGLE_OAUTH_ACCESS_TOKEN"])
        sandbox("down")
    finally:
        left = pods.kill_strays(home)
    assert not left, "processes outlived the sandbox"


def test_section_names_a_file_and_the_lines_that_the_tests_below_follow():
    assert list(FILES) == ["cluster.yaml"]
    assert ["tpu", "sandbox", "up", "--project", yaml.safe_load(FILES["cluster.yaml"])["project_id"]] == UP
    assert SHELL == ["tpu", "sandbox", "shell"]
    assert [words[:3] for words in LINES] == [
        ["tpu", "cluster", "up"],
        ["tpu", "image", "push"],
        ["tpu", "run", "examples/02-pretrain/job.yaml"],
        ["tpu", "team", "queue"],
        ["tpu", "cluster", "apply"],
        ["tpu", "cluster", "destroy"],
    ]


def test_up_shows_what_it_costs_and_killed_while_terraform_works_goes_on_with_the_same_line(way):
    assert way.resources() == set()
    killed = way.type(LINES[0], until=lambda text: bool(re.search(r"google_compute_network\.this\S*: created", text)))
    assert killed.code == -9, killed.text[-5000:]
    before, _, _ = " ".join(killed.text.split()).rpartition("[y/N]")
    assert re.search(r"2 × v4-16 spot ([\d.,]+ an hour \(as of|unknown)", before)
    assert re.search(r"together (at least )?[\d.,]+ an hour, [\d.,]+ a month", before)
    assert "Quota for 16 more chips of v4 (preemptible) in us-central2: " in before
    done = way.type(LINES[0])
    assert done.code == 0, done.text[-8000:]
    assert done.text.rstrip().endswith(
        "Next:\n  tpu image push\n  tpu cluster verify\n  tpu run job.yaml --place gke"
    ), done.text[-2000:]
    cluster = "projects/my-project-1/locations/us-central2/clusters/tpu-cluster"
    pools = {f"pool {cluster}/nodePools/{name}" for name in ("cpu-pool", "tpu-node-pool-0", "tpu-node-pool-1")}
    assert pools <= way.resources()


def test_what_was_made_is_in_the_settings_under_the_names_of_the_cluster_file(way):
    asked, made = yaml.safe_load(FILES["cluster.yaml"]), way.settings()
    assert made["project"] == asked["project_id"]
    assert made["artifacts"] == f"gs://{asked['artifact_repository_bucket_name']}"
    assert made["repository"] == f"us-central1-docker.pkg.dev/{asked['project_id']}/{asked['cluster_name']}"
    assert made["context"] == f"gke_{asked['project_id']}_{asked['region']}_{asked['cluster_name']}"


def test_image_is_built_into_the_repository_that_is_there_and_becomes_the_one_of_all_jobs(way):
    done = way.type(LINES[1])
    assert done.code == 0, done.text[-5000:]
    image = way.settings()["image"]
    assert re.fullmatch(r"us-central1-docker\.pkg\.dev/my-project-1/tpu-cluster/train@sha256:[0-9a-f]{64}", image)
    assert any(one.startswith("image ") and one.endswith(image.rpartition("@")[2]) for one in way.resources())


def test_job_without_a_flag_trains_a_model_in_the_bucket(way):
    done = way.type(LINES[2])
    assert done.code == 0, done.text[-8000:]
    assert "completed on all hosts" in done.text
    results = [
        one for one in way.resources() if re.match(r"object my-project-1-artifacts/runs/pretrain-\w+/result.json", one)
    ]
    assert len(results) == 1, sorted(way.resources())


def test_accounts_of_the_cluster_have_the_roles_that_they_needed_and_no_others(way):
    """Check the record of calls: the job, its checkpoints and its TensorBoard ran as the workloads' account."""
    sets = RoleSets(way.google, way.token, "my-project-1")
    # The uploader to TensorBoard may run once more after the end of `tpu run`.
    account = role_sets.WORKLOADS.account
    until(lambda: any(one.startswith("aiplatform.") for one in sets.used(account)), "the uploader's last pass")
    for component in (role_sets.WORKLOADS, role_sets.NODES, role_sets.IMAGES):
        sets.check(component)


def test_builds_of_images_need_each_permission_of_their_account(way):
    """Require builds without warnings: a build that may not write its log succeeds with one."""
    sets = RoleSets(way.google, way.token, "my-project-1")

    def works() -> bool:
        if way.type(LINES[1]).code != 0:
            return False
        return "warnings" not in max(sets.all("build").values(), key=lambda build: build["createTime"])

    assert sets.check_each_is_needed(role_sets.IMAGES.account, works) == {
        *("artifactregistry.repositories.uploadArtifacts", "logging.logEntries.create", "storage.objects.get")
    }


def test_queue_is_shown(way):
    assert way.type(LINES[3]).code == 0


def test_destroy_with_data_in_the_bucket_is_refused_and_says_what_to_type(way):
    before = way.left()
    done = way.type(LINES[5])
    assert done.code == 1
    assert "force_destroy=true" in done.text
    assert way.left() == before


def test_destroy_leaves_an_empty_project(way):
    for line in LINES[4:]:
        done = way.type(line)
        assert done.code == 0, done.text[-8000:]
    assert way.left() == set()
