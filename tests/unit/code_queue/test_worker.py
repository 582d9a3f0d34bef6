"""A worker and its job's lease: code ends when the job has another owner, and never before."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from support.waiting import until
from tpukit.code_queue import AsyncClient, Client, claims
from tpukit.code_queue.child import Limits
from tpukit.code_queue.decide import Outcome
from tpukit.code_queue.records import TPU_JOBS
from tpukit.code_queue.worker import Settings, Worker
from tpukit.core.errors import Transient
from tpukit.jobs.reasons import Reason
from tpukit.kernel.store import Holder
from tpukit.kernel.store.sqlite import SqliteStore

FOREVER = "open('started', 'w').close()\nimport time\ntime.sleep(1000)"
LEASE = 6.0


class World:
    def __init__(self, folder):
        self.store = SqliteStore(folder / "store.db")
        self.queue = Client(self.store)
        self.runs = folder / "runs"
        settings = Settings(self.runs, str(folder / "results"), limits=Limits(memory=2**30, processes=64))
        self.said: list[str] = []
        self.worker = Worker(self.store, Holder("w"), settings, lambda key, text: self.said.append(text))
        self.thread = threading.Thread(target=self.worker.run)

    def run(self, code):
        job_id = self.queue.submit(code, timeout=600)
        self.thread.start()
        return job_id

    def started(self):
        until(lambda: list(self.runs.glob("*/scratch/started")), lambda: self.said)


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "SECONDS", LEASE)
    made = World(tmp_path)
    yield made
    made.worker.leave()
    if made.thread.ident:
        made.thread.join()
    assert list(made.runs.glob("*")) == []
    made.store.close()


def test_worker_that_runs_longer_than_a_lease_keeps_it_and_writes_the_result(world, monkeypatch):
    renewed = []
    renew = world.store.renew
    monkeypatch.setattr(world.store, "renew", lambda *asked: renewed.append(asked) or renew(*asked))
    job_id = world.run("import time\ntime.sleep(7.0)\nresult = 'done'")
    job = world.queue.wait(job_id)
    assert (job.status, job.result, job.attempts) == ("completed", "done", 1)
    assert len(renewed) >= 2


def test_worker_whose_lease_was_taken_ends_the_code_and_writes_nothing(world):
    job_id = world.run(FOREVER)
    world.started()
    world.store.release(world.store.lease(claims.lease_name(job_id)))
    before = world.queue.get(job_id)
    assert claims.revoke(world.store, Holder("supervisor"), job_id)
    until(lambda: any("lease was lost" in text for text in world.said))
    assert world.queue.get(job_id) == before


def test_worker_that_cannot_reach_the_store_for_a_lease_ends_the_code_itself(world, monkeypatch):
    def away(*_):
        raise Transient("the store is unreachable")

    job_id = world.run(FOREVER)
    world.started()
    monkeypatch.setattr(world.store, "renew", away)
    until(lambda: any("lease was lost" in text for text in world.said))
    assert world.queue.get(job_id).status == "running"  # the supervisor takes it up later


def test_result_waits_for_a_store_that_is_away(world, monkeypatch):
    put, refusals = world.store.put, [1, 1]

    def sometimes(*arguments, **options):
        if refusals and arguments[2].status == "completed":
            refusals.pop()
            raise Transient("the store is unreachable")
        return put(*arguments, **options)

    monkeypatch.setattr(world.store, "put", sometimes)
    assert world.queue.wait(world.run("result = 'late'")).result == "late"
    assert not refusals


def test_running_job_that_is_cancelled_ends_soon(world):
    job_id = world.run(FOREVER)
    world.started()
    world.queue.cancel(job_id)
    assert world.queue.wait(job_id).status == "cancelled"


def test_async_client_sends_and_waits(world):
    async def ask():
        queue = AsyncClient(world.queue)
        job_id = await queue.submit("result = 2")
        world.thread.start()
        return await queue.wait(job_id)

    assert asyncio.run(ask()).result == "2"


@pytest.fixture
def pair(tmp_path):
    """Yield the first host of a slice and another one, with a job that was scheduled for them."""
    store = SqliteStore(tmp_path / "store.db")
    said: list[str] = []
    workers = []
    for number in range(2):
        limits = Limits(memory=2**30, processes=64)
        settings = Settings(tmp_path / f"runs-{number}", str(tmp_path / "results"), limits=limits)
        workers.append(Worker(store, Holder(f"host-{number}"), settings, lambda key, text: said.append(text)))

    def send(code):
        key = Client(store).submit(code, timeout=600)
        entry = store.get(TPU_JOBS, key)
        store.put(TPU_JOBS, entry, replace(entry.value, status="scheduled", schedules=1))
        return key

    yield SimpleNamespace(store=store, queue=Client(store), workers=workers, send=send, said=said, folder=tmp_path)
    store.close()


def on_both(pair, key):
    """Run the job on both hosts, and return whether each ran it."""
    with ThreadPoolExecutor(2) as pool:
        second = pool.submit(pair.workers[1].accompany, key)
        first = pool.submit(pair.workers[0].run_one, key, "scheduled")
        return first.result(), second.result()


def first_host(pair, key):
    return claims.take_one(pair.store, Holder("host-0"), pair.store.get(TPU_JOBS, key))


def test_other_host_waits_for_the_first_one_runs_the_same_code_and_records_nothing(pair):
    key = pair.send("result = 6 * 7")
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(pair.workers[1].accompany, key)
        claim = first_host(pair, key)
        assert second.result()
    assert pair.said == ["done on this host: 42"]
    assert pair.queue.get(key) == claim.entry.value


def test_other_host_ends_its_code_when_the_first_one_is_done(pair):
    key = pair.send(FOREVER)
    claim = first_host(pair, key)
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(pair.workers[1].accompany, key)
        until(lambda: list(pair.folder.glob("runs-1/*/scratch/started")))
        claims.finish(pair.store, claim, Outcome(Reason.DONE, "1"))
        assert second.result()
    assert pair.queue.get(key).status == "completed"


def test_other_host_of_a_job_that_is_over_runs_nothing(pair):
    key = pair.send("result = 1")
    pair.workers[0].run_one(key, "scheduled")
    assert not pair.workers[1].accompany(key)


@pytest.mark.parametrize(
    ("code", "patience", "status", "reason", "said"),
    [
        ("raise ValueError('only on this host')", 600.0, "failed", "user error", "ValueError: only on this host"),
        ("", 0.2, "pending", "peer lost", "lost their connection to each other"),
    ],
)
def test_first_host_that_aborts_has_lost_its_peer_unless_the_peer_says_why(
    pair, monkeypatch, code, patience, status, reason, said
):
    key = pair.send(f"import os, time\nif 'runs-0' in os.environ['HOME']:\n    os.abort()\n{code}")
    for worker in pair.workers:
        worker._ready()
    monkeypatch.setattr("tpukit.code_queue.worker.PEER_SECONDS", patience)
    monkeypatch.setenv("TPU_WORKER_HOSTNAMES", "a,b")  # for the watching workers: the code itself does not start JAX
    on_both(pair, key)
    job = pair.queue.get(key)
    assert (job.status, job.reason) == (status, reason)
    assert said in job.error
