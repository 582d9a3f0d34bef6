"""The result of `pip install tpukit`: everything that `tpu` needs, without a checkout."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from support.waiting import PATIENCE, until

CHECKOUT = Path(__file__).resolve().parents[3]

JOB = """\
name: hello
tpu: v5e-1
command: [python, -c, "print('trained', flush=True)"]
image: us-docker.pkg.dev/project/repository/train:1
workdir: {workdir}
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    done = subprocess.run(build, cwd=CHECKOUT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a virtual environment with the wheel in it.

    It borrows only the packages that tpukit needs: a path in a .pth file does not load the .pth files there, so the
    checkout of an editable install stays out.
    """
    venv = tmp_path_factory.mktemp("elsewhere") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(venv / "bin" / "python")]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return venv


@pytest.fixture
def tpu(installed: Path, home: Path, tmp_path: Path) -> Run:
    return Run(installed, home, tmp_path)


class Run:
    """The installed `tpu`, called from a folder that holds only the job file."""

    def __init__(self, venv: Path, home: Path, folder: Path) -> None:
        self.venv, self.cwd = venv, folder / "cwd"
        self.cwd.mkdir()
        self.env = {"PATH": os.environ["PATH"], "HOME": str(home), "TPUKIT_HOME": str(home)}

    def __call__(self, *arguments: str) -> str:
        return self.program([str(self.venv / "bin" / "tpu"), *arguments])

    def program(self, argv: Sequence[str]) -> str:
        done = subprocess.run(argv, cwd=self.cwd, env=self.env, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout

    def job(self, workdir: str = "gs://bucket/runs/hello") -> str:
        (self.cwd / "job.yaml").write_text(JOB.format(workdir=workdir), encoding="utf-8")
        return "job.yaml"


def test_wheel_carries_templates_catalogue_and_terraform(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"tpukit/catalogue/tpus.json", "tpukit/catalogue/prices.json"} <= names
    for folder, patterns in {
        "jobset": ["*.j2", "*.sh"],
        "kueue": ["*.yaml", "*.j2"],
        "terraform": ["*.tf", "modules/**/*.tf", "modules/**/*.json"],
    }.items():
        files = [path for pattern in patterns for path in (CHECKOUT / folder).glob(pattern)]
        assert files
        assert {f"tpukit/_data/{path.relative_to(CHECKOUT)}" for path in files} <= names


def test_wheel_carries_its_licence_and_nothing_stray(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.endswith("licenses/LICENSE") for name in names)
    strays = ("__pycache__", ".terraform/", ".tfstate", "tests/unit", ".pyc")
    assert [name for name in names if any(stray in name for stray in strays)] == []


def test_installed_tpu_cannot_see_the_checkout(tpu: Run) -> None:
    code = "import sys, tpukit; print(tpukit.__file__); print(*sys.path, sep='\\n')"
    where, *paths = tpu.program([str(tpu.venv / "bin" / "python"), "-P", "-c", code]).splitlines()
    assert Path(where).is_relative_to(tpu.venv)
    assert str(CHECKOUT / "tools") not in paths


def test_installed_tpu_lists_a_slice(tpu: Run) -> None:
    (slice_,) = json.loads(tpu("catalogue", "v4-32", "--json"))
    assert (slice_["topology"], slice_["hosts"]) == ("2x2x4", 4)


def test_installed_tpu_prints_the_schema(tpu: Run) -> None:
    assert "slices" in json.loads(tpu("job", "schema"))["properties"]


def test_installed_tpu_renders_as_the_checkout_does(tpu: Run) -> None:
    elsewhere = tpu("job", "render", tpu.job())
    here = [sys.executable, "-m", "tpukit", "job", "render", "job.yaml"]
    tpu.env["PYTHONPATH"] = str(CHECKOUT / "tools")
    assert "kind: JobSet" in elsewhere
    assert elsewhere == tpu.program(here)


def test_installed_tpu_runs_a_job(tpu: Run, tmp_path: Path) -> None:
    job_id = tpu("run", tpu.job(workdir=str(tmp_path / "work"))).strip()
    assert tpu("job", "logs", job_id).splitlines() == ["slice-0-0: trained"]
    assert json.loads(tpu("job", "show", job_id, "--json"))["state"] == "completed"


READ_ONLY = """\
import os, sys
def refuse(event, words):
    writes = event == "open" and isinstance(words[2], int) and words[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if event in ("os.mkdir", "os.remove", "os.rename") or writes:
        if isinstance(words[0], str) and not words[0].startswith((os.environ["TMPDIR"], "/dev/")):
            raise OSError(30, "Read-only file system", words[0])
sys.addaudithook(refuse)
"""


@pytest.fixture(scope="module")
def image(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment like the one that deploy/base/Dockerfile installs.

    It has the wheel and the packages of its extra, and no others. Nothing outside TMPDIR is writable.
    """
    venv = tmp_path_factory.mktemp("image") / "opt"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(venv / "bin" / "python")]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    for package in _needed("tpukit", "provisioner").values():
        for file in package.files or ():
            source, target = Path(str(package.locate_file(file))), packages / file
            if ".." in file.parts or "__pycache__" in file.parts or target.exists():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source)
    (packages / "sitecustomize.py").write_text(READ_ONLY, encoding="utf-8")
    return venv


