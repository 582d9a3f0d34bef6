"""The job queue on Firestore (Google's emulator): documents of plain clients, and servers that are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import tpukit
from support.firestore_emulator import PROJECT, Emulator, emulator
from support.waiting import until
from tpukit.code_queue import claims
from tpukit.code_queue.client import Client
from tpukit.code_queue.decide import Outcome
from tpukit.code_queue.driver import Driver
from tpukit.code_queue.records import ENDED, PENDING, TIMES, TPU_JOBS
from tpukit.core.clock import SystemClock
from tpukit.core.errors import Transient
from tpukit.jobs.reasons import Reason
from tpukit.kernel.store import Holder
from tpukit.kernel.store.home import open_store

ADDRESS = f"firestore://{PROJECT}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    with emulator(tmp_path_factory.mktemp("firestore") / "log") as running:
        yield running


@pytest.fixture(autouse=True)
def environment(server: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    server.reset()
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", server.address)


@pytest.fixture
def plain() -> Iterator[Any]:
    """Yield a client as another program would use it."""
    from google.cloud import firestore

    made = firestore.Client(project=PROJECT)
    yield made
    made.close()


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Client]:
    client = Client(open_store(ADDRESS, tmp_path))
    yield client
    client.close()


class Servers:
    """`tpu queue serve` in separate processes."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.running: list[subprocess.Popen[bytes]] = []
        home.mkdir()

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "tpukit", "queue", "serve", "--no-http", "--preload", "", *options]
        environment = {
            **os.environ,
            "TPUKIT_HOME": str(self._home),
            "TPUKIT_STORE": ADDRESS,
            "PYTHONPATH": str(Path(tpukit.__file__).parents[1]),
        }
        with (self._home / "log").open("ab") as log:
            process = subprocess.Popen(argv, env=environment, stdout=log, stderr=log, start_new_session=True)
        self.running.append(process)
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.running.remove(process)

    def log(self) -> str:
        return (self._home / "log").read_text(errors="replace")[-3000:]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    made = Servers(tmp_path / "home")
    yield made
    for process in list(made.running):
        made.kill(process)


def seed_document(**fields: Any) -> dict[str, Any]:
    """Return a document as an application's own program writes it."""
    from google.cloud import firestore

    return {
        "challenge_number": 42,
        "code": "logger.info('working')\nresult = f'Found {1} devices'",
        "timeout": 300,
        "status": "pending",
        "created_at": firestore.SERVER_TIMESTAMP,
        **fields,
    }


def test_document_of_a_plain_client_runs_and_a_plain_client_reads_what_became_of_it(plain, servers):
    _, reference = plain.collection("tpu_jobs").add(seed_document(metadata={"submitted_by": "user@example.com"}))
    _, wrong = plain.collection("tpu_jobs").add(seed_document(timeout="soon"))
    heard: list[str] = []
    watch = reference.on_snapshot(lambda documents, *_: heard.extend(one.to_dict()["status"] for one in documents))
    until(lambda: heard, "the listener to begin")
    servers.start()

    def ended() -> dict[str, Any] | None:
        document = reference.get().to_dict()
        return document if document["status"] in ENDED else None

    document = until(ended, servers.log, every=0.2)
    assert (document["status"], document["result"], document["error"]) == ("completed", "Found 1 devices", None)
    assert (document["challenge_number"], document["timeout"]) == (42, 300)
    assert document["metadata"] == {"submitted_by": "user@example.com"}
    assert "INFO working" in document["logs"]
    assert all(isinstance(document[name], datetime) for name in TIMES)
    assert document["created_at"] <= document["scheduled_at"] <= document["started_at"] <= document["completed_at"]
    refused = until(lambda: (one := wrong.get().to_dict())["status"] == "failed" and one, servers.log, every=0.2)
    assert "timeout: 'soon' must be a number of seconds" in refused["error"]
    until(lambda: heard and heard[-1] == "completed")
    assert heard[0] == "pending"
    watch.unsubscribe()


