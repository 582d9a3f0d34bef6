"""Compiled templates: each is compiled once, and damage to the stored form does not change the text."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tpukit.jobs import render
from tpukit.jobs.plan import make
from tpukit.jobs.render import template
from tpukit.jobs.spec import Settings, loads

JOB = "{name: a, tpu: v4-16, command: [x], image: 'i:1', workdir: 'gs://bucket/runs/a'}"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("TPUKIT_HOME", str(tmp_path / "home"))
    template._environment.cache_clear()
    yield tmp_path / "home"
    template._environment.cache_clear()


def text() -> str:
    template._environment.cache_clear()
    return render.text(make(loads(JOB), Settings(), "gke"))


def compiled(home: Path) -> list[Path]:
    return sorted((home / "cache" / "templates").iterdir())


def test_text_rendered_again_is_the_same_and_compiles_nothing(home, monkeypatch):
    first = text()
    assert compiled(home)
    monkeypatch.setattr("jinja2.environment.Environment._generate", lambda *_, **__: pytest.fail("compiled again"))
    assert text() == first


def test_text_with_damaged_compiled_templates_is_the_same(home):
    first = text()
    for file in compiled(home):
        file.write_bytes(file.read_bytes()[:40])
    assert text() == first


def test_text_where_nothing_can_be_stored_is_the_same(home):
    first = text()
    folder = home / "cache" / "templates"
    for file in compiled(home):
        file.unlink()
    folder.rmdir()
    folder.write_text("no folder")
    assert text() == first


def test_text_of_a_job_loads_no_records():
    loaded = "{'msgspec', 'tpukit.jobs.records'} & set(sys.modules)"
    code = f"import sys; from tpukit.jobs import render; sys.exit(bool({loaded}))"
    env = {**os.environ, "PYTHONPATH": str(Path(render.__file__).parents[3])}
    assert subprocess.run([sys.executable, "-c", code], env=env).returncode == 0
