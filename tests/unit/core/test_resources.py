"""Optional parts of tpukit come from the same source as tpukit, because no registry has it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.modules import name, packages
from tpukit.core import resources
from unit.cli.test_messages import MODULES, texts


def test_install_hint_of_a_checkout_names_the_checkout():
    top = Path(__file__).resolve().parents[3]
    assert resources.install_hint("tpu-vm") == f"run `pip install --editable '{top}[tpu-vm]'`"


def test_install_hint_of_a_wheel_names_the_wheel(tmp_path, monkeypatch):
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "site-packages" / "tpukit")
    about = json.dumps({"url": "file:///home/ada/tpukit-0.1.0-py3-none-any.whl"})
    monkeypatch.setattr(resources, "_origin", lambda: about)
    wheel = "'tpukit[rest] @ file:///home/ada/tpukit-0.1.0-py3-none-any.whl'"
    assert resources.install_hint("rest") == f"run `pip install {wheel}`"


@pytest.mark.parametrize("about", ["", "{}", "not JSON"])
def test_install_hint_of_an_unknown_origin_says_from_what_to_install(about, tmp_path, monkeypatch):
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "site-packages" / "tpukit")
    monkeypatch.setattr(resources, "_origin", lambda: about)
    assert resources.install_hint("rest") == "run `pip install 'WHEEL[rest]'` with the wheel or checkout of tpukit"


@packages(MODULES)
def test_message_installs_nothing_of_tpukit_from_a_registry(modules):
    said = [(name(path), text) for path in modules for text in texts(path)]
    assert [(where, text) for where, text in said if "pip install 'tpukit[" in text and "WORD" not in text] == []
