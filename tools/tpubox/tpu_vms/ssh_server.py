"""The SSH server of a host: authenticates by key, and runs commands as sshd does.

A command runs in its own session with bash. It outlives the connection unless it has a terminal, which hangs up. The
response to a command waits until no process holds its output open.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import signal
import socket
import struct
import termios
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncssh

from tpubox.tpu_vms.logins import ROOT
from tpubox.tpu_vms.processes import Children

Environment = Callable[[str], Mapping[str, str]]
_ACCEPTED = ("LANG", "LC_")  # variables that sshd accepts from a client: AcceptEnv of Debian and Ubuntu
_CHUNK = 1 << 16


class SshServer:
    """A server that queries `keys` for a user's public keys at every login, and `environment` for session variables."""

    def __init__(
        self, host_key: Path, keys: Callable[[str], list[str]], environment: Environment, children: Children
    ) -> None:
        self._host_key = host_key
        self._keys = keys
        self._environment = environment
        self._children = children
        self._connections: set[asyncssh.SSHServerConnection] = set()
        self._acceptors: list[asyncssh.SSHAcceptor] = []
        self._sessions: set[asyncio.Task[None]] = set()

    async def listen(self, listeners: list[socket.socket]) -> None:
        for listener in listeners:
            self._acceptors.append(
                await asyncssh.listen(
                    sock=listener,
                    server_factory=lambda: _Login(self._keys, self._connections),
                    server_host_keys=[str(self._host_key)],
                    process_factory=self._serve,
                    sftp_factory=self._files,
                    allow_scp=True,
                    encoding=None,
                    line_editor=False,
                    agent_forwarding=False,
                )
            )

    def stop_listening(self) -> None:
        for acceptor in self._acceptors:
            acceptor.close()
        self._acceptors.clear()

    def cut(self) -> None:
        """Abort every connection without notice."""
        for connection in list(self._connections):
            connection.abort()

    def _files(self, channel: asyncssh.SSHServerChannel[bytes]) -> _Files:
        home = self._environment(channel.get_extra_info("username"))["HOME"]
        return _Files(channel, os.fsencode(home))

    async def _serve(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._sessions.add(task)
        task.add_done_callback(self._sessions.discard)
        env = dict(self._environment(process.get_extra_info("username")))
        local, peer = process.get_extra_info("sockname"), process.get_extra_info("peername")
        env["SSH_CLIENT"] = f"{peer[0]} {peer[1]} {local[1]}"
        env["SSH_CONNECTION"] = f"{peer[0]} {peer[1]} {local[0]} {local[1]}"
        env |= {name: value for name, value in process.env.items() if name.startswith(_ACCEPTED)}
        argv = ["/bin/bash", "-c", process.command] if process.command else ["/bin/bash", "-l"]
        run = self._with_terminal if process.term_type else self._with_pipes
        try:
            code = await run(process, argv, env)
        except (OSError, asyncssh.Error):
            return  # the connection is lost
        if code is None or process.is_closing():
            return
        if code < 0:
            process.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))
        else:
            process.exit(code)

    async def _with_pipes(
        self, process: asyncssh.SSHServerProcess[bytes], argv: list[str], env: Mapping[str, str]
    ) -> int | None:
        inward, outward, errors = os.pipe(), os.pipe(), os.pipe()
        try:
            child = await self._children.start(argv, env, stdin=inward[0], stdout=outward[1], stderr=errors[1])
        finally:
            for handle in (inward[0], outward[1], errors[1]):
                os.close(handle)
        feeding = asyncio.ensure_future(_feed(process, inward[1], child.pid))
        outputs = asyncio.gather(_drain(outward[0], process.stdout), _drain(errors[0], process.stderr))
        return await _until_closed(process, child, outputs, feeding)

    async def _with_terminal(
        self, process: asyncssh.SSHServerProcess[bytes], argv: list[str], env: Mapping[str, str]
    ) -> int | None:
        ours, theirs = pty.openpty()
        _resize(ours, process.term_size)
        env = {**env, "TERM": str(process.term_type)}
        try:
            # setsid first: a session takes the first terminal that it opens as its own.
            argv = ["/bin/bash", "-c", 'exec "$@" <>"$0" >&0 2>&1', os.ttyname(theirs), *argv]
            child = await self._children.start(argv, env, stdin=theirs, stdout=theirs, stderr=theirs)
        finally:
            os.close(theirs)
        feeding = asyncio.ensure_future(_feed(process, os.dup(ours), child.pid, terminal=True))
        outputs = asyncio.gather(_drain(ours, process.stdout))
        return await _until_closed(process, child, outputs, feeding)


