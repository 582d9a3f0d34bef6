"""The user's settings file."""

from __future__ import annotations

import pytest

from tpukit.core.errors import Invalid
from tpukit.jobs.spec import Settings, settings

FULL = """\
team: research
context: gke_my-project-1_us-central2_tpu-cluster
project: my-project-1
region: us-central2
zone: us-south1-ai1b
image: us-central1-docker.pkg.dev/my-project-1/tpu-cluster/train:1
repository: us-central1-docker.pkg.dev/my-project-1/tpu-cluster
artifacts: gs://my-artifacts/
tensorboard: projects/my-project-1/locations/us-central1/tensorboards/123
tools_image: us-docker.pkg.dev/my-project-1/tools/tpukit:1
service_account: trainer
store: firestore://my-project-1/team-a
inventory_sheet: 1AbC-dEf_2gHiJk
runtime_version: tpu-ubuntu2204-base
queued: false
setup: [pip, install, -r, requirements.txt]
ssh_user: ada
ssh_key: ~/.ssh/google_compute_engine
external_ips: false
aliases: {wu: config.training.warmup_steps}
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "settings.yaml"
    monkeypatch.setenv("TPUKIT_SETTINGS", str(path))
    return path


def test_load_without_a_file_gives_the_defaults(file):
    assert settings.load() == Settings()
    assert (Settings().team, Settings().service_account, Settings().artifacts) == ("tpu-training", "cloud-tpu-sa", None)


@pytest.mark.parametrize("text", ["", "# all of it\n# commented out\n", "team:\n"])
def test_load_file_that_says_nothing_gives_the_defaults(file, text):
    file.write_text(text)
    assert settings.load() == Settings()


def test_load_full_file_keeps_every_field_through_json(file):
    file.write_text(FULL)
    found = settings.load()
    assert found.artifacts == "gs://my-artifacts"
    assert found.aliases == {"wu": "config.training.warmup_steps"}
    assert set(found.to_json()) == set(Settings.fields)
    assert Settings.from_json(found.to_json()) == found


def test_path_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("TPUKIT_SETTINGS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert settings.path() == tmp_path / "config" / "tpukit" / "settings.yaml"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert settings.path() == tmp_path / ".config" / "tpukit" / "settings.yaml"
    monkeypatch.setenv("TPUKIT_SETTINGS", "elsewhere.yaml")
    assert str(settings.path()) == "elsewhere.yaml"


def test_load_wrong_file_names_every_line(file):
    file.write_text(
        "teem: a\nproject: X\naliases:\n  lr: training.rate\n  slices: config.a\nartifacts: /tmp\nteam: a\nteam: b\n"
    )
    with pytest.raises(Invalid) as error:
        settings.load()
    assert str(error.value) == (
        f"{file}:1: there is no key 'teem'\n"
        "  write team\n"
        f"{file}:2: project: 'X' is not allowed\n"
        "  write the id of the project, such as my-project-1\n"
        f"{file}:4: aliases.lr: 'training.rate' is not allowed\n"
        "  write config.NAME, such as config.training.learning_rate\n"
        f"{file}:5: aliases.slices: 'slices' is a field of the job file\n"
        "  use another name\n"
        f"{file}:6: artifacts: '/tmp' is not allowed\n"
        "  write gs://BUCKET or gs://BUCKET/PATH\n"
        f"{file}:8: the key 'team' occurs twice\n"
        f"  keep one of them; the other is at {file}:7"
    )


def test_load_file_that_is_a_list_says_how_to_start(file):
    file.write_text("- team\n")
    with pytest.raises(Invalid, match="a settings file has lines of the form key: value"):
        settings.load()


def test_store_is_what_the_environment_says_or_else_the_file(file, monkeypatch):
    monkeypatch.delenv("TPUKIT_STORE", raising=False)
    assert settings.store() == ""
    file.write_text("store: firestore://my-project-1\n")
    assert settings.store() == "firestore://my-project-1"
    monkeypatch.setenv("TPUKIT_STORE", "sqlite")
    assert settings.store() == "sqlite"


def test_store_that_there_is_none_of_names_the_line(file):
    file.write_text("store: postgres://x\n")
    with pytest.raises(Invalid, match=r"settings.yaml:1: store: .* is not allowed\n  write sqlite, or firestore://"):
        settings.load()


def test_save_into_no_file_makes_one_that_loads(file):
    assert settings.save({"team": "vision", "artifacts": "gs://my-runs"}) == {
        "team": "vision",
        "artifacts": "gs://my-runs",
    }
    assert settings.load() == Settings(team="vision", artifacts="gs://my-runs")


def test_save_leaves_comments_order_and_everything_else_as_it_was(file):
    file.write_text("# mine\nteam: a  # ours\n\naliases: {wu: config.x}\nproject:\n  my-project-1\n# end\n")
    settings.save({"project": "my-project-2", "image": "a/b:1"})
    assert file.read_text() == (
        "# mine\nteam: a  # ours\n\naliases: {wu: config.x}\nproject: my-project-2\n# end\nimage: a/b:1\n"
    )


def test_save_what_is_there_already_touches_nothing(file):
    file.write_text("team: 'vision'\n")
    before = file.stat()
    assert settings.save({"team": "vision"}) == {}
    assert file.stat() == before


@pytest.mark.parametrize("text", ["{team: a}\n", "team: a\n...\n"])
def test_save_into_a_file_of_another_shape_says_what_to_write_and_changes_nothing(file, text):
    file.write_text(text)
    with pytest.raises(Invalid, match="write into it\n  project: my-project-1"):
        settings.save({"project": "my-project-1"})
    assert file.read_text() == text


def test_save_value_that_no_setting_may_have_is_refused_and_changes_nothing(file):
    with pytest.raises(Invalid, match="project"):
        settings.save({"project": "My Project"})
    assert not file.exists()
