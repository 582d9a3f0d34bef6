"""Cloud Storage of the emulator: objects that may not be deleted or replaced yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.google_world import PROJECT, World

BUCKET = "storage/v1/b/box"
ONE = f"{BUCKET}/o/one"
DAY = 86_400


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


def make_bucket(world: World, **more: Any) -> Any:
    return world.ask("POST", "storage/v1/b", {"name": "box", "location": "US", **more}, project=PROJECT)


def write(world: World, name: str = "one", **query: str) -> tuple[int, Any]:
    return world.send("POST", "upload/storage/v1/b/box/o", b"text", uploadType="media", name=name, **query)


def retained(period: int = DAY) -> dict[str, Any]:
    return {"retentionPolicy": {"retentionPeriod": str(period)}}


def test_object_is_neither_replaced_nor_deleted_before_its_bucket_lets_it_go(world):
    make_bucket(world, **retained())
    made = write(world)[1]
    write(world, "source")
    ways = [
        world.send("DELETE", ONE),
        world.send("DELETE", ONE, generation=made["generation"]),
        write(world),
        world.send("POST", f"{BUCKET}/o/source/rewriteTo/b/box/o/one"),
        world.send("POST", f"{ONE}/compose", {"sourceObjects": [{"name": "source"}]}),
    ]
    assert [status for status, _ in ways] == [403] * 5
    assert "subject to bucket's retention policy" in ways[0][1]["error"]["message"]
    assert world.refusal("DELETE", BUCKET)[0] == 409
    world.pass_time(DAY + 1)
    assert write(world)[0] == 200


def test_object_shows_until_when_it_is_retained(world):
    make_bucket(world, **retained(3600))
    made = write(world)[1]
    assert made["retentionExpirationTime"] > made["timeCreated"]
    assert world.ask("GET", ONE)["retentionExpirationTime"] == made["retentionExpirationTime"]
    assert world.ask("GET", f"{BUCKET}/o")["items"][0]["retentionExpirationTime"] == made["retentionExpirationTime"]


@pytest.mark.parametrize("hold", ["temporaryHold", "eventBasedHold"])
def test_object_that_is_held_stays_until_the_hold_is_taken_away(world, hold):
    make_bucket(world)
    write(world)
    world.ask("PATCH", ONE, {hold: True})
    assert world.refusal("DELETE", ONE)[:2] == (403, "objectUnderActiveHold")
    assert write(world)[0] == 403
    world.ask("PATCH", ONE, {hold: False})
    assert world.send("DELETE", ONE)[0] == 204


def test_retention_begins_anew_with_the_event_that_was_waited_for(world):
    make_bucket(world, **retained(), defaultEventBasedHold=True)
    made = write(world)[1]
    assert (made["eventBasedHold"], "retentionExpirationTime" in made) == (True, False)
    world.pass_time(2 * DAY)
    world.ask("PATCH", ONE, {"eventBasedHold": False})
    assert world.refusal("DELETE", ONE)[0] == 403
    world.pass_time(DAY + 1)
    assert world.send("DELETE", ONE)[0] == 204


def test_bucket_shows_since_when_its_policy_holds_and_takes_no_word_for_a_lock(world):
    policy = {"retentionPeriod": "60", "isLocked": True, "effectiveTime": "1970-01-01T00:00:00Z"}
    made = make_bucket(world, retentionPolicy=policy)
    assert made["retentionPolicy"] == {"retentionPeriod": "60", "effectiveTime": made["timeCreated"]}


@pytest.mark.parametrize("period", [0, -1, 3_155_760_001])
def test_period_that_google_does_not_take_is_refused(world, period):
    asked = {"name": "box", "location": "US", **retained(period)}
    assert world.refusal("POST", "storage/v1/b", asked, project=PROJECT)[0] == 400


def test_policy_that_is_locked_may_only_grow(world):
    make_bucket(world, **retained())
    lock = f"{BUCKET}/lockRetentionPolicy"
    assert world.refusal("POST", lock)[:2] == (400, "required")
    assert world.refusal("POST", lock, ifMetagenerationMatch="7")[0] == 412
    assert world.ask("POST", lock, ifMetagenerationMatch="1")["retentionPolicy"]["isLocked"] is True
    assert world.refusal("PATCH", BUCKET, retained(60))[0] == 403
    assert world.refusal("PATCH", BUCKET, {"retentionPolicy": None})[0] == 403
    assert world.refusal("PUT", BUCKET, {})[0] == 403
    grown = world.ask("PATCH", BUCKET, retained(2 * DAY))["retentionPolicy"]
    assert (grown["retentionPeriod"], grown["isLocked"]) == (str(2 * DAY), True)


def test_policy_that_is_not_locked_is_taken_away(world):
    make_bucket(world, **retained())
    write(world)
    assert "retentionPolicy" not in world.ask("PATCH", BUCKET, {"retentionPolicy": None})
    assert world.send("DELETE", ONE)[0] == 204


def test_bucket_without_a_policy_has_nothing_to_lock(world):
    make_bucket(world)
    assert world.refusal("POST", f"{BUCKET}/lockRetentionPolicy", ifMetagenerationMatch="1")[0] == 400
