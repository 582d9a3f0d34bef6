"""The environment of the TPU compiler: early refusals, and cleanup after a failed build."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.waiting import PATIENCE
from tpukit.core.errors import Denied, Invalid, Transient
from tpukit.fit import environment

NOWHERE = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TPUKIT_HOME", str(tmp_path))
    for name, value in NOWHERE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    return tmp_path / "cache" / "fit"


def left(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.suffix != ".lock")


def test_build_without_a_package_index_says_so_and_leaves_nothing(cache: Path) -> None:
    said: list[str] = []
    with pytest.raises(Transient, match="could not be downloaded"):
        environment.make(said.append)
    assert left(cache) == []
    assert "1,360 MB on disk" in said[0]
    assert environment.find() is None


def test_build_on_a_full_disk_is_refused_before_it_begins(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    little = shutil.disk_usage("/")._replace(free=100 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: little)
    with pytest.raises(Denied, match=r"needs 2,000 MB in .* and 100 MB are free"):
        environment.make(lambda _text: None)
    assert left(cache) == []


@pytest.mark.parametrize(("system", "machine"), [("darwin", "arm64"), ("linux", "aarch64")])
def test_machine_without_a_compiler_is_refused(
    system: str, machine: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = os.uname()
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((*here[:4], machine)))
    with pytest.raises(Invalid, match="only for Linux on x86-64"):
        environment.make(lambda _text: None)


def test_interrupt_while_building_leaves_nothing(cache: Path, tmp_path: Path) -> None:
    """Press Ctrl-C while pip waits for an index that does not respond."""
    env = {**os.environ, "TPUKIT_HOME": str(tmp_path), "PIP_INDEX_URL": "http://192.0.2.1/simple", "PIP_RETRIES": "50"}
    del env["PIP_NO_INDEX"]
    code = "from tpukit.fit import environment; environment.make(lambda text: print(text, flush=True))"
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout
    try:
        assert "installing JAX" in process.stdout.readline()
        until = time.monotonic() + PATIENCE
        while not list(cache.glob("building-*/pip.log")) and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert "KeyboardInterrupt" in errors
    assert left(cache) == []


def test_list_of_versions_has_a_compiler_and_one_version_of_each_package() -> None:
    lines = [line for line in environment.CONSTRAINTS.read_text().splitlines() if not line.startswith("#")]
    names = [line.partition("==")[0] for line in lines]
    assert all("==" in line for line in lines)
    assert {"jax", "jaxlib", "libtpu"} <= set(names)
    assert len(names) == len(set(names))
