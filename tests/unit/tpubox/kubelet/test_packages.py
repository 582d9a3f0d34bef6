"""Python packages that pods see: those of their images."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support.agent_world import World, with_cpu_node
from tpubox.kubelet import image_names
from tpubox.kubelet.image_packages import not_in_image


def install(
    packages: Path, name: str, *files: str, requires: tuple[str, ...] = (), extras: tuple[str, ...] = ()
) -> None:
    info = f"{name.replace('-', '_')}-1.0.dist-info"
    lines = [f"Name: {name}", "Version: 1.0", *(f"Provides-Extra: {extra}" for extra in extras)]
    lines += [f"Requires-Dist: {one}" for one in requires]
    for file in (*files, f"{info}/METADATA", f"{info}/RECORD"):
        (packages / file).parent.mkdir(parents=True, exist_ok=True)
        (packages / file).touch()
    (packages / info / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", *lines, ""]))
    everything = [*files, f"{info}/METADATA", f"{info}/RECORD", "../../../bin/command"]
    (packages / info / "RECORD").write_text("".join(f"{file},,\n" for file in everything))


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    folder = tmp_path / "site-packages"
    requires = (
        "click>=8",
        'Check.Tool; extra == "dev"',
        'tpukit[train]; extra == "dev"',
        'jax[tpu]>=1; extra == "train"',
    )
    install(folder, "tpukit", "_tpukit.pth", "tpukit/_data/x.json", requires=requires, extras=("dev", "train"))
    install(folder, "click", "click/__init__.py")
    install(
        folder, "jax", "jax/__init__.py", requires=("libtpu; extra == 'tpu' and python_version > '3'",), extras=("tpu",)
    )
    install(folder, "libtpu", "libtpu.py")
    install(
        folder,
        "check-tool",
        "check/__init__.py",
        "check_one.py",
        "google/check/__init__.py",
        requires=("click", "deep"),
    )
    install(folder, "deep", "google/deep/__init__.py", "deep/data.txt")
    install(folder, "google-cloud", "google/cloud/__init__.py")
    install(folder, "users-own", "own/__init__.py")
    return folder


def absent(packages: Path, *, toolkit: bool) -> set[str]:
    return {str(Path(path).relative_to(packages)) for path in not_in_image(packages, toolkit=toolkit)}


def test_packages_that_only_development_needs_are_in_no_image(packages: Path):
    assert absent(packages, toolkit=True) == {
        *("check", "check_one.py", "check_tool-1.0.dist-info", "google/check"),
        *("deep", "deep-1.0.dist-info", "google/deep"),
    }


def test_packages_of_an_image_without_tpukit_lack_it_and_what_leads_to_it(packages: Path):
    more = absent(packages, toolkit=False) - absent(packages, toolkit=True)
    assert more == {"_tpukit.pth", "tpukit", "tpukit-1.0.dist-info"}


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("python:3.13", False),
        ("docker.io/library/python:3.13-slim", False),
        ("busybox", False),
        ("us-docker.pkg.dev/cloud-tpu-images/jax-ai-image/tpu:latest", False),
        ("us-docker.pkg.dev/my-project/images/train:1", True),
        ("us-docker.pkg.dev/my-project/images/python:1", True),
        ("image", True),
    ],
)
def test_image_of_others_has_no_tpukit(image: str, expected: bool):
    assert image_names.has_tpukit(image) is expected


world = pytest.fixture(name="world")(with_cpu_node)


def test_pod_finds_what_its_image_has_and_nothing_else(world: World):
    code = """
import importlib.util, sys
found = [name for name in sys.argv[1:] if importlib.util.find_spec(name)]
import click, google.auth
print(*found)
"""
    names = ["tpukit", "click", "pytest", "hypothesis", "mypy", "numpy"]
    world.pod("python", "-c", code, *names, name="own", image="us-docker.pkg.dev/my-project/images/train:1")
    world.pod("python3", "-c", code, *names, name="public", image="python:3.13")
    world.pod(sys.executable, "-c", "import pytest", name="dev")
    world.phase("Succeeded", name="own")
    assert world.log("own") == "tpukit click numpy\n"
    world.phase("Succeeded", name="public")
    assert world.log("public") == "click numpy\n"
    world.phase("Failed", name="dev")
    assert "ModuleNotFoundError: No module named 'pytest'" in world.log("dev")


def test_program_that_may_read_nothing_but_its_interpreter_reads_the_packages_of_it(world: World):
    """Programs of the queue do this. Links that led out of the folder were once unreadable to them."""
    code = """
from tpukit.host.confinement import Limits, confine
print(*(layer for layer in confine(Limits(0, 10_000, 1 << 20), []) if layer.startswith("files")))
import click
print("read")
"""
    world.pod("python", "-c", code)
    world.phase("Succeeded", "Failed")
    assert world.log().splitlines()[-1] == "read"
