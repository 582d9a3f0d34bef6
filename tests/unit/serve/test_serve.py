"""`tpu serve` from the inside: surviving faults, its messages and its metrics."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.waiting import PATIENCE, until
from tpukit.core.clock import ManualClock, SystemClock
from tpukit.core.errors import Transient
from tpukit.jobs.controller.driver import Driver
from tpukit.jobs.reasons import Reason, State
from tpukit.jobs.records import JOBS, Job
from tpukit.kernel.loop import LATE_SECONDS, LONGEST_WAIT
from tpukit.kernel.store.process import this_process
from tpukit.kernel.store.sqlite import SqliteStore
from tpukit.kube.requests import REQUESTS
from tpukit.serve import unit
from tpukit.serve.metrics import Metrics
from tpukit.serve.service import Service


class FlakyStore(SqliteStore):
    """A store that can be unavailable: every call then fails, as without a network."""

    away = False

    def list(self, *arguments, **options):
        if self.away:
            raise Transient("the store does not answer")
        return super().list(*arguments, **options)


@pytest.fixture
def store(tmp_path):
    made = FlakyStore(tmp_path / "store.db")
    yield made
    made.close()


@contextmanager
def serving(store, *, tick=0.01, clock=None):
    clock = clock or SystemClock()
    said = []
    metrics = Metrics(store, this_process().name)
    driver = Driver(store, {}, clock, this_process(), workers=1, hooks=metrics.hooks())
    service = Service(store, driver, clock, metrics, tick=tick, say=said.append)
    thread = threading.Thread(target=service.run, daemon=True)
    thread.start()
    try:
        yield service, metrics, said
    finally:
        service.stop()
        thread.join(PATIENCE)
        driver.close()
    assert not thread.is_alive()


def test_store_that_is_away_is_waited_out_and_said_once(store):
    with serving(store) as (service, metrics, said):
        until(service.ready)
        store.away = True
        until(lambda: "tpukit_store_errors_total 3" in metrics.text() or service.loop._failures > 3)
        until(lambda: not service.ready())
        assert service.alive()
        assert len(said) == 1
        assert "the store does not answer" in said[0]
        store.away = False
        until(service.ready)
        assert said[1:] == ["the store is reachable again"]


def test_error_that_nobody_foresaw_ends_no_round(store, monkeypatch):
    def broken(*_arguments, **_options):
        raise RuntimeError("a bug")

    with serving(store) as (service, _, said):
        until(service.ready)
        with monkeypatch.context() as patched:
            patched.setattr(store, "list", broken)
            until(lambda: said)
        until(service.ready)
    assert "a bug" in said[0]


def test_health_goes_when_rounds_do_not_come_back(store):
    clock = ManualClock()
    service = Service(store, Driver(store, {}, clock, this_process()), clock, Metrics(store, "me"), tick=1.0, say=print)
    assert service.alive()
    assert not service.ready()
    service.loop.round()
    assert service.ready()
    clock.sleep(LATE_SECONDS + 2)
    assert service.alive()
    assert not service.ready()
    clock.sleep(LONGEST_WAIT)
    assert not service.alive()


def test_job_of_a_place_that_cannot_be_driven_from_here_keeps_nobody_busy(store):
    store.create(JOBS, "far", Job("far", "nowhere", "team", "me", 1.0, plan={}))
    clock = SystemClock()
    driver = Driver(store, {}, clock, this_process(), workers=1)
    Service(store, driver, clock, Metrics(store, "me"), tick=0.01, say=print).run(until_idle=True)
    driver.close()


def test_metrics_escape_what_they_are_told_and_leave_out_what_nobody_knows(store):
    metrics = Metrics(store, "me")
    hooks = metrics.hooks()
    hooks.timed('cluster "a"\n\\', 0.3)
    hooks.failed("x", Transient("y"))
    hooks.ended(Job("a", "p", "t", "o", 1.0, plan={}, state=State.FAILED, reason=Reason.HOST_LOST))
    text = metrics.text()
    assert r'tpukit_round_seconds_bucket{group="cluster \"a\"\n\\",le="0.25"} 0' in text
    assert r'tpukit_round_seconds_bucket{group="cluster \"a\"\n\\",le="0.5"} 1' in text
    assert 'tpukit_troubles_total{class="Transient"} 1' in text
    assert 'tpukit_jobs_ended_total{state="failed",reason="host lost"} 1' in text
    assert 'tpukit_jobs_active{state="running"} 0' in text
    store.away = True
    assert "tpukit_jobs_active{" not in metrics.text()


def test_metrics_say_what_api_servers_were_asked_for(store):
    before = Metrics(store, "me").text()
    REQUESTS.add("GET", "/api/v1/namespaces/research/odd-things", {})
    assert 'resource="odd-things"' not in before
    assert 'tpukit_api_requests_total{verb="list",resource="odd-things"} 1\n' in Metrics(store, "me").text()


def test_unit_quotes_what_systemd_would_read_otherwise(tmp_path):
    environ = {"TPUKIT_HOME": '/a b/50%/"c"/$HOME', "HOME": "/never", "XDG_CONFIG_HOME": str(tmp_path)}
    text = unit.text(["--tick", "$x 1%"], environ)
    assert 'Environment="TPUKIT_HOME=/a b/50%%/\\"c\\"/$HOME"' in text
    assert '"--tick" "$$x 1%%"' in text
    assert "/never" not in text
    assert unit.path(environ) == Path(tmp_path) / "systemd" / "user" / unit.NAME
