"""Cloud Storage of the emulator: the features that Terraform's backend and Google's clients rely on."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.google_world import PROJECT, World
from tpubox.google.wire.api import Answer, Request
from tpubox.google.wire.routing import answer as answer_of

UPLOAD = "upload/storage/v1/b/box/o"
OBJECTS = "storage/v1/b/box/o"
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1, max_size=40).filter(
    lambda name: name not in (".", "..")
)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        make_bucket(made)
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("storage")) as made:
        make_bucket(made)
        yield made


def make_bucket(world: World, **more: Any) -> None:
    world.ask("POST", "storage/v1/b", {"name": "box", "location": "us-central2", **more}, project=PROJECT)


def write(world: World, name: str, content: bytes = b"text", **query: str) -> tuple[int, Any]:
    return world.send("POST", UPLOAD, content, uploadType="media", name=name, **query)


def read(world: World, path: str, **headers: str) -> Answer:
    return answer_of(world.cloud, Request("GET", path, {"alt": "media"}, headers))


def multipart(world: World, about: dict[str, Any], content: bytes, line: bytes = b"\r\n") -> tuple[int, Any]:
    mark = b"===edge=="
    head = line.join([b"--" + mark, b"Content-Type: application/json", b"", json.dumps(about).encode()])
    body = line.join([b"--" + mark, b"Content-Type: text/plain", b"", content])
    whole = line.join([head, body, b"--" + mark + b"--", b""])
    headers = {"content-type": f'multipart/related; boundary="{mark.decode()}"'}
    answer = answer_of(world.cloud, Request("POST", UPLOAD, {"uploadType": "multipart"}, headers, whole))
    return answer.status, json.loads(answer.content)


@given(name=NAMES, content=st.binary())
def test_what_is_written_in_parts_is_read_back_under_any_name(shared, name, content):
    if b"--===edge==" in content or len(name.encode()) > 1024:
        return
    status, made = multipart(shared, {"name": name}, content)
    assert status == 200
    assert made["md5Hash"] == base64.b64encode(hashlib.md5(content).digest()).decode()
    assert made["contentType"] == "text/plain"
    answer = read(shared, f"{OBJECTS}/{quote(name, safe='')}")
    assert (answer.status, answer.content) == (200, content)
    assert answer.headers["x-goog-generation"] == made["generation"]


@given(content=st.binary(min_size=1), data=st.data())
def test_range_is_what_was_asked_for(shared, content, data):
    write(shared, "ranged", content)
    start = data.draw(st.integers(0, len(content) - 1))
    end = data.draw(st.integers(start, len(content) + 5))
    answer = read(shared, f"{OBJECTS}/ranged", range=f"bytes={start}-{end}")
    assert (answer.status, answer.content) == (206, content[start : end + 1])
    assert read(shared, f"{OBJECTS}/ranged", range=f"bytes={start}-").content == content[start:]
    last = data.draw(st.integers(1, len(content)))
    assert read(shared, f"{OBJECTS}/ranged", range=f"bytes=-{last}").content == content[-last:]


def test_range_beyond_the_end_is_refused(world):
    write(world, "short", b"abc")
    assert read(world, f"{OBJECTS}/short", range="bytes=3-").status == 416


def test_lock_is_held_by_one_alone(world):
    """Terraform's backend creates the lock if it is missing, and deletes it if it is unchanged."""
    status, held = write(world, "state/default.tflock", ifGenerationMatch="0")
    assert status == 200
    assert write(world, "state/default.tflock", ifGenerationMatch="0")[0] == 412
    path = f"{OBJECTS}/state%2Fdefault.tflock"
    assert world.send("DELETE", path, ifGenerationMatch="1")[0] == 412
    assert world.send("DELETE", path, ifGenerationMatch=held["generation"])[0] == 204
    assert write(world, "state/default.tflock", ifGenerationMatch="0")[0] == 200


def test_object_is_read_at_the_root_of_the_host(world):
    write(world, "state/default.tfstate", b"{}")
    answer = answer_of(world.cloud, Request("GET", "box/state/default.tfstate"))
    assert (answer.status, answer.content) == (200, b"{}")


@pytest.mark.parametrize(
    ("path", "status", "code", "details"),
    [
        ("box/state/none", 404, "NoSuchKey", "No such object: box/state/none"),
        ("box/<a> & b", 404, "NoSuchKey", "No such object: box/<a> & b"),
        ("other/state", 404, "NoSuchBucket", "The specified bucket does not exist."),
    ],
)
def test_refusal_at_the_root_of_the_host_is_in_xml(world, path, status, code, details):
    answer = answer_of(world.cloud, Request("GET", path))
    assert (answer.status, answer.headers["content-type"]) == (status, "application/xml; charset=UTF-8")
    error = ElementTree.fromstring(answer.content)
    assert (error.tag, error.findtext("Code"), error.findtext("Details")) == ("Error", code, details)


