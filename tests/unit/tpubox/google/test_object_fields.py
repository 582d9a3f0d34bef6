"""Objects of the emulator's Cloud Storage: fields that callers may set, reads, and preconditions."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.google_world import PROJECT, World
from tpubox.google.wire.api import Answer, Request
from tpubox.google.wire.routing import answer as answer_of

UPLOAD = "upload/storage/v1/b/box/o"
OBJECTS = "storage/v1/b/box/o"
TEXT = b"text " * 100
PACKED = gzip.compress(TEXT)
ABOUT = {
    "cacheControl": "no-store",
    "contentDisposition": "inline",
    "contentEncoding": "gzip",
    "contentLanguage": "de",
    "contentType": "text/plain",
    "metadata": {"a": "b"},
}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        made.ask("POST", "storage/v1/b", {"name": "box", "location": "us-central2"}, project=PROJECT)
        yield made


def write(world: World, name: str = "one", content: bytes = b"text", **about: Any) -> Any:
    """Upload an object with metadata, which is sent before the content."""
    query = {"uploadType": "resumable", "name": name}
    begun = answer_of(world.cloud, Request("POST", UPLOAD, query, {}, json.dumps(about).encode()))
    session = {"upload_id": begun.headers["location"].rpartition("upload_id=")[2]}
    return json.loads(answer_of(world.cloud, Request("PUT", UPLOAD, session, {}, content)).content)


def read(world: World, path: str = f"{OBJECTS}/one", **headers: str) -> Answer:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return answer_of(world.cloud, Request("GET", path, {"alt": "media"}, sent))


PATHS = pytest.mark.parametrize("path", [f"{OBJECTS}/one", f"download/{OBJECTS}/one", "box/one"])


@PATHS
def test_packed_object_is_unpacked_for_who_does_not_take_it_packed(world, path):
    write(world, content=PACKED, contentEncoding="gzip")
    answer = read(world, path, range="bytes=0-3")
    assert (answer.status, answer.content, "content-encoding" in answer.headers) == (200, TEXT, False)
    stored = [answer.headers[f"x-goog-stored-content-{name}"] for name in ("encoding", "length")]
    assert stored == ["gzip", str(len(PACKED))]


@PATHS
def test_packed_object_stays_packed_for_who_takes_it(world, path):
    write(world, content=PACKED, contentEncoding="gzip")
    answer = read(world, path, accept_encoding="deflate, gzip")
    assert (answer.status, answer.content, answer.headers["content-encoding"]) == (200, PACKED, "gzip")
    assert read(world, path, accept_encoding="gzip", range="bytes=0-3").content == PACKED[:4]


def test_packed_object_that_is_not_to_be_transformed_stays_packed(world):
    write(world, content=PACKED, contentEncoding="gzip", cacheControl="public, no-transform")
    answer = read(world)
    assert (answer.content, answer.headers["content-encoding"]) == (PACKED, "gzip")
    assert answer.headers["cache-control"] == "public, no-transform"


def test_object_that_is_only_said_to_be_packed_is_read_as_it_is(world):
    write(world, content=b"plain", contentEncoding="gzip")
    assert (read(world).status, read(world).content) == (200, b"plain")


def test_encoding_may_be_said_in_the_query(world):
    world.ask("POST", UPLOAD, PACKED, uploadType="media", name="one", contentEncoding="gzip")
    assert world.ask("GET", f"{OBJECTS}/one")["contentEncoding"] == "gzip"


@pytest.mark.parametrize("way", ["rewriteTo", "copyTo"])
def test_copy_that_nobody_describes_is_described_as_its_source(world, way):
    write(world, content=PACKED, **ABOUT)
    world.ask("POST", f"{OBJECTS}/one/{way}/b/box/o/copy")
    assert world.ask("GET", f"{OBJECTS}/copy").items() >= ABOUT.items()


def test_copy_that_somebody_describes_has_that_description_alone(world):
    write(world, content=PACKED, **ABOUT)
    made = world.ask("POST", f"{OBJECTS}/one/rewriteTo/b/box/o/copy", {"contentType": "a/b", "md5Hash": "x"})[
        "resource"
    ]
    assert made["contentType"] == "a/b"
    assert not {"cacheControl", "contentEncoding", "metadata"} & set(made)


def test_copy_is_made_of_the_version_that_is_asked_for(world):
    world.ask("PATCH", "storage/v1/b/box", {"versioning": {"enabled": True}})
    old = write(world, content=b"old")
    write(world, content=b"new")
    world.ask("POST", f"{OBJECTS}/one/rewriteTo/b/box/o/copy", sourceGeneration=old["generation"])
    assert read(world, f"{OBJECTS}/copy").content == b"old"
    assert world.refusal("POST", f"{OBJECTS}/one/copyTo/b/box/o/copy", sourceGeneration="1")[0] == 404


def test_update_replaces_what_a_patch_leaves(world):
    write(world, **ABOUT)
    patched = world.ask("PATCH", f"{OBJECTS}/one", {"metadata": {"c": "d"}})
    assert patched["metadata"] == {"a": "b", "c": "d"}
    updated = world.ask("PUT", f"{OBJECTS}/one", {"metadata": {"e": "f"}})
    assert updated["metadata"] == {"e": "f"}
    assert not {"cacheControl", "contentEncoding", "contentType"} & set(updated)
    assert read(world).headers["content-type"] == "application/octet-stream"


@pytest.mark.parametrize("method", ["PATCH", "PUT"])
def test_change_passes_over_what_is_not_the_callers_to_say(world, method):
    made = write(world)
    own = {"md5Hash": "x", "crc32c": "y", "timeCreated": "1970-01-01T00:00:00Z", "size": "7", "storageClass": "ARCHIVE"}
    changed = world.ask(method, f"{OBJECTS}/one", {**own, "timeDeleted": "1970-01-01T00:00:00Z"})
    assert {key: changed[key] for key in own} == {key: made[key] for key in own}
    assert "timeDeleted" not in changed


def test_upload_passes_over_what_is_not_the_callers_to_say(world):
    made = write(world, timeDeleted="1970-01-01T00:00:00Z", componentCount=7, owner={"entity": "me"})
    assert not {"timeDeleted", "componentCount", "owner"} & set(made)


def test_condition_on_another_generation_fails_where_there_is_no_object(world):
    query = {"uploadType": "media", "name": "one", "ifGenerationNotMatch": "5"}
    assert world.refusal("POST", UPLOAD, b"", **query)[:2] == (412, "conditionNotMet")
    write(world)
    world.ask("POST", UPLOAD, b"", **query)


@pytest.mark.parametrize(("method", "status"), [("GET", 304), ("PATCH", 412), ("DELETE", 412)])
def test_condition_on_another_generation_fails_in_the_way_of_the_request(world, method, status):
    made = write(world)
    assert world.send(method, f"{OBJECTS}/one", None, ifGenerationNotMatch=made["generation"])[0] == status


def test_object_is_composed_on_the_conditions_of_its_sources(world):
    generation = write(world)["generation"]

    def compose(**source: Any) -> int:
        return world.send("POST", f"{OBJECTS}/both/compose", {"sourceObjects": [{"name": "one", **source}]})[0]

    assert compose(objectPreconditions={"ifGenerationMatch": "1"}) == 412
    assert compose(generation="1") == 404
    assert compose(generation=generation, objectPreconditions={"ifGenerationMatch": generation}) == 200


def test_source_without_a_name_is_refused(world):
    assert world.refusal("POST", f"{OBJECTS}/both/compose", {"sourceObjects": [{}]})[:2] == (400, "required")


@pytest.mark.parametrize("field", ["generation", "metageneration"])
def test_condition_in_a_header_holds_at_the_root_of_the_host(world, field):
    made = write(world)
    assert read(world, "box/one", **{f"x_goog_if_{field}_match": "7"}).status == 412
    assert read(world, "box/one", **{f"x_goog_if_{field}_match": made[field]}).status == 200
    assert read(world, "box/one", if_none_match=made["etag"]).status == 304
