"""The statuses of a queued job in the cluster, and what its program leaves for later ones, and its image."""

from __future__ import annotations

import re
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from support.waiting import until
from tpukit.cluster.queue_deployment import DOCKERFILES, WORKER
from tpukit.code_queue import claims
from tpukit.code_queue.child import Child, Limits, fresh_folder
from tpukit.code_queue.decide import Outcome
from tpukit.code_queue.records import COMPLETED, FAILED, PENDING, RUNNING, SCHEDULED, TIMES
from tpukit.code_queue.service import Metrics, Service
from tpukit.core.clock import SystemClock
from tpukit.jobs.reasons import Reason
from unit.code_queue.test_cluster import World


@pytest.mark.parametrize(
    ("outcome", "status", "result", "error"),
    [
        (Outcome(Reason.DONE, "42"), COMPLETED, "42", None),
        (Outcome(Reason.USER_ERROR, error="ValueError: no"), FAILED, None, "ValueError: no"),
    ],
)
def test_job_goes_from_pending_over_scheduled_and_running_to_its_end_with_a_time_for_each(
    tmp_path, outcome, status, result, error
):
    world = World(tmp_path)
    key = world.client.submit("result = 6 * 7")
    seen = [world.status(key)]
    world.clock.sleep(1.0)
    world.driver.round()
    seen.append(world.status(key))
    world.clock.sleep(1.0)
    claim = world.claim(key)
    seen.append(world.status(key))
    world.clock.sleep(1.0)
    claims.finish(world.store, claim, outcome)
    world.driver.round()
    job = world.client.get(key)
    assert [*seen, job.status] == [PENDING, SCHEDULED, RUNNING, status]
    assert (job.result, job.error) == (result, error)
    times = [getattr(job, name) for name in ("created_at", "scheduled_at", "started_at", "completed_at")]
    assert [after - before for before, after in pairwise(times)] == [1.0, 1.0, 1.0]
    assert {"created_at", "scheduled_at", "started_at", "completed_at", "updated_at"} == set(TIMES)
    world.driver.close()
    world.store.close()


def test_creator_schedules_a_job_when_it_is_written_and_not_in_the_round_of_an_hour_later(tmp_path):
    world = World(tmp_path)
    metrics = Metrics(world.store, world.driver.leader.leading, world.clock.now)
    service = Service(world.store, world.driver, [], SystemClock(), tick=3600.0, say=print, metrics=metrics)
    rounds = threading.Thread(target=service.run)
    rounds.start()
    try:
        until(service.loop.ready, "the first round")
        for _ in range(2):
            key = world.client.submit("result = 1")
            until(lambda: world.status(key) == SCHEDULED, "the listener", seconds=60.0)  # noqa: B023
    finally:
        service.stop(0.0)
        rounds.join()
        world.driver.close()
        world.store.close()


def test_program_that_jax_compiled_is_in_the_folder_that_later_jobs_have(tmp_path):
    child = Child(fresh_folder(tmp_path / "runs"), Limits(), cache=tmp_path / "cache")
    done = child.run("import jax\nresult = jax.jit(lambda x: x * 2 + 1)(3.0)", 60.0)
    child.close()
    assert done.result == "7.0", done
    assert list((tmp_path / "cache").glob("jit_*-cache"))


def test_image_of_workers_has_nothing_of_its_first_stage_but_what_that_installed():
    text = (Path(__file__).resolve().parents[3] / DOCKERFILES[WORKER]).read_text()
    build, image = re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]
    assert "COPY . /src" in build and "pip install" in build
    assert [line for line in image.splitlines() if line.startswith(("COPY", "ADD"))] == [
        "COPY --from=build /venv /venv"
    ]
    assert "pip install" not in image
