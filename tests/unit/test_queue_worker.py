"""A worker and the lease of what it runs: code ends when the job is somebody else's, and never before."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tpukit.errors import Transient
from tpukit.queue import AsyncClient, Client, claims
from tpukit.queue.child import Limits
from tpukit.queue.worker import Settings, Worker
from tpukit.store import Holder
from tpukit.store.sqlite import SqliteStore
from waiting import until

FOREVER = "open('started', 'w').close()\nimport time\ntime.sleep(1000)"
LEASE = 3.0


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
    job_id = world.run("import time\ntime.sleep(4.0)\nresult = 'done'")
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
        raise Transient("the store is away")

    job_id = world.run(FOREVER)
    world.started()
    monkeypatch.setattr(world.store, "renew", away)
    until(lambda: any("lease was lost" in text for text in world.said))
    assert world.queue.get(job_id).status == "running"  # as far as anybody knows: the supervisor takes it up


def test_result_waits_for_a_store_that_is_away(world, monkeypatch):
    put, refusals = world.store.put, [1, 1]

    def sometimes(*arguments, **options):
        if refusals and arguments[2].status == "completed":
            refusals.pop()
            raise Transient("the store is away")
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
