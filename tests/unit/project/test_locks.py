"""tools/locks: what builds install is fixed by version and hash, and no build installs anything else."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
BUILDS = sorted([ROOT / "Dockerfile", *ROOT.glob("deploy/*/Dockerfile"), *ROOT.glob("cloudbuild.*.yaml")])
LINE = re.compile(r"(?P<name>[a-z0-9][-a-z0-9_.]*)==(?P<version>[0-9][0-9a-z.]*) --hash=sha256:[0-9a-f]{64}")


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("locks", ROOT / "tools" / "locks.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(name: str) -> dict[str, str]:
    """Return the versions of one list by name."""
    rows = [line for line in (load().FOLDER / f"{name}.txt").read_text().splitlines() if not line.startswith("#")]
    found = [LINE.fullmatch(row) for row in rows]
    assert all(found), [row for row in rows if not LINE.fullmatch(row)]
    return {plain(one["name"]): one["version"] for one in found if one}


SETS = load().SETS


def newest(name: str) -> dict[str, str]:
    """Return the versions of constraints.txt that the newest interpreter takes."""
    lines = (ROOT / name).read_text().splitlines()
    rows = [line.split(";") for line in lines if "==" in line and "python_version <" not in line]
    return {plain(row[0].split("==")[0]): row[0].split("==")[1].strip() for row in rows}


@pytest.mark.parametrize("name", SETS)
def test_list_has_a_hash_for_each_package_and_the_version_that_was_tested(name: str) -> None:
    tested = newest("constraints.txt")
    differing = {one: version for one, version in locked(name).items() if tested.get(one, version) != version}
    assert differing == {}


@pytest.mark.parametrize("name", [name for name in SETS if name != "build"])
def test_list_has_every_direct_requirement_of_its_extras(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    waiting = [part for part in SETS[name].partition("[")[2].rstrip("]").split(",") if part]
    wanted = list(project["dependencies"])
    while waiting:
        for requirement in project["optional-dependencies"][waiting.pop()]:
            if requirement.startswith("tpukit["):
                waiting += requirement[len("tpukit[") : requirement.index("]")].split(",")
            else:
                wanted.append(requirement)
    assert {plain(re.split(r"[\[<>=; ]", requirement)[0]) for requirement in wanted} <= set(locked(name))


def test_list_for_the_wheel_has_its_build_system() -> None:
    system = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    assert {plain(re.split(r"[<>=; ]", one)[0]) for one in system} <= set(locked("build"))


@pytest.mark.parametrize("file", BUILDS, ids=lambda file: str(file.relative_to(ROOT)))
def test_build_installs_only_packages_with_a_hash_and_its_own_wheel(file: Path) -> None:
    text = file.read_text(encoding="utf-8").replace("\\\n", " ")
    installs = re.findall(r"\bpip(?: --python \S+)? install .*?(?=&&|\n|$)", text)
    assert installs or not re.search(r"\bpip\b", text)
    for command in installs:
        own = "--no-index" in command or "--no-build-isolation" in command
        lists = re.findall(r"-r \S*?([a-z]+)\.txt", command)
        assert own or ("--require-hashes" in command and set(lists) <= set(SETS) and lists), command
        assert "--no-deps" in command, command


def test_text_is_in_the_order_of_names() -> None:
    packages = [{"name": name, "version": "1", "hash": "a" * 64} for name in ("b", "a")]
    assert load().text(packages).splitlines()[2:] == [f"{name}==1 --hash=sha256:{'a' * 64}" for name in ("a", "b")]
