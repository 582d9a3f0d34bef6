"""Connections that hang or are cut, limits on concurrent requests, and pauses requested by refusals."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from support.google_world import PROJECT, World
from support.waiting import PATIENCE, until
from tpubox.google.wire.faults import Fault
from tpubox.google.wire.server import Emulator
from tpubox.google.wire.settings import EVERY_API, Settings
from tpukit.core.errors import Invalid, Transient, seconds_of
from tpukit.google import gke, objects
from tpukit.google.refusals import is_quota, translated

NETWORKS = f"compute/v1/projects/{PROJECT}/global/networks"
NET = {"name": "net", "autoCreateSubnetworks": False}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


@pytest.fixture
def emulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    with World(tmp_path) as world:
        world.cluster()
    with Emulator(tmp_path, Settings(enabled=EVERY_API)) as running:
        for name, value in running.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", running.storage_host)
        yield running


@pytest.mark.parametrize("kind", ["cut", "hang"])
def test_request_whose_connection_is_cut_or_hangs_is_not_done(world, kind):
    world.cloud.faults.set(Fault(kind, match="POST .*networks", times=1))
    assert world.send("POST", NETWORKS, NET)[0] == 503
    assert [one["name"] for one in world.ask("GET", NETWORKS)["items"]] == ["default"]
    world.ask("POST", NETWORKS, NET)


def ask(emulator: Emulator, path: str, seconds: float = 30.0) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", emulator.port, timeout=seconds)
    with closing(connection):
        connection.request("GET", f"/{path}", headers={"Authorization": f"Bearer {emulator.token}"})
        answer = connection.getresponse()
        answer.read()
        return answer.status


def test_connection_that_hangs_is_silent_for_as_long_as_it_was_told_and_then_cut(emulator):
    emulator.cloud.faults.set(Fault("hang", match="GET .*networks", seconds=1.0, times=1))
    began = time.monotonic()
    with pytest.raises((http.client.HTTPException, OSError)):
        ask(emulator, NETWORKS)
    assert time.monotonic() - began >= 1.0
    assert ask(emulator, NETWORKS) == 200


def test_connection_that_hangs_holds_up_neither_other_requests_nor_the_end(tmp_path):
    with Emulator(tmp_path, Settings(enabled=EVERY_API)) as emulator:
        emulator.cloud.faults.set(Fault("hang", match="GET .*networks", seconds=600.0))
        waiting = threading.Thread(target=lambda: ask_in_vain(emulator), daemon=True)
        waiting.start()
        until(lambda: emulator.cloud.faults.table()[0]["struck"], "the connection to hang")
        assert ask(emulator, NETWORKS.replace("networks", "firewalls")) == 200
    waiting.join(PATIENCE)
    assert not waiting.is_alive()


def ask_in_vain(emulator: Emulator) -> None:
    with suppress(http.client.HTTPException, OSError):
        ask(emulator, NETWORKS, 600.0)


def test_gke_client_gives_up_a_connection_that_hangs_and_may_ask_again(emulator, monkeypatch):
    monkeypatch.setattr(gke, "SECONDS", 0.5)
    client = gke.Client(PROJECT, "us-central2", "one")
    emulator.cloud.faults.set(Fault("hang", match="GET .*nodePools", times=1))
    with pytest.raises(Transient, match="got no response"):
        client.pools()
    monkeypatch.setattr(gke, "SECONDS", 60.0)
    assert client.pools() == []


def test_rate_refuses_what_comes_too_often_until_time_has_passed(world):
    world.cloud.faults.set(Fault("rate", match="GET .*networks", limit=3, seconds=60.0))
    assert [world.send("GET", NETWORKS)[0] for _ in range(5)] == [200, 200, 200, 429, 429]
    world.ask("POST", NETWORKS, NET)
    world.pass_time(59.0)
    status, answer = world.send("GET", NETWORKS)
    assert status == 429
    (detail,) = answer["error"]["details"]
    assert (detail["reason"], detail["metadata"]["service"]) == ("RATE_LIMIT_EXCEEDED", "compute.googleapis.com")
    world.pass_time(2.0)
    assert [world.send("GET", NETWORKS)[0] for _ in range(4)] == [200, 200, 200, 429]


def test_rate_that_is_set_anew_counts_anew(world):
    for limit in (2, 3):
        world.cloud.faults.set(Fault("rate", name="often", match="GET .*networks", limit=limit))
        assert [world.send("GET", NETWORKS)[0] for _ in range(limit + 1)] == [*[200] * limit, 429]


def test_rate_that_is_exceeded_passes_by_itself_and_is_no_quota_of_chips(emulator):
    client = gke.Client(PROJECT, "us-central2", "one")
    emulator.cloud.faults.set(Fault("rate", match="GET .*operations", limit=1))
    client.operations()
    with pytest.raises(Transient) as refused:
        client.operations()
    assert refused.value.retry_after and not is_quota(str(refused.value))


def test_refusal_that_asks_for_a_pause_is_told_to_whoever_asked(emulator):
    client = gke.Client(PROJECT, "us-central2", "one")
    emulator.cloud.faults.set(Fault("refuse", match="GET .*operations", status=429, seconds=17.0, times=1))
    with pytest.raises(Transient) as refused:
        client.operations()
    assert refused.value.retry_after == 17.0


def test_storage_that_asks_for_a_pause_is_left_alone_for_as_long(emulator, monkeypatch):
    pauses: list[float] = []
    monkeypatch.setattr(objects.SYSTEM, "sleep", pauses.append)
    emulator.cloud.faults.set(Fault("refuse", match="GET .*b/none/o", status=503, seconds=9.0, times=1))
    with pytest.raises(Exception, match="listing gs://none/x"):
        objects.listed("gs://none/x")
    assert [pause for pause in pauses if pause >= 9.0] == [9.0]


@pytest.mark.parametrize(
    ("text", "seconds"), [("17", 17.0), ("", 0.0), ("Wed, 21 Oct 2026 07:28:00 GMT", 0.0), ("-1", 0.0)]
)
def test_retry_after_is_read_as_seconds_alone(text, seconds):
    assert seconds_of(text) == seconds


def test_refusal_without_a_response_asks_for_no_pause():
    error = type("Refused", (Exception,), {"code": 503, "message": "no", "response": None})()
    found = translated(error, "create")
    assert isinstance(found, Transient) and found.retry_after == 0.0


@pytest.mark.parametrize(("kind", "limit"), [("rate", 0), ("rate", -1), ("refuse", 3)])
def test_fault_with_a_limit_that_it_cannot_have_is_refused(kind, limit):
    with pytest.raises(Invalid):
        Fault(kind, limit=limit)
