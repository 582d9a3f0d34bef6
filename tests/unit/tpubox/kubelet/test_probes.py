"""Probes of containers on the node agent, against real processes."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.agent_world import World, with_cpu_node
from support.ports import free_port
from support.waiting import PATIENCE, alive
from tpubox.kubelet import handlers
from tpubox.kubelet.probes import Tally
from tpukit.places.local import processes as pods

world = pytest.fixture(name="world")(with_cpu_node)

SOON = {"periodSeconds": 0.1, "timeoutSeconds": 60}
FOREVER = "while :; do sleep 0.05; done"
POD_IP = [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
SERVER = """
import http.server, os, pathlib, sys
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(int(pathlib.Path(sys.argv[1]).read_text()) if self.path == "/readyz" else 404)
        self.end_headers()
    def log_message(self, *_): pass
http.server.HTTPServer((os.environ["POD_IP"], int(sys.argv[2])), Answers).serve_forever()
"""


def exists(path: object, **fields: Any) -> dict[str, Any]:
    """Return a probe that succeeds while the file exists."""
    return {"exec": {"command": ["/bin/sh", "-c", f"test -e {path} || {{ echo no file; false; }}"]}, **SOON, **fields}


def ready(world: World, name: str = "p") -> str:
    return next(one["status"] for one in world.status(name).get("conditions", []) if one["type"] == "Ready")


def said(world: World) -> set[str]:
    return {one["message"] for one in world.events("Unhealthy")}


@given(st.lists(st.booleans()), st.integers(1, 4), st.integers(1, 4), st.sampled_from([None, True, False]))
def test_tally_is_what_was_said_often_enough_in_a_row_and_stays_until_something_else_is(said_, good, bad, first):
    tally, expected = Tally(first), first
    for number, one in enumerate(said_, start=1):
        tally = tally.after(one, {"successThreshold": good, "failureThreshold": bad})
        needed = good if one else bad
        if said_[max(0, number - needed) : number] == [one] * needed:
            expected = one
        assert tally.value is expected


def test_container_is_ready_when_its_probe_succeeds_and_not_when_it_fails_often_enough(world: World):
    here = world.shared / "here"
    world.shell(FOREVER, readinessProbe=exists(here, failureThreshold=2))
    status = world.phase("Running")
    assert (ready(world), status["containerStatuses"][0]["ready"]) == ("False", False)
    assert status["containerStatuses"][0]["started"], "it has no probe for that"
    world.until(lambda: said(world) == {"Readiness probe failed: no file\n"})
    here.touch()
    world.until(lambda: ready(world) == "True" and world.container()["ready"])
    here.unlink()
    world.until(lambda: ready(world) == "False" and not world.container()["ready"])
    assert world.container()["restartCount"] == 0
    assert "running" in world.container()["state"]


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [("Always", 0, True), ("OnFailure", 0, True), ("OnFailure", 3, True), ("Never", 0, False)],
)
def test_container_whose_liveness_probe_fails_is_ended_and_started_again_unless_it_never_is(
    world: World, policy: str, code: int, again: bool
):
    sick = world.shared / "sick"
    probe = {"exec": {"command": ["/bin/sh", "-c", f"test ! -e {sick}"]}, **SOON, "failureThreshold": 2}
    script = f"trap 'rm -f {sick}; exit {code}' TERM; echo ready; {FOREVER}"
    world.shell(script, livenessProbe=probe, spec={"restartPolicy": policy})
    world.phase("Running")
    world.until(lambda: world.log() == "ready\n")
    sick.touch()
    if not again:
        assert world.phase("Succeeded")["containerStatuses"][0]["restartCount"] == 0
        return
    world.until(lambda: world.container()["restartCount"] == 1 and "running" in world.container()["state"])
    assert world.container()["lastState"]["terminated"]["exitCode"] == code
    assert world.status()["phase"] == "Running"


def test_container_that_does_not_leave_for_its_probe_is_killed_after_the_probes_own_grace(world: World):
    probe = {"exec": {"command": ["false"]}, **SOON, "failureThreshold": 1, "terminationGracePeriodSeconds": 1}
    world.shell(f"trap '' TERM; {FOREVER}", livenessProbe=probe, spec={"terminationGracePeriodSeconds": 3600})
    world.until(lambda: world.phase("Failed")["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137)


def test_container_has_not_started_and_is_not_probed_otherwise_before_its_startup_probe_succeeds(world: World):
    up, asked = world.shared / "up", world.shared / "asked"
    sick = {"exec": {"command": ["/bin/sh", "-c", f"touch {asked}; false"]}, **SOON, "failureThreshold": 1000}
    world.shell(FOREVER, startupProbe=exists(up, failureThreshold=1000), readinessProbe=sick, livenessProbe=sick)
    world.phase("Running")
    world.until(lambda: said(world) == {"Startup probe failed: no file\n"})
    assert not world.container()["started"]
    assert not asked.exists()
    up.touch()
    world.until(lambda: world.container()["started"] and asked.exists())
    assert not world.container()["ready"]


def test_container_that_never_starts_by_its_probe_is_ended(world: World):
    world.shell(FOREVER, startupProbe=exists("/nowhere", failureThreshold=2), spec={"terminationGracePeriodSeconds": 1})
    assert world.phase("Failed")["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137


def test_request_of_a_probe_goes_to_the_pods_address_and_a_port_by_its_name(world: World):
    code, port = world.shared / "code", free_port()
    code.write_text("500")
    probe = {"httpGet": {"path": "/readyz", "port": "web"}, **SOON}
    named = [{"name": "web", "containerPort": port}]
    world.pod("python", "-c", SERVER, str(code), str(port), env=POD_IP, ports=named, readinessProbe=probe)
    world.until(lambda: "Readiness probe failed: HTTP probe failed with statuscode: 500" in said(world))
    assert ready(world) == "False"
    code.write_text("204")
    world.until(lambda: ready(world) == "True")


@pytest.mark.parametrize(
    ("probe", "words"),
    [
        ({"httpGet": {"path": "/", "port": 1}}, "connect: connection refused"),
        ({"tcpSocket": {"port": 1}}, ":1: connect: connection refused"),
        ({"tcpSocket": {"port": "nobody"}}, "couldn't find port: nobody"),
        ({"exec": {"command": ["sleep", "60"]}, "timeoutSeconds": 0.2}, "timed out after 0.2s"),
        ({"exec": {"command": ["/no/such/program"]}}, "No such file or directory"),
        ({"exec": {"command": ["sh", "-c", "exit 4"]}}, "exit code 4"),
        ({"exec": {"command": ["sh", "-c", "sleep 60 & echo child; exit 4"]}}, "child"),
        ({"exec": {"command": ["sh", "-c", "setsid sleep 60 & exit 4"]}}, "exit code 4"),
        ({"exec": {"command": ["sh", "-c", "yes & sleep 60"]}, "timeoutSeconds": 0.5}, "timed out after 0.5s"),
        ({"httpGet": {"port": 1, "httpHeaders": [{"name": "A", "value": "x\ny"}]}}, "Invalid header value"),
    ],
)
def test_probe_that_finds_nobody_says_why(world: World, probe: dict[str, Any], words: str):
    world.shell(FOREVER, readinessProbe={**SOON, **probe})
    world.phase("Running")
    world.until(lambda: any(words in one for one in said(world)))
    assert ready(world) == "False"


def test_command_of_a_probe_that_takes_too_long_is_killed_with_all_that_it_started(world: World):
    pids = world.shared / "pids"
    command = ["sh", "-c", f"sleep 600 & echo $! >> {pids}; wait"]
    world.shell(FOREVER, readinessProbe={**SOON, "exec": {"command": command}, "timeoutSeconds": 1})
    first = int(world.until(lambda: pids.exists() and pids.read_text().split())[0])
    world.until(lambda: not alive(first))
    assert "running" in world.container()["state"]


def test_command_of_a_probe_that_prints_much_is_heard_as_far_as_a_kubelet_listens(world: World):
    world.shell(FOREVER)
    world.phase("Running")
    (run,) = world.home.glob("agent/pods/*/main/0")
    probe = {"exec": {"command": ["sh", "-c", "head -c 1000000 /dev/zero; exit 1"]}, **SOON}
    assert len(handlers.trouble(probe, {}, run, pods.status(run).pid, "")) == 10 << 10


def test_command_of_a_probe_is_heard_though_nobody_had_time_to_listen_before_its_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        handlers.execute,
        "start",
        lambda run, pid, words, **pipes: subprocess.Popen(words, start_new_session=True, **pipes),
    )
    busy, listen = threading.Event(), handlers._listen
    monkeypatch.setattr(handlers, "_listen", lambda *given: (busy.wait(PATIENCE), listen(*given)))
    try:
        asked = {"command": ["sh", "-c", "setsid sleep 3 & echo not yet; exit 1"]}
        assert handlers.command(asked, Path(), 0, PATIENCE) == "not yet\n"
    finally:
        busy.set()


def test_server_that_answers_a_probe_byte_by_byte_is_not_waited_for():
    """Each byte comes in time, the whole answer never does."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as threads:
        answering = threads.submit(_drip, server)
        probe = {"httpGet": {"path": "/", "port": server.getsockname()[1]}, "timeoutSeconds": 1}
        assert "deadline exceeded" in handlers.trouble(probe, {}, Path(), 0, "127.0.0.1")
        assert isinstance(answering.exception(PATIENCE), OSError), "nobody listens any more"


