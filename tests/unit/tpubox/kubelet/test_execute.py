"""Commands in containers as requested by the API server: over a WebSocket, in channels."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import random
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO
from urllib.parse import urlencode

import pytest

from support.agent_world import World, with_cpu_node
from tpukit.core.errors import Invalid
from unit.tpubox.kubelet.test_door import connect

world = pytest.fixture(name="world")(with_cpu_node)
SLEEPER = "exec sleep 600"


def execute(
    world: World, *command: str, said: tuple[bytes, ...] = (), wanted: str = "input=1&output=1&error=1"
) -> tuple[dict[int, bytes], dict[str, object]]:
    """Send the input, and return the output by channel and the final status."""
    channels: dict[int, bytes] = {}
    with entered(world, *command, wanted=wanted) as (door, answer):
        for data in said:
            say(door, 130, data)
        for _, data in messages(answer)[:-1]:
            channels[data[0]] = channels.get(data[0], b"") + data[1:]
    return channels, json.loads(channels.pop(3))


@contextmanager
def entered(world: World, *command: str, wanted: str) -> Iterator[tuple[ssl.SSLSocket, BinaryIO]]:
    """Open a WebSocket to a command, and yield its write end and its read end."""
    query = urlencode([("command", word) for word in command])
    key = base64.b64encode(b"0123456789abcdef").decode()
    with connect(world, world.home / "keys") as door, door.makefile("rb") as answer:
        door.sendall(
            f"GET /exec/default/p/main?{query}&{wanted} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
            "Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n".encode()
        )
        assert answer.readline().split()[1] == b"101"
        while answer.readline().strip():
            pass
        yield door, answer


def message(answer: BinaryIO) -> tuple[int, bytes]:
    """Return kind and data of the next frame."""
    first, second = answer.read(2)
    size = second if second < 126 else int.from_bytes(answer.read(2 if second == 126 else 8))
    return first & 15, answer.read(size)


def messages(answer: BinaryIO) -> list[tuple[int, bytes]]:
    """Return all frames up to the closing one."""
    found = [message(answer)]
    while found[-1][0] != 8:
        found.append(message(answer))
    return found


def _free(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def say(door: ssl.SSLSocket, kind: int, data: bytes) -> None:
    mask = b"\1\2\3\4"
    masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))
    door.sendall(bytes([kind, 128 | 127]) + struct.pack("!Q", len(data)) + mask + masked)


def said_to_nobody(door: ssl.SSLSocket, data: bytes) -> bytes:
    """Return the encrypted input without sending it, by redirecting the connection's descriptor during the write."""
    here, there = socket.socketpair()
    with here, there:
        kept = os.dup(door.fileno())
        os.dup2(here.fileno(), door.fileno())
        try:
            say(door, 130, data)
        finally:
            os.dup2(kept, door.fileno())
            os.close(kept)
        return there.recv(1 << 16)


def test_exec_runs_in_the_containers_view_with_its_environment(world: World):
    volumes = [{"name": "d", "emptyDir": {}}]
    script = "echo inside > /data/file; exec sleep 60"
    mounts = [{"name": "d", "mountPath": "/data"}]
    world.shell(script, spec={"volumes": volumes}, volumeMounts=mounts, env=[{"name": "COLOUR", "value": "green"}])
    world.phase("Running")
    world.until(lambda: any(file.read_text() for file in world.home.glob("agent/pods/*/volumes/d/file")))
    script = "cat /data/file -; echo $COLOUR >&2; exit 7"
    channels, status = execute(world, "sh", "-c", script, said=(b"\0typed\n", b"\xff\0"))
    assert channels == {1: b"inside\ntyped\n", 2: b"green\n"}
    assert status["status"] == "Failure"
    assert status["details"] == {"causes": [{"reason": "ExitCode", "message": "7"}]}


def test_exec_prints_all_and_says_that_it_succeeded(world: World):
    world.shell(SLEEPER)
    world.phase("Running")
    channels, status = execute(world, "head", "-c", "100000", "/dev/zero")
    assert (len(channels[1]), status["status"]) == (100000, "Success")


def test_exec_without_input_reads_the_end_of_it_at_once(world: World):
    world.shell(SLEEPER)
    world.phase("Running")
    channels, status = execute(world, "sh", "-c", "cat; echo read", wanted="output=1&error=1")
    assert (channels, status["status"]) == ({1: b"read\n"}, "Success")


