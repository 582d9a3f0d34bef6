"""Variables that point programs to a sandbox."""

from __future__ import annotations

import json
import urllib.request
from types import SimpleNamespace

import pytest

from tpubox.box import binaries, environment, folder
from tpubox.box.emulator import ENVIRONMENT


@pytest.fixture
def variables(tmp_path, monkeypatch):
    monkeypatch.setenv("TPUKIT_HOME", str(tmp_path))
    monkeypatch.setattr(binaries, "ensure", lambda: SimpleNamespace(program=lambda name: f"/programs/{name}"))
    with folder.locked("box"):
        place = folder.prepare("box")
    google = {"HTTPS_PROXY": "http://127.0.0.1:1", "NO_PROXY": "127.0.0.1,localhost"}
    (place.path / "google" / ENVIRONMENT).write_text(json.dumps(google))
    return environment.variables(place)


@pytest.mark.parametrize(
    ("host", "reached"),
    [
        ("registry.terraform.io", "itself"),
        ("releases.hashicorp.com", "itself"),
        ("127.0.0.1", "itself"),
        ("github.com", "proxy"),
        ("container.googleapis.com", "proxy"),
    ],
)
def test_terraform_downloads_its_providers_and_nothing_else_leaves_the_sandbox(variables, monkeypatch, host, reached):
    for name in ("HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name.lower(), raising=False)
        monkeypatch.setenv(name, variables[name])
    assert urllib.request.getproxies()["https"] == variables["HTTPS_PROXY"] != "http://127.0.0.1:1"
    assert ("itself" if urllib.request.proxy_bypass(host) else "proxy") == reached
