"""Buckets of the emulator's Cloud Storage: their names and the fields that callers may set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.google_world import PROJECT, World

BUCKET = "storage/v1/b/box"
UNIFORM = {"iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}}}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


def make(world: World, query: dict[str, str] | None = None, **more: Any) -> tuple[int, Any]:
    return world.send("POST", "storage/v1/b", {"name": "box", **more}, project=PROJECT, **(query or {}))


def rule(kind: str = "Delete", storage_class: str | None = None, **condition: Any) -> dict[str, Any]:
    action = {"type": kind, **({"storageClass": storage_class} if storage_class else {})}
    return {"rule": [{"action": action, "condition": condition}]}


REFUSED: list[dict[str, Any]] = [
    {"location": "us-nowhere9"},
    {"location": "us-central2-b"},
    {"storageClass": "FAST"},
    {"storageClass": "REGIONAL", "location": "EU"},
    {"storageClass": "MULTI_REGIONAL", "location": "us-east1"},
    {"softDeletePolicy": {"retentionDurationSeconds": "60"}},
    {"softDeletePolicy": {"retentionDurationSeconds": str(91 * 86_400)}},
    {"lifecycle": rule("Remove", age=1)},
    {"lifecycle": rule(age=-5)},
    {"lifecycle": rule("SetStorageClass", age=5)},
    {"lifecycle": rule("SetStorageClass", "FAST", age=5)},
    {"labels": {"Bad Key": "VAL"}},
    {"labels": {"key": "VAL"}},
    {"labels": {"1key": "value"}},
    {"labels": {"key": "a.b"}},
    {"labels": {"k" * 64: ""}},
    {"labels": {f"key-{number}": "" for number in range(65)}},
]
TAKEN: list[dict[str, Any]] = [
    {"location": "europe-west4"},
    {"location": "eu"},
    {"location": "NAM4"},
    {"location": "us", "customPlacementConfig": {"dataLocations": ["US-EAST1", "US-WEST1"]}},
    {"storageClass": "ARCHIVE"},
    {"storageClass": "REGIONAL", "location": "us-east1"},
    {"softDeletePolicy": {"retentionDurationSeconds": "0"}},
    {"softDeletePolicy": {"retentionDurationSeconds": str(90 * 86_400)}},
    {"lifecycle": rule(age=0)},
    {"lifecycle": rule("SetStorageClass", "NEARLINE", daysSinceNoncurrentTime=7, isLive=False)},
    {"labels": {"goog-terraform-provisioned": "true", "ключ": "значение", "a_b-1": ""}},
]


@pytest.mark.parametrize("fields", REFUSED, ids=str)
def test_bucket_that_google_does_not_make_is_refused(world, fields):
    status, answer = make(world, **fields)
    assert (status, answer["error"]["errors"][0]["reason"]) == (400, "invalid")
    assert world.cloud.inventory() == []


@pytest.mark.parametrize("fields", TAKEN, ids=str)
def test_bucket_that_google_makes_is_made(world, fields):
    assert make(world, **fields)[0] == 200


@pytest.mark.parametrize("fields", [one for one in REFUSED if "location" not in one], ids=str)
def test_bucket_is_not_changed_into_what_google_does_not_make(world, fields):
    _, made = make(world)
    assert world.refusal("PATCH", BUCKET, fields)[0] == 400
    assert world.ask("GET", BUCKET) == made


@pytest.mark.parametrize(
    ("location", "kind"),
    [("us-central2", "region"), ("US", "multi-region"), ("eur4", "dual-region"), (None, "multi-region")],
)
def test_bucket_says_what_kind_of_place_it_is_in(world, location, kind):
    made = make(world, location=location)[1]
    assert (made["locationType"], made["location"]) == (kind, (location or "US").upper())


@pytest.mark.parametrize(
    "name",
    [
        *("", "ab", "Box", "-box", "box-", "a" * 64, "a b", "my..bucket", "192.168.5.4", "a.-b", "a-.b"),
        *("my-google-data", "g00gle-data", "my-goog1e", "googbox", f"{'a' * 64}.com", "ab." * 74 + "com"),
    ],
)
def test_name_that_google_does_not_take_is_refused(world, name):
    status, answer = make(world, name=name)
    assert (status, answer["error"]["message"]) == (400, f"Invalid bucket name: '{name}'")


@pytest.mark.parametrize("name", ["abc", "a" * 63, "a_b-c", "1-2", "my-goods", "tpu-project_cloudbuild"])
def test_name_that_google_takes_is_taken(world, name):
    assert make(world, name=name)[0] == 200


def test_name_with_dots_belongs_to_who_owns_the_domain(world):
    status, answer = make(world, name="data.example.com")
    assert (status, "verify site or domain ownership" in answer["error"]["message"]) == (403, True)


@pytest.mark.parametrize("word", ["predefinedAcl", "predefinedDefaultObjectAcl"])
def test_bucket_with_uniform_access_takes_no_list_of_its_own(world, word):
    assert make(world, {word: "publicRead"}, **UNIFORM)[0] == 400
    assert make(world, {word: "publicRead"})[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "word"),
    [
        ("POST", "upload/storage/v1/b/box/o", "predefinedAcl"),
        ("PATCH", f"{BUCKET}/o/one", "predefinedAcl"),
        ("POST", f"{BUCKET}/o/one/rewriteTo/b/box/o/two", "destinationPredefinedAcl"),
        ("POST", f"{BUCKET}/o/two/compose", "destinationPredefinedAcl"),
    ],
)
def test_object_in_a_bucket_with_uniform_access_takes_no_list_of_its_own(world, method, path, word):
    make(world, **UNIFORM)
    upload = {"uploadType": "media", "name": "one"}
    world.ask("POST", "upload/storage/v1/b/box/o", b"text", **upload)
    body = {"sourceObjects": [{"name": "one"}]} if path.endswith("compose") else None
    status, reason, text = world.refusal(method, path, body, **{word: "publicRead"}, **upload)
    assert (status, reason, text.startswith("Cannot insert legacy ACL")) == (400, "invalid", True)


@pytest.mark.parametrize("method", ["DELETE", "PATCH"])
def test_bucket_is_changed_and_deleted_on_the_condition_of_the_request(world, method):
    make(world)
    assert world.refusal(method, BUCKET, ifMetagenerationMatch="99")[:2] == (412, "conditionNotMet")
    assert world.refusal(method, BUCKET, ifMetagenerationNotMatch="1")[0] == 412
    assert world.send(method, BUCKET, ifMetagenerationMatch="1")[0] < 300


def test_update_replaces_what_a_patch_leaves(world):
    make(world, labels={"a": "b"}, versioning={"enabled": True}, lifecycle=rule(age=3), location="us-east1")
    patched = world.ask("PATCH", BUCKET, {"labels": {"c": "d"}})
    assert (patched["labels"], patched["versioning"]) == ({"a": "b", "c": "d"}, {"enabled": True})
    updated = world.ask("PUT", BUCKET, {"labels": {"e": "f"}})
    assert (updated["labels"], updated["location"], updated["metageneration"]) == ({"e": "f"}, "US-EAST1", "3")
    assert not {"versioning", "lifecycle"} & set(updated)


@pytest.mark.parametrize("method", ["PATCH", "PUT"])
def test_change_passes_over_what_is_not_the_callers_to_say(world, method):
    _, made = make(world)
    own = {"timeCreated": "1970-01-01T00:00:00Z", "projectNumber": "7", "location": "EU", "locationType": "region"}
    changed = world.ask(method, BUCKET, {**own, "id": "other", "name": "other", "metageneration": "70", "owner": {}})
    assert {key: changed[key] for key in own} == {key: made[key] for key in own}
    assert (changed["id"], changed["name"], changed["metageneration"], "owner" in changed) == ("box", "box", "2", False)


def test_time_of_soft_deletion_is_of_the_last_change(world):
    first = make(world)[1]["softDeletePolicy"]
    world.pass_time(60)
    same = world.ask("PATCH", BUCKET, {"softDeletePolicy": {"retentionDurationSeconds": "604800"}})["softDeletePolicy"]
    other = world.ask("PATCH", BUCKET, {"softDeletePolicy": {"retentionDurationSeconds": "0"}})["softDeletePolicy"]
    assert (same, other["effectiveTime"] > first["effectiveTime"]) == (first, True)


def test_bucket_has_what_google_fills_in_beside_what_its_maker_says(world):
    made = make(world, **UNIFORM)[1]
    assert made["iamConfiguration"]["publicAccessPrevention"] == "inherited"


@pytest.mark.parametrize("method", ["PATCH", "PUT"])
def test_what_every_bucket_has_is_not_taken_away(world, method):
    _, made = make(world)
    fields = ("iamConfiguration", "rpo", "softDeletePolicy", "storageClass")
    changed = world.ask(method, BUCKET, dict.fromkeys(fields))
    assert {key: changed[key] for key in fields} == {key: made[key] for key in fields}