def test_exec_gets_more_than_it_reads_at_once_in_pieces_of_any_kind(world: World):
    """Includes input that kubectl does not send: a message in two frames around a ping, and one without a channel."""
    world.shell(SLEEPER)
    world.phase("Running")
    typed = random.Random(1).randbytes(3_000_000)
    with entered(world, "sh", "-c", "sleep 0.3; sha256sum", wanted="input=1&output=1&error=1") as (door, answer):
        say(door, 130, b"")
        say(door, 2, b"\0" + typed[:1000])
        say(door, 137, b"there?")
        say(door, 128, typed[1000:2000])
        for start in range(2000, len(typed), 100_000):
            say(door, 130, b"\0" + typed[start : start + 100_000])
        say(door, 130, b"\xff\0")
        found = messages(answer)
    assert found[:2] == [(10, b"there?"), (2, b"\1" + hashlib.sha256(typed).hexdigest().encode() + b"  -\n")]


def test_exec_prints_while_what_is_typed_has_come_in_half(world: World):
    """Half a TLS record: the socket is readable, but there is no data to read."""
    world.shell(SLEEPER)
    world.phase("Running")
    go = world.shared / "go"
    script = f"until [ -e {go} ]; do sleep 0.05; done; echo printed; read word; echo $word"
    with entered(world, "sh", "-c", script, wanted="input=1&output=1&error=1") as (door, answer):
        written = said_to_nobody(door, b"\0typed\n")
        os.write(door.fileno(), written[:20])
        go.touch()
        assert message(answer) == (2, b"\1printed\n")
        os.write(door.fileno(), written[20:])
        assert message(answer) == (2, b"\1typed\n")


def test_exec_of_a_command_that_does_not_read_ends_with_it(world: World):
    world.shell(SLEEPER)
    world.phase("Running")
    channels, _ = execute(world, "sh", "-c", "exec <&-; echo deaf", said=(b"\0" + bytes(500_000), b"\xff\0"))
    assert channels == {1: b"deaf\n"}


def test_exec_waits_for_what_its_command_left_to_print(world: World):
    world.shell(SLEEPER)
    world.phase("Running")
    channels, status = execute(world, "sh", "-c", "(sleep 0.5; echo late) & echo early")
    assert (channels, status["status"]) == ({1: b"early\nlate\n"}, "Success")


def test_exec_of_a_command_that_a_signal_ended_says_which(world: World):
    world.shell(SLEEPER)
    world.phase("Running")
    _, status = execute(world, "sh", "-c", "kill -9 $$")
    assert status["details"] == {"causes": [{"reason": "ExitCode", "message": "137"}]}


@pytest.mark.parametrize("typed", [0, 500_000], ids=["silent", "with more typed than was read"])
def test_exec_whose_client_goes_is_ended_with_its_children(world: World, typed: int):
    world.shell(SLEEPER)
    world.phase("Running")
    held = world.shared / "held"
    script = f"(flock 9; echo held; sleep 600) 9> {held}; true"
    with entered(world, "sh", "-c", script, wanted="input=1&output=1&error=1") as (door, answer):
        assert answer.read(2 + 6)[-5:] == b"held\n"
        if typed:
            say(door, 130, b"\0" + bytes(typed))
    with held.open("wb") as file:
        world.until(lambda: _free(file))


def test_exec_with_a_terminal_is_typed_into_resized_and_interrupted(world: World):
    world.shell(SLEEPER)
    world.phase("Running")
    script = "stty -echo; echo ready; read word; stty size; echo $word $TERM; echo wrong >&2; exec sleep 600"
    with entered(world, "sh", "-c", script, wanted="input=1&output=1&tty=1") as (door, answer):
        heard = b""
        while b"ready" not in heard:
            heard += message(answer)[1][1:]
        say(door, 130, b'\4{"Width": 91, "Height": 33}')
        say(door, 130, b"\0typed\n")
        while b"wrong" not in heard:
            heard += message(answer)[1][1:]
        assert heard == b"ready\r\n33 91\r\ntyped xterm\r\nwrong\r\n"
        say(door, 130, b"\0\x03")
        *_, status, _ = messages(answer)
    assert json.loads(status[1][1:])["details"] == {"causes": [{"reason": "ExitCode", "message": "130"}]}


def test_exec_in_a_container_that_ended_is_refused(world: World):
    world.shell("true")
    world.phase("Succeeded")
    with pytest.raises(Invalid, match="does not run"):
        world.client._text("exec/default/p/main?command=true")
