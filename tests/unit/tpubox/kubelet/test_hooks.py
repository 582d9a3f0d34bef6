"""Hooks of containers on the node agent, run against real processes."""

from __future__ import annotations

import errno
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support.agent_world import World, with_cpu_node
from support.waiting import PATIENCE, alive

world = pytest.fixture(name="world")(with_cpu_node)
LEAVES = "trap 'echo told; exit 0' TERM"
FOREVER = "while :; do sleep 0.05; done"


def command(*lines: str) -> dict[str, Any]:
    return {"exec": {"command": ["/bin/sh", "-c", "\n".join(lines)]}}


def wait_for(path: Path) -> str:
    return f"until [ -e {path} ]; do sleep 0.05; done"


def warnings(world: World) -> set[tuple[str, str]]:
    return {(event["reason"], event["message"]) for event in world.api.list("Event")}


def line_by_line(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def test_container_is_told_to_leave_when_its_hook_is_done(world: World):
    here, go = world.shared / "here", world.shared / "go"
    world.listening(LEAVES, lifecycle={"preStop": command(f"touch {here}", wait_for(go))})
    world.api.delete_pod("p")
    world.until(here.exists)
    assert "running" in world.container()["state"]
    assert world.log() == "ready\n"
    go.touch()
    world.until(world.gone)
    assert world.api.phases[-1] == ("p", "Succeeded")
    assert warnings(world) == set()


def test_hook_that_takes_all_the_grace_is_ended_with_its_container(world: World):
    pids = world.shared / "pids"
    hook = command(f"echo $$ > {pids}", "sleep 600")
    world.listening(LEAVES, lifecycle={"preStop": hook}, spec={"terminationGracePeriodSeconds": 6})
    world.api.delete_pod("p")
    world.until(world.gone)
    assert world.api.phases[-1] == ("p", "Failed")
    world.until(lambda: not alive(int(pids.read_text())))


@pytest.mark.parametrize("hook", [command("exit 3"), {"httpGet": {"port": 1}}, {"tcpSocket": {"port": 1}}])
def test_hook_that_fails_is_said_and_its_container_told_all_the_same(world: World, hook: dict[str, Any]):
    world.listening(LEAVES, lifecycle={"preStop": hook})
    world.api.delete_pod("p")
    world.until(world.gone)
    assert world.api.phases[-1] == ("p", "Succeeded")
    assert warnings(world) == {("FailedPreStopHook", "PreStopHook failed")}


def test_hook_that_asks_by_http_has_done_it_whatever_the_answer_is(world: World):
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as threads:
        asked = threads.submit(_refuse, server)
        hook = {"httpGet": {"host": "127.0.0.1", "port": server.getsockname()[1], "path": "/leave"}}
        world.listening(LEAVES, lifecycle={"preStop": hook})
        world.api.delete_pod("p")
        assert asked.result(PATIENCE).startswith(b"GET /leave HTTP/1.1\r\n")
        world.until(world.gone)
    assert warnings(world) == set()


def _refuse(server: socket.socket) -> bytes:
    caller, _ = server.accept()
    with caller:
        heard = caller.recv(1 << 16)
        caller.sendall(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")
        return heard


def test_hook_that_sleeps_is_over_after_it(world: World):
    world.listening(LEAVES, lifecycle={"preStop": {"sleep": {"seconds": 1}}})
    world.api.delete_pod("p")
    world.until(world.gone)
    assert (world.api.phases[-1], warnings(world)) == (("p", "Succeeded"), set())


def test_container_that_ends_by_itself_has_no_hook(world: World):
    here = world.shared / "here"
    world.shell("true", lifecycle={"preStop": command(f"touch {here}")})
    world.phase("Succeeded")
    world.api.delete_pod("p")
    world.until(world.gone)
    assert not here.exists()


def test_hooks_of_a_pod_run_side_by_side_and_its_sidecar_is_told_last(world: World):
    order = world.shared / "order"
    both = [world.shared / name for name in ("main", "side")]

    def container(name: str) -> dict[str, Any]:
        script = f"trap 'echo {name} told >> {order}; exit 0' TERM; touch {world.shared / name}-up; {FOREVER}"
        hook = command(f"touch {world.shared / name}", *map(wait_for, both), f"echo {name} hook >> {order}")
        return {"name": name, "image": "i", "command": ["/bin/sh", "-c", script], "lifecycle": {"preStop": hook}}

    side = {**container("side"), "restartPolicy": "Always"}
    world.pod(spec={"initContainers": [side], "containers": [container("main")]})
    world.until(lambda: all(Path(f"{path}-up").exists() for path in both))
    world.api.delete_pod("p")
    world.until(world.gone)
    told = line_by_line(order)
    assert sorted(told) == ["main hook", "main told", "side hook", "side told"]
    assert told.index("main told") < told.index("side told")


def test_container_that_a_probe_ends_has_its_hook_before(world: World):
    order, up = world.shared / "order", world.shared / "up"
    trap = f"trap 'echo told >> {order}; exit 1' TERM"
    probe = {**command(f"test ! -e {up}"), "periodSeconds": 0.1, "timeoutSeconds": 60, "failureThreshold": 1}
    hook = {"preStop": command(f"echo hook >> {order}")}
    world.shell(f"{trap}; touch {up}; {FOREVER}", livenessProbe=probe, lifecycle=hook)
    world.phase("Failed")
    assert line_by_line(order) == ["hook", "told"]


def test_container_has_started_when_its_hook_is_done_and_is_probed_from_then_on(world: World):
    here, go, probed = (world.shared / name for name in ("here", "go", "probed"))
    hook = {"postStart": command(f"echo begun >> {here}", wait_for(go))}
    probe = {"exec": {"command": ["touch", str(probed)]}, "periodSeconds": 0.1, "timeoutSeconds": 60}
    world.shell(FOREVER, lifecycle=hook, readinessProbe=probe)
    world.until(here.exists)
    world.phase("Running")
    assert (world.container()["started"], world.container()["ready"], probed.exists()) == (False, False, False)
    go.touch()
    world.until(lambda: world.container()["started"] and world.container()["ready"])
    assert probed.exists()
    assert line_by_line(here) == ["begun"]


def test_container_whose_first_hook_fails_is_ended_and_started_again_if_it_failed(world: World):
    up, first = world.shared / "up", world.shared / "first"
    hook = {"postStart": command(wait_for(up), f"[ -e {first} ] && exit 0", f"touch {first}", "false")}
    ends = f"trap 'exit 1' TERM; touch {up}; {FOREVER}"
    world.shell(ends, lifecycle=hook, spec={"restartPolicy": "OnFailure"})
    world.until(lambda: world.status().get("containerStatuses") and world.container()["restartCount"] == 1)
    world.until(lambda: world.container()["ready"])
    assert ("FailedPostStartHook", "PostStartHook failed") in warnings(world)


def test_container_whose_first_hook_fails_and_that_leaves_with_0_is_done(world: World):
    up = world.shared / "up"
    hook = {"postStart": command(wait_for(up), "false")}
    world.shell(f"{LEAVES}; touch {up}; {FOREVER}", lifecycle=hook, spec={"restartPolicy": "OnFailure"})
    world.phase("Succeeded")


def test_container_whose_first_hook_fails_is_ended_though_that_cannot_be_written(world: World, monkeypatch):
    """A full disk is one cause."""
    up = world.shared / "up"
    write = Path.write_text

    def full(path: Path, *words: Any, **more: Any) -> int:
        if path.name == "post-start":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, *words, **more)

    monkeypatch.setattr(Path, "write_text", full)
    world.shell(f"trap 'exit 1' TERM; touch {up}; {FOREVER}", lifecycle={"postStart": command(wait_for(up), "false")})
    world.phase("Failed")


def test_first_hook_is_not_run_again_by_an_agent_that_comes_after_another(world: World):
    here = world.shared / "here"
    world.shell(FOREVER, lifecycle={"postStart": command(f"echo begun >> {here}")})
    world.until(lambda: world.status().get("containerStatuses") and world.container()["ready"])
    world.stop()
    again = World(world.home, world.api)
    try:
        again.shell("true", name="q")
        again.phase("Succeeded", name="q")
        assert again.container()["ready"]
        assert line_by_line(here) == ["begun"]
    finally:
        again.close()


def test_agent_that_comes_in_the_middle_of_a_last_hook_begins_it_again(world: World):
    here, go = world.shared / "here", world.shared / "go"
    hook = {"preStop": command(f"echo begun >> {here}", wait_for(go))}
    world.listening(LEAVES, lifecycle=hook)
    world.api.delete_pod("p")
    world.until(lambda: line_by_line(here) == ["begun"])
    world.stop()
    again = World(world.home, world.api)
    try:
        again.until(lambda: line_by_line(here) == ["begun", "begun"])
        go.touch()
        again.until(again.gone)
        assert again.api.phases[-1] == ("p", "Succeeded")
    finally:
        again.close()
