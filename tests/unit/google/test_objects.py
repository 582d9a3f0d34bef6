"""Requests to Cloud Storage within a fence: none without the lease, and none that outlasts it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tpukit.core import fence
from tpukit.core.errors import LeaseLost, Transient
from tpukit.google import objects

OBJECT = "gs://bucket/runs/a/job"


class Bucket:
    """A server that gives the same answer to each write, or none until the test ends."""

    def __init__(self, code: int) -> None:
        self.asked = 0
        self.over = threading.Event()
        bucket = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bucket.asked += 1
                self.rfile.read(int(self.headers["Content-Length"]))
                if not code:
                    bucket.over.wait(30)
                    return
                self.send_response(code)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *words: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)


@pytest.fixture
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    made = Bucket(request.param)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{made.server.server_port}")
    monkeypatch.setattr(objects, "LONGEST_PAUSE", 0.01)
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield made
    made.over.set()
    made.server.shutdown()
    made.server.server_close()


def lost_after(tries: int) -> fence.Check:
    left = iter([60.0] * tries)

    def check() -> float:
        if (seconds := next(left, None)) is None:
            raise LeaseLost("another driver owns it")
        return seconds

    return check


@pytest.mark.parametrize("bucket", [503], indirect=True)
@pytest.mark.parametrize("write", [objects.create, objects.upload])
def test_write_that_is_retried_stops_as_soon_as_the_lease_is_lost(bucket, write):
    with fence.held(lost_after(2)), pytest.raises(LeaseLost):
        write(OBJECT, b"job-1")
    assert bucket.asked == 2


@pytest.mark.parametrize("bucket", [0], indirect=True)
def test_write_without_an_answer_ends_before_the_lease(bucket, monkeypatch):
    monkeypatch.setattr(objects, "TRIES", 1)
    began = time.monotonic()
    with fence.held(lambda: 0.2), pytest.raises(Transient):
        objects.create(OBJECT, b"job-1")
    assert bucket.asked == 1
    assert time.monotonic() - began < objects.SECONDS / 2


@pytest.mark.parametrize("bucket", [412], indirect=True)
def test_create_of_an_object_that_exists_is_no_error(bucket):
    with fence.held(lambda: 60.0):
        objects.create(OBJECT, b"job-1")
    assert bucket.asked == 1