def _needed(name: str, *extras: str) -> dict[str, Distribution]:
    """Return the packages that pip would install with a package, by name, without that package."""
    needed: dict[str, Distribution] = {}
    waiting = [(name, extras)]
    while waiting:
        name, extras = waiting.pop()
        for text in distribution(name).requires or ():
            one = Requirement(text)
            if one.marker and not any(one.marker.evaluate({"extra": extra}) for extra in (*extras, "")):
                continue
            if one.name == "tpukit" or one.name not in needed or one.extras:
                waiting.append((one.name, tuple(one.extras)))
            if one.name != "tpukit":
                needed[one.name] = distribution(one.name)
    return needed


def test_image_of_the_provisioner_installs_what_the_test_of_it_does() -> None:
    lines = (CHECKOUT / "deploy" / "base" / "Dockerfile").read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith("FROM ") for line in lines) == 2
    assert "USER 65532" in lines
    assert any("--require-hashes" in line and "/locks/provisioner.txt" in line for line in lines)
    assert 'CMD ["tpu", "provisioner", "run", "--log", "json"]' in lines


def test_image_of_the_provisioner_runs_with_the_packages_it_installs_and_a_root_that_is_read_only(
    image: Path, tmp_path: Path
) -> None:
    """The cluster and Google are unreachable: the provisioner reports that, stays alive, and exits on SIGTERM."""
    kubeconfig = tmp_path / "kubeconfig"
    user = {"name": "u", "user": {"token": "t"}}
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    parts = {"clusters": [cluster], "users": [user], "contexts": [context], "current-context": "x"}
    kubeconfig.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **parts}), encoding="utf-8")
    env = {
        **{"PATH": str(image / "bin"), "HOME": str(tmp_path), "TPUKIT_HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
        **{"PYTHONDONTWRITEBYTECODE": "1", "KUBECONFIG": str(kubeconfig)},
        **{"GOOGLE_CONTAINER_CUSTOM_ENDPOINT": "http://127.0.0.1:1/v1/", "GOOGLE_OAUTH_ACCESS_TOKEN": "t"},
    }
    tpu = str(image / "bin" / "tpu")
    where = ("--project", "p", "--location", "us-central2-b", "--cluster", "c")
    log = tmp_path / "log"
    with log.open("w") as opened:
        argv = [tpu, "provisioner", "run", "--log", "json", "--port", "0", *where]
        process = subprocess.Popen(argv, env=env, cwd=image, stderr=opened)
    try:
        until(lambda: "drives node pools" in log.read_text() or process.poll() is not None, log.read_text)
        port = re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text())
        assert port, log.read_text()
        check = [tpu, "provisioner", "check", "live", "--port", port[1]]
        done = subprocess.run(check, env=env, cwd=image, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
    finally:
        process.terminate()
        assert process.wait(PATIENCE) == 0, log.read_text()
    assert "Traceback" not in log.read_text()
    assert "Read-only" not in log.read_text()
