"""`tpu queue` on this machine: code in, result out, whatever happens to the server."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import processes_of
from support.waiting import PATIENCE, until
from tpukit.code_queue.client import Client
from tpukit.code_queue.records import ENDED
from tpukit.kernel.store.sqlite import SqliteStore

MARK = "import os\nopen('started', 'w').close()\n"


def serve(tpu, *options):
    serving = tpu.start("queue", "serve", "--no-http", "--tick", "0.05", "--preload", "", *options)
    until(lambda: "serving" in tpu.said(serving))
    return serving


@pytest.fixture
def queue(tpu) -> Iterator[Client]:
    client = Client(SqliteStore(tpu.home / "state" / "store.db"))
    yield client
    client.close()


def scratch(tpu):
    return list((tpu.home / "data" / "queue" / "runs").glob("*/scratch/started"))


def test_submit_serve_show_and_cancel_from_the_command_line(tpu):
    job_id = tpu("queue", "submit", "--code", "logger.info('hello')\nresult = 6 * 7").stdout.strip()
    wrong = tpu("queue", "submit", "--code", "raise ValueError('no')").stdout.strip()
    cancelled = tpu("queue", "submit", "--code", "result = 1", "--timeout", "5").stdout.strip()
    assert tpu("queue", "cancel", cancelled).stdout == f"{cancelled}: cancelled\n"
    tpu("queue", "serve", "--until-idle", "--no-http", "--tick", "0.05", "--preload", "", "--workers", "2")
    shown = json.loads(tpu("queue", "show", job_id, "--json").stdout)
    assert (shown["status"], shown["result"], shown["reason"]) == ("completed", "42", "done")
    assert "INFO hello" in shown["logs"]
    assert "2000" < shown["created_at"] <= shown["scheduled_at"] <= shown["started_at"] <= shown["completed_at"]
    listed = {job["id"]: job["status"] for job in json.loads(tpu("queue", "list", "--json").stdout)}
    assert listed == {job_id: "completed", wrong: "failed", cancelled: "cancelled"}
    failed = tpu("queue", "follow", wrong, code=1)
    assert 'File "<job>", line 1' in failed.stderr
    assert tpu("queue", "follow", job_id).stdout == "42\n"
    assert set(tpu("queue", "purge", "--older-than", "0s").stdout.split()) == set(listed)


def test_serve_killed_in_the_middle_leaves_nothing_running_and_the_next_takes_the_job_up(tpu, queue):
    job_id = queue.submit(MARK + "import time\nwhile not os.path.exists('/proc/1/none'): time.sleep(0.05)", timeout=600)
    first = serve(tpu)
    until(lambda: scratch(tpu))
    assert queue.get(job_id).attempts == 1
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    until(lambda: not processes_of(tpu.home), "the code to end with the one that ran it")
    second = serve(tpu)
    until(lambda: queue.get(job_id).attempts == 2, lambda: str(queue.get(job_id)))
    job = queue.get(job_id)
    assert (job.status, job.faults) == ("running", 1)
    queue.cancel(job_id)
    assert queue.wait(job_id, PATIENCE).status == "cancelled"
    os.kill(second.pid, signal.SIGTERM)
    assert second.wait(timeout=PATIENCE) == 0


def test_serve_told_to_leave_gives_its_job_back_uncharged(tpu, queue):
    job_id = queue.submit(MARK + "import time\ntime.sleep(600)", timeout=600)
    serving = serve(tpu, "--grace", "0")
    until(lambda: scratch(tpu))
    os.kill(serving.pid, signal.SIGTERM)
    assert serving.wait(timeout=PATIENCE) == 0
    job = queue.get(job_id)
    assert (job.status, job.faults, job.reason) == ("pending", 0, "preempted")


def ended(queue, ids):
    return sum(queue.get(one).status in ENDED for one in ids)


def test_servers_killed_again_and_again_run_each_job_to_its_end_once(tpu, queue):
    """Check the records: each completed job has the result of exactly one attempt."""
    code = "import os, time\ntime.sleep(0.05)\nresult = os.environ['HOME']"
    ids = [queue.submit(code, timeout=600, max_faults=100) for _ in range(12)]
    for _ in range(3):
        serving = serve(tpu, "--workers", "2")
        done = ended(queue, ids)
        until(lambda done=done: (now := ended(queue, ids)) > done or now == len(ids))
        os.kill(serving.pid, signal.SIGKILL)
        serving.wait()
    both = [serve(tpu, "--workers", "1") for _ in range(2)]
    jobs = [queue.wait(one, PATIENCE) for one in ids]
    assert {job.status for job in jobs} == {"completed"}
    assert len({job.result for job in jobs}) == len(jobs)  # one process per job
    for one in ids:
        ends = [event.text for event in queue.events(one) if event.text.startswith("completed")]
        assert len(ends) == 1
    for serving in both:
        os.kill(serving.pid, signal.SIGTERM)
        assert serving.wait(timeout=PATIENCE) == 0


def test_rest_front_end_is_on_loopback_asks_for_its_token_and_leaves_when_told(tpu, queue):
    serving = tpu.start("queue", "rest", "--port", "0")
    until(lambda: "Ctrl-C stops" in tpu.said(serving))
    url, token_file = re.search(r"(http://127\.0\.0\.1:\d+), for callers with (\S+);", tpu.said(serving)).groups()

    def ask(path, token="", body=None):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        headers = {"Authorization": f"Bearer {token}"}
        return opener.open(urllib.request.Request(url + path, body, headers), timeout=PATIENCE).read().decode()

    with pytest.raises(urllib.error.HTTPError, match="401") as refused:
        ask("/v1/jobs")
    refused.value.close()
    assert ask("/readyz") == "ready\n"
    sent = json.loads(ask("/v1/jobs", Path(token_file).read_text().strip(), b'{"code": "result = 1"}'))
    assert queue.get(sent["id"]).code == "result = 1"
    os.kill(serving.pid, signal.SIGTERM)
    assert serving.wait(timeout=PATIENCE) == 0


def test_large_result_is_in_a_file_that_the_job_names(tpu, queue):
    job_id = queue.submit("result = 'x' * 1_000_000")
    tpu("queue", "serve", "--until-idle", "--no-http", "--tick", "0.05", "--preload", "")
    job = queue.get(job_id)
    assert job.status == "completed"
    assert len(job.result) == 2000
    assert tpu("queue", "follow", job_id).stdout == "x" * 1_000_000 + "\n"
