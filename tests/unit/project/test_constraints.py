"""constraints.txt: only names and versions, for every development dependency. The locked files add hashes."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
PINNED = {
    path: [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    for path in (
        *(ROOT / "constraints.txt", ROOT / "tools" / "checkov.txt"),
        *(ROOT / "tests" / "bench" / "peers.txt", ROOT / "tests" / "support" / "transformers.txt"),
    )
}


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("path", PINNED, ids=lambda path: path.name)
def test_pins_are_names_and_versions_alone(path: Path) -> None:
    bound = r'python_version (?:<|>=) "3\.\d+"'
    pin = rf"[A-Za-z0-9][-A-Za-z0-9_.]*==[0-9][0-9a-z.]*(?:; {bound}(?: and {bound})?)?"
    assert [line for line in PINNED[path] if not re.fullmatch(pin, line)] == []


@pytest.mark.parametrize("extra", ["local", "sandbox", "dev"])
def test_constraints_pin_every_direct_requirement(extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {
        plain(re.split(r"[\[<>=; ]", requirement)[0])
        for requirement in [*project["dependencies"], *project["optional-dependencies"][extra]]
    } - {"tpukit"}
    assert wanted <= {plain(line.split("==")[0]) for line in PINNED[ROOT / "constraints.txt"]}


HASH = r" \\\n    --hash=sha256:[0-9a-f]{64}"


@pytest.mark.parametrize("name", ["run", "dev"])
def test_locked_versions_are_those_of_the_constraints_each_with_hashes(name: str) -> None:
    text = (ROOT / "tools" / "locked" / f"{name}.txt").read_text(encoding="utf-8")
    entries = re.findall(rf"^([^#\s].*?)((?:{HASH})+)$", text, re.MULTILINE)
    assert "".join(f"{pin}{hashes}\n" for pin, hashes in entries) == text[text.index("\n", text.index("\n") + 1) + 1 :]
    versions = {line.partition(";")[0] for line in PINNED[ROOT / "constraints.txt"]}
    assert {pin.partition(";")[0] for pin, _ in entries} <= versions


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("constraints", ROOT / "tools" / "constraints.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there for their annotations
    spec.loader.exec_module(module)
    return module


def test_locked_packages_that_macos_does_not_need_are_for_linux_alone(writer: ModuleType) -> None:
    packages = {
        "tpukit": {"requires_dist": ["click", "grain>=1; sys_platform == 'linux' and extra == 'local'", "Rich[big]"]},
        "click": {},
        "grain": {"requires_dist": ["array_record", "click"]},
        "array_record": {},
        "rich": {"requires_dist": ['pygments; extra == "big"', 'never; extra == "other"']},
        "pygments": {},
    }
    mac, linux = ({"sys_platform": name, "python_version": "3.13"} for name in ("darwin", "linux"))
    assert writer.needed(packages, "local", linux) == set(packages)
    on_mac = writer.needed(packages, "local", mac)
    assert on_mac == set(packages) - {"grain", "array_record"}
    hashes = {"click==1": ["b", "a"], "grain==2": ["c"]}
    assert writer.locked(["click==1", 'grain==2; python_version < "3.12"'], on_mac, hashes) == [
        "click==1 \\\n    --hash=sha256:a \\\n    --hash=sha256:b",
        'grain==2; python_version < "3.12" and sys_platform == "linux" \\\n    --hash=sha256:c',
    ]


def test_lines_mark_versions_that_older_interpreters_do_not_take(writer: ModuleType) -> None:
    resolved = [
        ("3.11", {"jax": "0.10", "rich": "15"}),
        ("3.12", {"jax": "0.12", "rich": "15"}),
        ("3.13", {"jax": "0.13", "rich": "15", "new": "1"}),
    ]
    assert writer.lines(resolved) == [
        'jax==0.10; python_version < "3.12"',
        'jax==0.12; python_version >= "3.12" and python_version < "3.13"',
        'jax==0.13; python_version >= "3.13"',
        "new==1",
        "rich==15",
    ]
