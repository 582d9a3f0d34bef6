"""Results stored outside documents."""

from __future__ import annotations

import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tpukit.code_queue.decide import Outcome
from tpukit.code_queue.records import QueuedJob
from tpukit.code_queue.results import INLINE, Results
from tpukit.core.errors import Denied, Invalid, Transient
from tpukit.google import objects
from tpukit.jobs.reasons import Reason

JOB = QueuedJob(code="x", attempts=2)


@pytest.fixture
def bucket(monkeypatch):
    """Yield a Cloud Storage that accepts simple uploads and returns the statuses in `refusals`."""
    objects: dict[str, bytes] = {}
    refusals: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            data = self.rfile.read(int(self.headers["Content-Length"]))
            status = refusals.pop(0) if refusals else 200
            if status == 200:
                objects[self.path] = data
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield objects, refusals
        server.shutdown()


def test_small_result_stays_in_the_document():
    outcome = Outcome(Reason.DONE, "x" * INLINE)
    assert Results("gs://b/results").shorten("a", JOB, outcome) is outcome


def test_large_result_goes_to_the_bucket_with_a_reference_of_its_attempt(bucket):
    there, _ = bucket
    short = Results("gs://b/results/").shorten("a", JOB, Outcome(Reason.DONE, "é" * INLINE))
    assert short.result_uri == "gs://b/results/a/2.txt"
    assert short.result == "é" * 2000
    assert there == {
        "/upload/storage/v1/b/b/o?uploadType=media&ifGenerationMatch=0&name=results%2Fa%2F2.txt": (
            "é" * INLINE
        ).encode()
    }


def test_result_that_arrived_though_its_answer_was_lost_is_written_once(bucket, monkeypatch):
    monkeypatch.setattr(objects.SYSTEM, "sleep", lambda _: None)
    bucket[1].extend([503, 412])
    assert Results("gs://b").shorten("a", JOB, Outcome(Reason.DONE, "x" * 10**6)).result_uri == "gs://b/a/2.txt"


@pytest.mark.parametrize(("status", "error"), [(403, Denied), (503, Transient), (429, Transient), (400, Invalid)])
def test_bucket_that_goes_on_refusing_is_classed_by_what_to_do_next(bucket, status, error, monkeypatch):
    monkeypatch.setattr(objects.SYSTEM, "sleep", lambda _: None)
    bucket[1].extend([status] * objects.TRIES)
    with pytest.raises(error, match="gs://b/a/2"):
        Results("gs://b").shorten("a", JOB, Outcome(Reason.DONE, "x" * 10**6))


def test_results_of_purged_jobs_are_removed_from_their_folder_and_those_of_others_stay(tmp_path):
    results = Results(str(tmp_path))
    for key in ("gone", "there", "fresh"):
        (tmp_path / key).mkdir()
        (tmp_path / key / "1.txt").write_text("x")
    now = (tmp_path / "gone").stat().st_mtime + 2 * 86_400.0
    os.utime(tmp_path / "fresh", (now, now))
    assert results.prune({"there"}, now) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fresh", "there"]
    assert Results("gs://bucket/x").prune((), now) == 0
    assert Results(str(tmp_path / "none")).prune((), now) == 0
