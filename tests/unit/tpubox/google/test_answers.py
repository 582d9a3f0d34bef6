"""Answers of the emulator that are kept in a file, and how tests check them."""

import pytest

from support.google_answers import check
from support.google_world import PROJECT, World
from tpubox.box import answer_log as kept_answers
from tpubox.box import cloud_components, folder


@pytest.fixture
def file(tmp_path, monkeypatch):
    file = tmp_path / "answers.jsonl"
    monkeypatch.setenv(kept_answers.VARIABLE, str(file))
    return file


def test_answer_that_google_could_not_give_fails_once_with_route_field_and_problem(file):
    kept_answers.keep("GET", f"tpu/v2/projects/{PROJECT}/locations/us-central2-b/nodes/a", {"state": "BORED"})
    with pytest.raises(AssertionError, match=r"GET tpu/v2/.*/nodes/a: Node\.state is BORED, none of .*READY"):
        check(file)
    check(file)


def test_answer_to_an_upload_is_looked_at_as_one_of_the_object(file):
    kept_answers.keep("PUT", "upload/storage/v1/b/one/o", {"size": 3})
    with pytest.raises(AssertionError, match=r"Object\.size is 3, no string"):
        check(file)


def test_every_answer_but_refusals_and_what_objects_hold_is_kept(file, tmp_path):
    with World(tmp_path / "google") as world:
        world.ask("POST", "storage/v1/b", {"name": "one"}, project=PROJECT)
        world.ask("POST", "upload/storage/v1/b/one/o", b'{"of": "anybody"}', uploadType="media", name="a.json")
        world.ask("GET", "storage/v1/b/one/o/a.json", alt="media")
        world.refusal("GET", "storage/v1/b/two")
    kept = file.read_text().splitlines()
    assert [line.partition('"answer"')[0] for line in kept] == [
        '{"method": "POST", "path": "storage/v1/b", ',
        '{"method": "POST", "path": "upload/storage/v1/b/one/o", ',
    ]
    check(file)


def test_file_that_is_full_grows_no_more_and_fails_the_test(file, monkeypatch):
    monkeypatch.setattr(kept_answers, "MOST_BYTES", 10)
    for _ in range(2):
        kept_answers.keep("GET", "storage/v1/b/one", {})
    assert file.read_text().count("\n") == 1
    with pytest.raises(AssertionError, match="answered more than is kept"):
        check(file)


def test_nothing_is_kept_unless_the_environment_says_where_and_a_sandbox_is_told_the_same(home, monkeypatch, file):
    monkeypatch.setenv("TPUKIT_HOME", str(home))
    with folder.locked("box"):
        place = folder.prepare("box")
    assert cloud_components.google(place).env[kept_answers.VARIABLE] == str(file)
    monkeypatch.delenv(kept_answers.VARIABLE)
    assert kept_answers.VARIABLE not in cloud_components.google(place).env
    kept_answers.keep("GET", "storage/v1/b/one", {})
    assert not file.exists()
