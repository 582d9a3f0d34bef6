"""The CLI configuration that makes Terraform load its provider from the cache: many processes share one."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "tools" / "provider" / "build.py"


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Return the script as a module, with a built provider and without Terraform."""
    spec = importlib.util.spec_from_file_location("provider_build", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(module, "_source", lambda cli: "registry.terraform.io/hashicorp/google")
    monkeypatch.setattr(module, "_platform", lambda cli: "linux_amd64")
    module.cache().mkdir(parents=True)
    module.GOOGLE.binary().touch()
    return module


def test_configuration_that_is_right_is_left_alone(build):
    config = build.cli_config(may_build=False)
    assert f'path = "{build.cache() / "mirror"}"' in config.read_text()
    before = config.stat()
    assert build.cli_config(may_build=False) == config
    assert (config.stat().st_ino, config.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_configuration_that_is_another_is_replaced_and_never_seen_by_half(build):
    config = build.cli_config(may_build=False)
    right = config.read_text()
    config.write_text("another")
    with config.open() as reading:
        build.cli_config(may_build=False)
        assert reading.read() == "another"  # open files keep the old content
    assert config.read_text() == right
    assert sorted(one.name for one in config.parent.iterdir()) == ["mirror", build.GOOGLE.name, "terraform.rc"]