def test_list_folds_what_lies_behind_the_delimiter(world):
    for name in ("a", "runs/1/log", "runs/1/model", "runs/2/log", "runs/readme"):
        write(world, name)
    page = world.ask("GET", OBJECTS, prefix="runs/", delimiter="/")
    assert [one["name"] for one in page["items"]] == ["runs/readme"]
    assert page["prefixes"] == ["runs/1/", "runs/2/"]
    names, token = [], ""
    while True:
        page = world.ask("GET", OBJECTS, maxResults="2", pageToken=token)
        names += [one["name"] for one in page["items"]]
        token = page.get("nextPageToken", "")
        if not token:
            break
    assert names == ["a", "runs/1/log", "runs/1/model", "runs/2/log", "runs/readme"]
    cut = world.ask("GET", OBJECTS, startOffset="runs/1/model", endOffset="runs/readme")
    assert [one["name"] for one in cut["items"]] == ["runs/1/model", "runs/2/log"]


def test_versions_are_kept_where_the_bucket_keeps_them(world):
    write(world, "plain", b"1")
    write(world, "plain", b"2")
    assert len(world.ask("GET", OBJECTS, versions="true")["items"]) == 1
    world.ask("PATCH", "storage/v1/b/box", {"versioning": {"enabled": True}})
    _, old = write(world, "kept", b"1")
    write(world, "kept", b"2")
    assert world.send("DELETE", f"{OBJECTS}/kept")[0] == 204
    assert [one["name"] for one in world.ask("GET", OBJECTS)["items"]] == ["plain"]
    assert len(world.ask("GET", OBJECTS, versions="true", prefix="kept")["items"]) == 2
    path = f"{OBJECTS}/kept"
    first = answer_of(world.cloud, Request("GET", path, {"alt": "media", "generation": old["generation"]}))
    assert first.content == b"1"
    assert world.send("DELETE", path, generation=old["generation"])[0] == 204
    assert len(world.ask("GET", OBJECTS, versions="true", prefix="kept")["items"]) == 1


def test_bucket_with_objects_does_not_go(world):
    write(world, "a")
    assert world.refusal("DELETE", "storage/v1/b/box")[0] == 409
    world.send("DELETE", f"{OBJECTS}/a")
    assert world.send("DELETE", "storage/v1/b/box")[0] == 204
    assert world.cloud.inventory() == []


def test_checksum_that_does_not_fit_is_refused(world):
    status, answer = multipart(world, {"name": "a", "md5Hash": "AAAA"}, b"text")
    assert status == 400
    assert "doesn't match calculated md5Hash" in answer["error"]["message"]


def test_objects_are_composed_and_copied(world):
    write(world, "1", b"one")
    write(world, "2", b"two")
    world.ask("POST", f"{OBJECTS}/both/compose", {"sourceObjects": [{"name": "1"}, {"name": "2"}]})
    world.ask("POST", f"{OBJECTS}/both/rewriteTo/b/box/o/far%2Fcopy")
    assert read(world, f"{OBJECTS}/far%2Fcopy").content == b"onetwo"


def test_bucket_is_in_capitals_and_only_once(world):
    assert world.ask("GET", "storage/v1/b/box")["location"] == "US-CENTRAL2"
    again = world.refusal("POST", "storage/v1/b", {"name": "box"}, project=PROJECT)
    assert again[0] == 409
    assert world.refusal("POST", "storage/v1/b", {"name": "Box"}, project=PROJECT)[0] == 400


@pytest.mark.parametrize("word", ["true", "True"])
def test_list_of_versions_has_the_old_ones_however_yes_is_written(tmp_path, word):
    with World(tmp_path) as world:
        make_bucket(world, versioning={"enabled": True})
        write(world, "one", b"old")
        write(world, "one", b"new")
        world.ask("DELETE", f"{OBJECTS}/one")
        assert world.ask("GET", OBJECTS)["items"] == []
        assert len(world.ask("GET", OBJECTS, versions=word)["items"]) == 2


def test_composed_object_has_a_checksum_of_its_own_and_no_md5_whatever_the_caller_sends(world):
    first = write(world, "a", b"one")[1]
    write(world, "b", b"two")
    same = write(world, "whole", b"onetwo")[1]
    sources = {"sourceObjects": [{"name": "a"}, {"name": "b"}], "destination": {**first, "name": "c"}}
    made = world.ask("POST", f"{OBJECTS}/c/compose", sources)
    assert (made["crc32c"], made["componentCount"], "md5Hash" in made) == (same["crc32c"], 2, False)
    assert read(world, f"{OBJECTS}/c").headers["x-goog-hash"] == f"crc32c={same['crc32c']}"


def test_object_composed_of_composed_ones_counts_all_their_parts(world):
    write(world, "a", b"one")
    for name in ("b", "c"):
        sources = [{"name": "a"}, {"name": "a"}] if name == "b" else [{"name": "b"}, {"name": "a"}]
        made = world.ask("POST", f"{OBJECTS}/{name}/compose", {"sourceObjects": sources})
    assert made["componentCount"] == 3


@pytest.mark.parametrize("query", [{"matchGlob": "**.txt"}, {"filter": "x"}, {"softDeleted": "True"}])
def test_list_by_what_the_emulator_cannot_is_refused_rather_than_answered_with_everything(world, query):
    assert world.refusal("GET", OBJECTS, **query)[0] == 400
