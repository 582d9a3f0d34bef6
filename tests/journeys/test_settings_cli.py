"""`tpu settings`: every key with its meaning, value and source; errors name the file and the line to add."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tpukit.jobs.spec.settings import Settings


@pytest.fixture
def file(tpu) -> Path:
    return Path(tpu.env["TPUKIT_SETTINGS"])


def test_settings_without_a_file_show_its_path_and_every_key_with_its_meaning(tpu, file):
    done = tpu("settings")
    assert str(file) in done.stdout
    for name, one in Settings.fields.items():
        assert f"\n{name} " in done.stdout and one.description.split(";")[0][:30] in " ".join(done.stdout.split())


def test_settings_as_json_have_value_source_and_meaning_of_each_key(tpu, file):
    file.write_text("# mine\nproject: my-project-1\n")
    tpu.env["TPUKIT_STORE"] = "sqlite"
    shown = json.loads(tpu("settings", "--json").stdout)
    assert shown["file"] == str(file)
    by_key = {one["key"]: one for one in shown["settings"]}
    assert set(by_key) == set(Settings.fields)
    assert (by_key["project"]["value"], by_key["project"]["source"]) == ("my-project-1", f"{file}:2")
    assert (by_key["store"]["value"], by_key["store"]["source"]) == ("sqlite", "$TPUKIT_STORE")
    assert (by_key["zone"]["value"], by_key["zone"]["source"]) == (None, "default")
    assert all(one["meaning"] and one["example"] for one in by_key.values())


def test_setting_is_set_in_the_file_and_leaves_the_rest_of_it(tpu, file):
    file.write_text("# mine\nteam: research\n")
    assert "project: my-project-1" in tpu("settings", "project", "my-project-1").stderr
    assert file.read_text() == "# mine\nteam: research\nproject: my-project-1\n"
    tpu("settings", "queued", "false")
    assert "queued: false\n" in file.read_text()
    assert tpu("settings", "project").stdout.splitlines()[0].split() == ["project", "my-project-1"]
    tpu("settings", "--unset", "project")
    assert "project" not in file.read_text()


def test_setting_that_does_not_exist_or_cannot_have_this_value_is_misuse_and_changes_nothing(tpu, file):
    assert "project" in tpu("settings", "projct", code=2).stderr
    assert "us-central2-b" in tpu("settings", "zone", "Berlin!", code=2).stderr
    assert not file.exists()


def test_command_that_needs_a_setting_names_the_file_and_the_line_to_add(tpu, file):
    for words in (("vm", "list"), ("vm", "check-status", "team-v4-8-1")):
        said = tpu(*words, code=2).stderr
        assert str(file) in said and ("`project: my-project-1`" in said or "`zone: us-central2-b`" in said)
        assert "`tpu settings " in said


def test_job_on_tpu_vms_without_settings_names_project_and_zone_each_with_its_line(tpu, file):
    tpu.file("true")
    said = tpu("run", "train.yaml", "--place", "tpu-vm", "--dry-run", code=2).stderr
    assert (
        "zone: TPU VMs belong to a Google Cloud zone, and none is set\n  run `tpu settings zone us-central2-b`" in said
    )
    assert "project: TPU VMs belong to a Google Cloud project, and none is set\n  run `tpu settings project " in said
