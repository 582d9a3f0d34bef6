"""Errors about a missing setting name the command to type, and the file and line to add."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from support.modules import name, packages
from tpukit.cli import image, team
from tpukit.core.errors import TpukitError
from tpukit.jobs import plan
from tpukit.jobs.render import jobset
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.kernel.store import mark
from tpukit.places.gke.cloud_logging import Where
from unit.cli.test_messages import MODULES, texts

VAGUE = re.compile(r"\b(?:in|into|to) the settings\b|\bin settings\.yaml\b", re.IGNORECASE)


def push() -> None:
    done = CliRunner().invoke(image.command, ["push"])
    assert isinstance(done.exception, TpukitError), done.output
    raise done.exception


def render() -> None:
    spec = JobSpec.from_json({"name": "train", "tpu": "v4-16", "command": ["true"]})
    jobset.check(plan.make(spec, Settings(), "gke"))


CASES: list[tuple[Callable[[], object], tuple[str, ...]]] = [
    (push, ("repository",)),
    (render, ("artifacts",)),
    (lambda: team._own_account("research", None, "my-project-1", None), ("artifacts",)),
    (lambda: team._own_account("research", "gs://my-bucket", None, None), ("project",)),
    (lambda: Where.of("kind-kind"), ("project",)),
]


@pytest.mark.parametrize(("act", "keys"), CASES, ids=["image", "job on gke", "team bucket", "team project", "logs"])
def test_error_about_a_missing_setting_names_the_command_the_file_and_the_line(act, keys, tmp_path, monkeypatch):
    file = tmp_path / "settings.yaml"
    monkeypatch.setenv("TPUKIT_SETTINGS", str(file))
    monkeypatch.chdir(tmp_path)
    Path("Dockerfile").touch()
    with pytest.raises(TpukitError) as raised:
        act()
    said = str(raised.value)
    for key in keys:
        assert f"`tpu settings {key} " in said and f"`{key}: " in said, said
    assert str(file) in said


def test_error_about_a_store_that_was_moved_has_the_command_that_follows_it():
    assert "`tpu settings store firestore://my-project-1`" in str(mark.moved("sqlite", "firestore://my-project-1"))


@packages(MODULES)
def test_message_names_no_settings_without_their_file(modules: list[Path]) -> None:
    """A text that mentions a setting comes from `settings.hint`, which knows the file. Docstrings may omit the file."""
    said = [(name(path), text) for path in modules for text in texts(path)]
    assert [(where, text) for where, text in said if VAGUE.search(text) and "\n" not in text and "`" in text] == []