class _Login(asyncssh.SSHServer):
    def __init__(self, keys: Callable[[str], list[str]], connections: set[asyncssh.SSHServerConnection]) -> None:
        self._keys = keys
        self._connections = connections

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._connections.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self._connection)

    def begin_auth(self, username: str) -> bool:
        if username == ROOT:
            self._connection.send_auth_banner("root cannot log in to a TPU VM: write USER@NAME, and use sudo there\n")
        lines = "\n".join(self._keys(username))
        self._connection.set_authorized_keys(asyncssh.import_authorized_keys(lines))
        return True

    def public_key_auth_supported(self) -> bool:
        return True  # also for users without keys: they are asked, and refused

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        return True  # `ssh -L` to a TensorBoard there


class _Files(asyncssh.SFTPServer):
    """Files of this machine; relative paths and ~ are below the user's home."""

    def __init__(self, channel: asyncssh.SSHServerChannel[bytes], home: bytes) -> None:
        super().__init__(channel)
        self._home = home

    def map_path(self, path: bytes) -> bytes:
        if path == b"~" or path.startswith(b"~/"):
            path = path[2:]
        return os.path.join(self._home, path)  # noqa: PTH118 (bytes)

    def exit(self) -> None:
        # Without a status OpenSSH's scp copies everything and reports a failure.
        self.channel.exit(0)


async def _until_closed(
    process: asyncssh.SSHServerProcess[bytes],
    child: asyncio.subprocess.Process,
    outputs: asyncio.Future[Any],
    feeding: asyncio.Future[None],
) -> int | None:
    """Return the exit code once all output is sent; None if the connection closed first."""
    closed = asyncio.ensure_future(process.wait_closed())
    try:
        await asyncio.wait((outputs, closed), return_when=asyncio.FIRST_COMPLETED)
        if not outputs.done():
            return None
        return await child.wait()
    finally:
        for task in (outputs, feeding, closed):
            task.cancel()
            with suppress(asyncio.CancelledError, OSError, asyncssh.Error):
                await task


async def _drain(handle: int, writer: asyncssh.SSHWriter[bytes]) -> None:
    """Copy the output of a program until no process holds the other end."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), open(handle, "rb", 0))  # noqa: SIM115
    try:
        while chunk := await _read(reader):
            writer.write(chunk)
            await writer.drain()
    finally:
        transport.close()


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(_CHUNK)
    except OSError:  # how a terminal signals that its last program has ended
        return b""


async def _feed(process: asyncssh.SSHServerProcess[bytes], handle: int, pid: int, *, terminal: bool = False) -> None:
    """Forward the client's input, signals, and window size."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, open(handle, "wb", 0))  # noqa: SIM115
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    try:
        while True:
            try:
                chunk = await process.stdin.read(_CHUNK)
            except asyncssh.TerminalSizeChanged as change:
                if terminal:
                    _resize(handle, change.term_size)
                continue
            except asyncssh.SignalReceived as received:
                with suppress(ProcessLookupError, AttributeError):
                    os.killpg(pid, getattr(signal, f"SIG{received.signal}"))
                continue
            except asyncssh.BreakReceived:
                continue
            if not chunk:
                return
            writer.write(chunk)
            await writer.drain()
    except OSError:
        return  # the program does not read
    finally:
        transport.close()


def _resize(terminal: int, size: tuple[int, int, int, int]) -> None:
    width, height, across, down = size
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, across, down))
