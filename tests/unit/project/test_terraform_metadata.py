"""Each Terraform module has metadata that catalogues of modules read, and it says what the module takes and gives."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

MODULES = sorted(
    path.parent for path in (Path(__file__).resolve().parents[3] / "terraform" / "modules").glob("*/main.tf")
)


def declared(folder: Path, kind: str) -> dict[str, str]:
    return dict(re.findall(rf'^{kind} "(\w+)" \{{\n(.*?)^\}}', (folder / f"{kind}s.tf").read_text(), re.M | re.S))


@pytest.mark.parametrize("folder", MODULES, ids=lambda folder: folder.name)
def test_metadata_names_every_variable_and_output_and_which_are_required(folder: Path) -> None:
    found: dict[str, Any] = yaml.safe_load((folder / "metadata.yaml").read_text())
    assert (found["kind"], found["metadata"]["name"]) == ("BlueprintMetadata", folder.name.replace("_", "-"))
    interfaces = found["spec"]["interfaces"]
    variables = {one["name"]: one for one in interfaces["variables"]}
    blocks = declared(folder, "variable")
    assert list(variables) == list(blocks)
    for name, block in blocks.items():
        assert variables[name].get("required", False) == ("\n  default" not in f"\n{block}"), name
        assert f"type = {variables[name]['varType']}" in " ".join(block.split()), name
    assert [one["name"] for one in interfaces["outputs"]] == list(declared(folder, "output"))
    assert found["spec"]["requirements"]["services"] or folder.name == "tpu_shapes"
