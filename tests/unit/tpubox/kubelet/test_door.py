"""The agent's HTTPS server: access, and logs for kubectl."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.agent_world import CPU, NODE, ZONE, World, with_cpu_node
from support.waiting import PATIENCE
from tpubox.box import certificates
from tpubox.kubelet import AgentClient, Fault, Pool, archive, container_logs
from tpukit.core.errors import Denied, Invalid, NotFound
from tpukit.places.local import processes as pods

world = pytest.fixture(name="world")(with_cpu_node)


def connect(world: World, keys: Path | None = None) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(world.home / "keys" / "ca.crt"))
    if keys:
        context.load_cert_chain(keys / "tls.crt", keys / "tls.key")
    plain = socket.create_connection(("127.0.0.1", world.agent.port), timeout=PATIENCE)
    return context.wrap_socket(plain, server_hostname="127.0.0.1")


def status_of(world: World, keys: Path | None = None) -> int:
    with connect(world, keys) as door:
        door.sendall(b"GET /pools HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return int(door.recv(100).split()[1])


def test_door_opens_to_the_sandbox_certificate_and_to_nobody_without_anything(world: World):
    assert status_of(world) == 401
    assert status_of(world, world.home / "keys") == 200


def test_door_stays_shut_to_a_certificate_of_another_authority(world: World, tmp_path: Path):
    with pytest.raises((OSError, IndexError)):  # the kind of refusal depends on timing
        status_of(world, certificates.pair(tmp_path / "other"))


def test_door_stays_shut_to_a_wrong_token(world: World):
    wrong = AgentClient(f"https://127.0.0.1:{world.agent.port}", "guess", world.home / "keys" / "ca.crt")
    with pytest.raises(Denied):
        wrong.pools()


def test_slow_handshake_of_one_holds_up_nobody_else(world: World):
    with socket.create_connection(("127.0.0.1", world.agent.port)):
        assert world.client.pools()


def test_logs_tail_times_and_limits(world: World):
    world.shell("for i in 1 2 3; do echo line $i; done")
    world.phase("Succeeded")
    assert world.log(query="?tailLines=2") == "line 2\nline 3\n"
    assert world.log(query="?limitBytes=8") == "line 1\nl"
    stamped = world.log(query="?timestamps=true&tailLines=1")
    assert stamped.endswith("Z line 3\n") and stamped.startswith("20")
    assert world.log(query="?sinceSeconds=3600") == "line 1\nline 2\nline 3\n"
    assert world.log(query="?sinceTime=2200-01-01T00:00:00Z") == ""


def test_logs_are_of_the_newest_file_alone_while_who_follows_sees_all(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(container_logs, "MAX_FILE_BYTES", 2000)
    more, end = world.shared / "more", world.shared / "end"
    lines = [f"line {number:03d}" for number in range(250)]
    wait = "while [ ! -e {} ]; do sleep 0.02; done"
    # The program waits now and then for its printed lines, because data read at once goes to one file.
    written = 'until cat "$TPUKIT_POD"/log* 2>/dev/null | grep -q "line 0*$i"; do sleep 0.01; done'
    second = f"for i in $(seq 30 249); do printf 'line %03d\\n' $i; [ $((i % 20)) = 0 ] && {written}; done"
    first = "for i in $(seq 0 29); do printf 'line %03d\\n' $i; done"
    world.shell(f"{first}; {wait.format(more)}; {second}; {wait.format(end)}")
    world.until(lambda: world.status().get("phase") == "Running" and "line 029" in world.log())
    assert world.log().splitlines() == lines[:30]
    read, follows = container_logs.read, threading.Event()

    def told_of(run: Path, wanted: container_logs.Wanted) -> Iterator[bytes]:
        for piece in read(run, wanted):
            if wanted.follow:
                follows.set()
            yield piece

    monkeypatch.setattr(container_logs, "read", told_of)
    with ThreadPoolExecutor() as threads:
        following = threads.submit(world.log, query="?follow=true&tailLines=30")
        assert follows.wait(PATIENCE)
        more.touch()
        world.until(lambda: "line 249" in world.log())
        newest = world.log().splitlines()
        end.touch()
        assert following.result().splitlines() == lines
    world.phase("Succeeded")
    (run,) = (world.home / "agent" / "pods").glob("*/main/0")
    files = pods.log_files(run)
    assert len(files) > 1
    assert newest == [line.split(" ", 3)[-1] for line in files[-1].read_text().splitlines()] == lines[-len(newest) :]
    assert world.log(query="?tailLines=2").splitlines() == lines[-2:]


def test_logs_older_than_the_newest_five_files_are_with_cloud_logging_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(container_logs, "MAX_FILE_BYTES", 1)
    gate = world.shared / "gate"
    written = 'until cat "$TPUKIT_POD"/log* 2>/dev/null | grep -q "F $i$"; do sleep 0.01; done'
    wait = f"until [ -e {gate} ]; do sleep 0.05; done"
    world.shell(f"for i in 1 2 3 4 5 6 7 8; do echo $i; {written}; done; {wait}")
    world.until(lambda: world.status().get("phase") == "Running" and world.log() == "8\n")
    (run,) = (world.home / "agent" / "pods").glob("*/main/0")
    world.agent.kubelet.collect_logs()
    assert [file.name for file in pods.log_files(run)] == ["log.3", "log.4", "log.5", "log.6", "log.7"]
    printed = sorted(archive.printed(world.home / "agent"), key=lambda one: one.file)
    texts = [next(path for path in one.paths if path.exists()).read_text() for one in printed]
    assert [line.split(" ", 3)[-1] for text in texts for line in text.splitlines()] == list("12345678")
    gate.touch()
    world.phase("Succeeded")


def test_logs_follow_until_the_container_ends(world: World):
    gate = world.shared / "gate"
    world.shell(f"echo first; until [ -e {gate} ]; do sleep 0.05; done; echo last")
    world.phase("Running")
    with ThreadPoolExecutor(1) as threads:
        following = threads.submit(world.log, query="?follow=true")
        world.until(lambda: world.log() == "first\n")
        time.sleep(0.3)
        assert not following.done()
        gate.touch()
        assert following.result() == "first\nlast\n"


def test_logs_of_what_is_not_there_are_refused_with_a_sentence(world: World):
    with pytest.raises(NotFound, match='pod "nobody" not found'):
        world.log("nobody")
    world.shell("true")
    world.phase("Succeeded")
    with pytest.raises(Invalid, match="previous terminated container"):
        world.log(query="?previous=true")
    with pytest.raises(Invalid, match="not a way to ask for logs"):
        world.log(query="?tailLines=many")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"name": "Bad Name", "machine_type": "e2-standard-4", "nodes": {"n": ZONE}}, "not the name of a pool"),
        ({"name": "p", "machine_type": "e2-standard-4", "nodes": {}}, "has no nodes"),
        ({"name": "p", "machine_type": "ct4p-hightpu-4t", "topology": "2x2x2", "nodes": {"n": ZONE}}, "has 2 hosts"),
        ({"name": "p", "machine_type": "ct4p-hightpu-4t", "topology": "9x9", "nodes": {"n": ZONE}}, "no TPU with"),
        ({"name": "p", "colour": "green"}, "has no colour"),
        ({"name": "p"}, "needs name, machine_type and nodes"),
    ],
)
def test_pool_that_cannot_be_is_refused(world: World, body: dict[str, object], message: str):
    with pytest.raises(Invalid, match=message):
        world.client._call("POST", "pools", body)


def test_pool_twice_is_once_and_with_other_nodes_has_those(world: World):
    world.client.add_pool(CPU)
    world.client.add_pool(CPU)
    assert list(world.client.pools()) == ["cpu"]
    world.client.add_pool(Pool("cpu", "e2-standard-4", {"other": ZONE}))
    assert list(world.client.pools()["cpu"]["pool"]["nodes"]) == ["other"]


def test_fault_on_what_is_not_there_and_fault_that_is_none_are_refused(world: World):
    with pytest.raises(NotFound, match="no pool or host nowhere"):
        world.client.preempt("nowhere")
    with pytest.raises(Invalid, match="preempt, drain, hang, lose, restore"):
        world.client._cause(Fault("explode", NODE))


def test_many_readers_at_once_all_get_the_log(world: World):
    world.shell("for i in 1 2 3; do echo $i; sleep 0.2; done")
    world.phase("Running", "Succeeded")
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(world.log(query="?follow=true"))) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["1\n2\n3\n"] * 10
