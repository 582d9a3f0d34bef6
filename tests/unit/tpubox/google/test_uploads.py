"""Resumable uploads to the emulator's Cloud Storage: clients after a lost connection, and refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.google_world import PROJECT, World
from tpubox.google.wire.api import Answer, Request
from tpubox.google.wire.routing import answer as answer_of

UPLOAD = "upload/storage/v1/b/box/o"
UNIT = 256 << 10


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        make_bucket(made)
        yield made


def make_bucket(world: World) -> None:
    world.ask("POST", "storage/v1/b", {"name": "box", "location": "us-central2"}, project=PROJECT)


class Upload:
    def __init__(self, world: World, name: str = "large", **query: str) -> None:
        self.world = world
        request = Request("POST", UPLOAD, {"uploadType": "resumable", "name": name, **query})
        self.id = answer_of(world.cloud, request).headers["location"].rpartition("upload_id=")[2]

    def put(self, told: str = "", part: bytes = b"") -> Answer:
        headers = {"content-range": told} if told else {}
        return answer_of(self.world.cloud, Request("PUT", UPLOAD, {"upload_id": self.id}, headers, part))

    def refusal(self, told: str, part: bytes) -> tuple[int, str]:
        answer = self.put(told, part)
        return answer.status, json.loads(answer.content)["error"]["message"]


def content_of(world: World, name: str = "large") -> bytes:
    return answer_of(world.cloud, Request("GET", f"storage/v1/b/box/o/{name}", {"alt": "media"})).content


@pytest.mark.parametrize("size", [0, 1, 600_000])
@pytest.mark.parametrize("piece", [UNIT, 2 * UNIT])
def test_upload_in_pieces_survives_a_restart_and_lost_answers(tmp_path, size, piece):
    content = bytes(number % 251 for number in range(size))
    with World(tmp_path) as world:
        make_bucket(world)
        upload = Upload(world)
    with World(tmp_path) as world:
        upload.world = world
        at = 0
        while size - at > piece:
            part = content[at : at + piece]
            upload.put(f"bytes {at}-{at + piece - 1}/*", part)
            # The answer was lost: the client asks for its position and sends the piece again.
            asked = upload.put(f"bytes */{size}")
            assert (asked.status, asked.headers["range"]) == (308, f"bytes=0-{at + piece - 1}")
            assert upload.put(f"bytes {at}-{at + piece - 1}/*", part).status == 308
            at += piece
        last = content[at:]
        done = upload.put(f"bytes {at}-{size - 1}/{size}" if last else f"bytes */{size}", last)
        assert done.status == 200
        assert content_of(world) == content


@pytest.mark.parametrize("asked", ["bytes */10", "bytes */*", "bytes 0-9/10"])
def test_upload_that_ended_answers_with_its_object_however_often_it_is_asked(world, asked):
    upload = Upload(world)
    made = json.loads(upload.put("bytes 0-9/10", bytes(10)).content)
    for _ in range(2):
        again = upload.put(asked, bytes(10) if "-" in asked else b"")
        assert (again.status, json.loads(again.content)) == (200, made)
    assert len(world.ask("GET", "storage/v1/b/box/o", versions="true")["items"]) == 1


def test_uploads_that_ended_are_forgotten_after_a_while(world):
    for number in range(5):
        Upload(world, f"object-{number}").put("bytes */0")
        world.pass_time(3000)
    assert len(world.cloud.state.all("ended_upload")) == 2
    assert world.cloud.state.all("upload") == {}


@pytest.mark.parametrize("told", ["bytes 0-9/30", "bytes 0-9/*"])
def test_piece_before_the_last_that_is_too_small_is_refused(world, told):
    status, text = Upload(world).refusal(told, bytes(10))
    assert (status, "equal or greater than 262144, except for the final request" in text) == (400, True)


def test_piece_before_the_last_is_kept_to_a_multiple_of_the_unit(world):
    upload = Upload(world)
    content = bytes(range(250)) * 2000
    answer = upload.put("bytes 0-299999/*", content[:300_000])
    assert (answer.status, answer.headers["range"]) == (308, f"bytes=0-{UNIT - 1}")
    assert upload.put(f"bytes {UNIT}-499999/500000", content[UNIT:]).status == 200
    assert content_of(world) == content


def test_what_was_uploaded_stays_when_a_part_of_it_is_sent_again(world):
    upload = Upload(world)
    upload.put(f"bytes 0-{2 * UNIT - 1}/*", b"a" * 2 * UNIT)
    again = upload.put(f"bytes 0-{UNIT - 1}/*", b"b" * UNIT)
    assert again.headers["range"] == f"bytes=0-{2 * UNIT - 1}"
    over = upload.put(f"bytes {UNIT}-{2 * UNIT}/{2 * UNIT + 1}", b"c" * (UNIT + 1))
    assert over.status == 200
    assert content_of(world) == b"a" * 2 * UNIT + b"c"
    assert world.cloud.state.pieces(upload.id) == b""


@pytest.mark.parametrize(
    ("told", "size"),
    [("bytes 0-19/10", 20), ("bytes 0-9/10", 9), ("bytes 9-0/10", 0), ("bytes=0-9/10", 10), ("nonsense", 10)],
)
def test_piece_that_is_not_what_its_range_says_is_refused(world, told, size):
    upload = Upload(world)
    assert upload.put(told, bytes(size)).status == 400
    assert upload.put("bytes 0-9/10", bytes(10)).status == 200, "the upload itself goes on"


@pytest.mark.parametrize("told", ["", "bytes 0-*/*", "bytes 0-*/10"])
def test_all_that_is_left_is_taken_without_its_end(world, told):
    assert Upload(world).put(told, bytes(10)).status == 200


def test_piece_that_does_not_follow_the_last_one_is_refused(world):
    assert Upload(world).put("bytes 8-9/10", b"ij").status == 503


def test_upload_is_refused_at_its_end_where_its_condition_no_longer_holds(world):
    upload = Upload(world, ifGenerationMatch="0")
    Upload(world).put("bytes */0")
    assert upload.put("bytes 0-9/10", bytes(10)).status == 412


@pytest.mark.parametrize("kind", ["resumable", "multipart"])
@pytest.mark.parametrize("text", [b"{", b"[]", b"7"])
def test_description_that_is_no_json_object_is_refused(world, kind, text):
    body = text
    if kind == "multipart":
        body = b"--x\r\nContent-Type: application/json\r\n\r\n" + text + b"\r\n--x\r\n\r\nbytes\r\n--x--"
    headers = {"content-type": "multipart/related; boundary=x"}
    status, reason, _ = world.refusal("POST", UPLOAD, body, headers=headers, uploadType=kind, name="a")
    assert (status, reason) == (400, "parseError")


def test_large_upload_begins_where_gcloud_begins_it(world):
    request = Request("POST", f"resumable/{UPLOAD}", {"uploadType": "resumable", "name": "large"}, {}, b"{}")
    begun = answer_of(world.cloud, request)
    assert (begun.status, "upload_id=" in begun.headers["location"]) == (200, True)


def test_upload_that_is_cancelled_is_gone(world):
    upload = Upload(world)
    assert answer_of(world.cloud, Request("DELETE", UPLOAD, {"upload_id": upload.id})).status == 499
    assert upload.put("bytes */0").status == 404


def test_upload_of_twice_the_pieces_moves_twice_the_bytes(world):
    def moved(pieces: int) -> int:
        """Return the bytes that this process read and wrote, for files and database together."""
        before = _moved()
        upload = Upload(world, f"of-{pieces}")
        for at in range(0, pieces * UNIT, UNIT):
            answer = upload.put(f"bytes {at}-{at + UNIT - 1}/{pieces * UNIT}", bytes(UNIT))
        assert answer.status == 200
        return _moved() - before

    moved(8)  # the database gets its pages from the system once
    assert moved(32) < 2.6 * moved(16)


def _moved() -> int:
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["rchar"]) + int(counts["wchar"])


@pytest.mark.parametrize(
    "name", [".", "..", "a\rb", "a\nb", "ä" * 513, ".well-known/acme-challenge/x"], ids=lambda name: ascii(name)[:20]
)
@pytest.mark.parametrize("kind", ["media", "resumable"])
def test_object_name_that_google_does_not_take_is_refused(world, kind, name):
    assert world.refusal("POST", UPLOAD, None, uploadType=kind, name=name)[:2] == (400, "invalid")


@pytest.mark.parametrize("kind", ["media", "resumable"])
def test_upload_without_a_name_is_refused(world, kind):
    assert world.refusal("POST", UPLOAD, None, uploadType=kind)[:2] == (400, "required")


def test_storage_class_that_does_not_exist_is_refused_for_objects_too(world):
    body = json.dumps({"storageClass": "FAST"}).encode()
    sent = world.refusal("POST", UPLOAD, body, uploadType="resumable", name="a")
    assert sent[::2] == (400, "Invalid storage class")
