"""constraints.txt: only names and versions, for every development dependency."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

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


def test_lines_mark_versions_that_older_interpreters_do_not_take() -> None:
    spec = importlib.util.spec_from_file_location("constraints", ROOT / "tools" / "constraints.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    resolved = [
        ("3.11", {"jax": "0.10", "rich": "15"}),
        ("3.12", {"jax": "0.12", "rich": "15"}),
        ("3.13", {"jax": "0.13", "rich": "15", "new": "1"}),
    ]
    assert module.lines(resolved) == [
        'jax==0.10; python_version < "3.12"',
        'jax==0.12; python_version >= "3.12" and python_version < "3.13"',
        'jax==0.13; python_version >= "3.13"',
        "new==1",
        "rich==15",
    ]
