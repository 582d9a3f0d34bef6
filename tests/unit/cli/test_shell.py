"""`tpu` in a shell: completion of commands and jobs, colours only at a terminal, 80 columns."""

from __future__ import annotations

import subprocess

import pytest
from click.testing import CliRunner
from rich.console import Console

from tpukit.cli import command, context
from tpukit.jobs.reasons import State
from tpukit.jobs.records import JOBS, Job
from tpukit.jobs.report import tables


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("TPUKIT_HOME", str(tmp_path))
    monkeypatch.setenv("TPUKIT_SETTINGS", str(tmp_path / "settings.yaml"))
    context.store.cache_clear()
    yield context.store()
    context.store().close()
    context.store.cache_clear()


def completed(monkeypatch, *words: str) -> list[str]:
    monkeypatch.setenv("_TPU_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join(["tpu", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    done = CliRunner().invoke(command, prog_name="tpu", complete_var="_TPU_COMPLETE")
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("verb", ["show", "logs", "stop", "resume", "rerun", "forget", "tag", "exec", "wait"])
def test_job_ids_are_completed(store, monkeypatch, verb):
    for name in ("pretrain-a", "pretrain-b", "other"):
        store.create(JOBS, name, Job(name, "local", "t", "me", 1.0, {}))
    assert completed(monkeypatch, "job", verb, "pre") == ["pretrain-a", "pretrain-b"]


def test_commands_and_states_are_completed(store, monkeypatch):
    assert "logs" in completed(monkeypatch, "job", "lo")
    assert completed(monkeypatch, "job", "list", "--state", "fa") == ["failed"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_the_script_of_the_shell(shell, tmp_path):
    done = CliRunner().invoke(command, ["completion", shell])
    assert done.exit_code == 0
    assert f"_TPU_COMPLETE={shell}_complete" in done.stdout
    if shell == "bash":
        (tmp_path / "script").write_text(done.stdout)
        subprocess.run(["bash", "-n", str(tmp_path / "script")], check=True)


def test_no_color_reaches_click_and_rich(monkeypatch, capsys):
    import sys

    from tpukit import cli

    given = []
    monkeypatch.setattr(cli.command, "main", lambda *words, **named: given.append(named["color"]))
    monkeypatch.setattr(sys, "argv", ["tpu"])
    for value in ("1", ""):
        monkeypatch.setenv("NO_COLOR", value)
        cli._call()
    assert given == [False, None]
    monkeypatch.setenv("NO_COLOR", "1")
    assert Console(force_terminal=True).no_color


def test_jobs_at_80_columns_are_shown_with_their_whole_names():
    names = ["a-name-that-takes-all-sixty-letters-that-a-job-may-have-abcde", "short-abcde"]
    jobs = [
        Job(name, "gke", "t", "ada", 1.0, {"spec": {"tpu": "v4-16", "slices": 2}}, ("a-tag",), State.RUNNING)
        for name in names
    ]
    console = Console(width=80, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(tables.jobs(jobs, 100.0, owners=True))
    lines = captured.get().splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert all(any(name in line for line in lines) for name in names)