def _drip(server: socket.socket) -> None:
    caller, _ = server.accept()
    with caller:
        caller.sendall(b"HTTP/1.1 200 OK\r\nX: ")
        assert all(one.daemon for one in threading.enumerate() if isinstance(one, threading.Timer))
        while True:
            caller.sendall(b"x")
            time.sleep(0.1)


def test_sidecar_that_has_not_started_by_its_probe_keeps_the_main_container_waiting(world: World):
    up = world.shared / "up"
    side = {"name": "side", "image": "i", "command": ["/bin/sh", "-c", FOREVER], "restartPolicy": "Always"}
    side["startupProbe"] = exists(up, failureThreshold=1000)
    world.shell("echo main", spec={"initContainers": [side], "terminationGracePeriodSeconds": 1})
    world.until(lambda: said(world) == {"Startup probe failed: no file\n"})
    assert world.status()["phase"] == "Pending"
    assert not world.container(which="initContainerStatuses")["started"]
    up.touch()
    world.phase("Succeeded")
    assert world.log() == "main\n"


def test_container_that_was_ready_is_ready_for_an_agent_that_comes_after_another(world: World):
    here = world.shared / "here"
    here.touch()
    probe = exists(here, failureThreshold=1000)
    world.shell(FOREVER, readinessProbe=probe, startupProbe=probe)
    world.until(lambda: world.status().get("conditions") and ready(world) == "True")
    world.stop()
    here.unlink()
    again = World(world.home, world.api)
    try:
        again.until(lambda: said(again) == {"Readiness probe failed: no file\n"})
        assert ready(again) == "True"
    finally:
        again.close()