def test_lists_with_a_limit_go_by_rank_and_without_one_have_documents_of_plain_clients(plain, queue):
    store = queue._store
    first = queue.submit("result = 1")
    urgent = queue.submit("result = 1", priority=9)
    _, reference = plain.collection("tpu_jobs").add(seed_document(created_at=datetime.now(UTC) + timedelta(minutes=1)))
    listed = {entry.key: entry.value for entry in store.list(TPU_JOBS, states=[PENDING]).entries}
    assert set(listed) == {first, urgent, reference.id}
    assert [key for key, job in listed.items() if not job.ranked] == [reference.id]
    assert [entry.key for entry in store.list(TPU_JOBS, states=[PENDING], limit=5).entries] == [urgent, first]
    driver = Driver(store, SystemClock(), Holder("d"))
    driver.round()
    ranked = [entry.key for entry in store.list(TPU_JOBS, states=[PENDING], limit=5).entries]
    assert ranked == [urgent, first, reference.id]
    driver.close()
    # Documents that a plain client changes by hand are noticed, too.
    claim = claims.take_one(store, Holder("w"), store.get(TPU_JOBS, first))
    claims.finish(store, claim, Outcome(Reason.USER_ERROR, error="x"))
    plain.document(f"tpu_jobs/{first}").update({"status": "pending"})
    assert not store.get(TPU_JOBS, first).value.ranked


def test_worker_whose_lease_was_taken_over_cannot_write(queue):
    store = queue._store
    job_id = queue.submit("result = 1")
    claim = claims.take(store, Holder("first"), random.Random(0))
    store.release(claim.lease)  # as if it had lapsed
    assert claims.revoke(store, Holder("supervisor"), job_id)
    assert claims.finish(store, claim, Outcome(Reason.DONE, "late")) is None
    assert queue.get(job_id).result is None


def test_200_jobs_of_8_clients_end_once_while_servers_are_killed(queue, servers, tmp_path):
    ids: list[str] = []
    lock = threading.Lock()

    def send(number: int) -> None:
        client = Client(open_store(ADDRESS, tmp_path))
        for index in range(25):
            code = "raise ValueError('own')" if index == 7 else f"result = '{number}/{index}'"
            job_id = client.submit(code, timeout=600, max_faults=1000, priority=index % 3)
            with lock:
                ids.append(job_id)
        client.close()

    clients = [threading.Thread(target=send, args=(number,)) for number in range(8)]
    for client in clients:
        client.start()
    dice = random.Random(14)
    options = ("--workers", "3", "--tick", "0.3")
    for _ in range(2):
        servers.start(*options)

    def ended() -> int:
        try:
            return sum(entry.value.status in ENDED for entry in queue.list(limit=0))
        except Transient:  # a busy machine: other work goes first
            return 0

    for number in range(1, 6):
        until(lambda number=number: ended() >= number * 25, servers.log, every=1.0)
        servers.kill(dice.choice(servers.running))
        servers.start(*options)
    for client in clients:
        client.join()
    assert len(ids) == 200
    until(lambda: ended() == 200, servers.log, every=1.0)
    jobs = {entry.key: entry.value for entry in queue.list(limit=0)}
    assert set(jobs) == set(ids)
    assert sorted(job.result for job in jobs.values() if job.status == "completed") == sorted(
        f"{number}/{index}" for number in range(8) for index in range(25) if index != 7
    )
    failed = [job for job in jobs.values() if job.status == "failed"]
    assert [job.attempts - job.faults for job in failed] == [1] * 8
    for key, job in jobs.items():
        assert job.created_at <= job.scheduled_at <= job.started_at <= job.completed_at
        ends = [event for event in queue.events(key) if event.text.startswith(("completed", "failed"))]
        assert len(ends) == 1, ends
