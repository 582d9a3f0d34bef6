"""Which Python packages pods see: those that their images have."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tpukit.sandbox.agent import image_names
from tpukit.sandbox.agent.image_packages import Views, hidden
from unit.agent_world import CPU, World


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


def test_packages_that_only_development_needs_are_in_no_image(packages: Path):
    found = hidden(packages, toolkit=True)
    assert {path for path in found if ".dist-info" not in path} == {
        *("check", "check_one.py", "google/check", "google/deep", "deep/data.txt")
    }
    assert {path for path in found if ".dist-info" in path} == {"check_tool-1.0.dist-info", "deep-1.0.dist-info"}


def test_packages_of_an_image_without_tpukit_lack_it_and_what_leads_to_it(packages: Path):
    more = hidden(packages, toolkit=False) - hidden(packages, toolkit=True)
    assert more == {"_tpukit.pth", "tpukit/_data/x.json", "tpukit-1.0.dist-info"}


def test_view_holds_links_and_no_folder_that_python_would_take_for_a_package(packages: Path, tmp_path: Path):
    views = Views(tmp_path / "views", packages)
    whole, view = views.mounts(toolkit=False)
    assert (whole.source, view.target) == (packages, str(packages))
    names = {entry.name for entry in view.source.iterdir() if not entry.name.endswith(".dist-info")}
    assert names == {"click", "jax", "libtpu.py", "google", "own"}
    assert [entry.name for entry in (view.source / "google").iterdir()] == ["cloud"]
    assert str((view.source / "click").readlink()) == f"{whole.target}/click"


def test_view_is_made_once_and_anew_when_a_package_comes(packages: Path, tmp_path: Path):
    first = Views(tmp_path / "views", packages).mounts(toolkit=True)[1].source
    inode = first.stat().st_ino
    assert Views(tmp_path / "views", packages).mounts(toolkit=True)[1].source.stat().st_ino == inode
    (packages / "new.py").touch()
    assert Views(tmp_path / "views", packages).mounts(toolkit=True)[1].source != first
    assert first.exists()  # pods that run look at it


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


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "home")
    world.client.add_pool(CPU)
    yield world
    world.close()


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
