"""One host: its SSH server, its metadata server, and the root of all processes that run on it.

Its control socket carries one JSON object per line: `machine` (the whole description, again after each change),
`shutdown`, `unreachable`. It answers `ready` once, `done` to each of those, and `guest` when a program writes a guest
attribute. When the socket closes, the owner of the hosts has ended, and the host ends with all that runs on it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tpubox.tpu_vms import disks, file_view, processes
from tpubox.tpu_vms.metadata_server import MetadataServer, access_token, identity_token
from tpubox.tpu_vms.ssh_server import SshServer
from tpukit.places.local import processes as pods

Doc = dict[str, Any]
HOST_KEY = "ssh_host_ed25519_key"
SERIAL_PORT = "serial-port"  # file with the output of start-up scripts
_REAP_SECONDS = 0.5


def main(folder: Path, control: socket.socket, *, own_view: bool) -> None:
    os.setsid()
    processes.adopt_orphans()
    common = folder.parents[1]  # of all hosts: their disks and shares outlive them
    for name in ("disks", "shares"):
        (common / name).mkdir(exist_ok=True)
    own_view = own_view and file_view.enter(folder, [common / "disks", common / "shares"])
    disks.programs(folder / "bin", sys.executable)
    try:
        asyncio.run(Worker(folder, control, own_view).run())
    finally:
        processes.kill_below(os.getpid())


class Worker:
    def __init__(self, folder: Path, control: socket.socket, own_view: bool) -> None:
        self._folder = folder
        self._own_view = own_view
        self._control = control
        self._machine: Doc = {}
        self._guest: dict[str, str] = {}
        self._children = processes.Children()
        self._holding: list[socket.socket] = []
        self._writer: asyncio.StreamWriter | None = None
        self._ssh = SshServer(folder / HOST_KEY, self._keys, self._environment, self._children)
        self._metadata = MetadataServer(self._tree, self._write_guest, self._mint, {disks.DOOR: self._mount})
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        reader, self._writer = await asyncio.open_connection(sock=self._control, limit=1 << 26)
        self._background(self._reap())
        while line := await reader.readline():
            message = json.loads(line)
            match message["do"]:
                case "machine":
                    await self._change(message["machine"])
                case "unreachable":
                    await self._unreachable(bool(message["on"]))
                    self._say({"did": message["number"]})
                    if message["on"]:
                        await self._writer.drain()
                        # Open connections receive nothing either; programs continue.
                        os.kill(os.getpid(), signal.SIGSTOP)
                    continue
                case "shutdown":
                    await self._shut_down(float(message["grace"]))
                    return
            self._say({"did": message["number"]})

    async def _change(self, machine: Doc) -> None:
        first = not self._machine
        self._machine = machine
        if first:
            self._guest = dict(machine["guest"])
            await self._boot()
        self._metadata.changed()

    async def _boot(self) -> None:
        public = _host_key(self._folder / HOST_KEY)
        if self._own_view:
            file_view.plug_in(self._folder, *self._machine["chips"])
            file_view.set_name(self._folder, self._machine["name"], self._machine["hosts"])
        await self._listen()
        kind, text = public.split()[:2]
        self._guest[f"hostkeys/{kind}"] = text
        # gcloud needs it for tunnels; Google's namespace for it is a guess.
        self._guest["guestInventory/hostname"] = self._machine["name"]
        self._say({"ready": {"pid": os.getpid(), "guest": self._guest}})
        if script := self._machine["metadata"]["instance"]["attributes"].get("startup-script"):
            self._background(self._start_up(script))

    async def _listen(self) -> None:
        await self._ssh.listen([_bound(address, port) for address, port in self._machine["ssh"]])
        await self._metadata.listen(_bound(*self._machine["metadata_address"]))

    async def _start_up(self, script: str) -> None:
        """Run the script as root, from a file, at every boot; its output goes to the serial port.

        https://cloud.google.com/compute/docs/instances/startup-scripts/linux
        """
        file = self._folder / "startup-script"
        file.write_text(script, encoding="utf-8")
        file.chmod(0o700)
        env = self._environment("root")
        with (self._folder / SERIAL_PORT).open("ab") as output:
            argv = [str(file)] if script.startswith("#!") else ["/bin/bash", str(file)]
            streams: Doc = {"stdin": asyncio.subprocess.DEVNULL, "stdout": output, "stderr": output}
            try:
                child = await self._children.start(argv, env, **streams)
            except OSError as error:
                output.write(f"startup-script: {error}\n".encode())
                return
        code = await child.wait()
        with (self._folder / SERIAL_PORT).open("ab") as output:
            output.write(f"startup-script exit status {code}\n".encode())

    async def _unreachable(self, on: bool) -> None:
        """Stop or resume responding: the kernel does not respond to connections that wait in a full queue."""
        if not on:
            for held in self._holding:
                held.close()
            self._holding.clear()
            await self._listen()
            return
        self._ssh.stop_listening()
        self._metadata.stop_listening()
        for address, port in [*self._machine["ssh"], self._machine["metadata_address"]]:
            full = _bound(address, port)
            full.listen(0)
            waiting = socket.create_connection((address, port))
            self._holding += [full, waiting]

    async def _shut_down(self, grace: float) -> None:
        """Shut down like a soft power-off: stop programs with a grace period, then the network."""
        due = time.monotonic() + grace
        if grace:
            processes.send(processes.descendants(os.getpid()), signal.SIGTERM)
        while time.monotonic() < due and processes.descendants(os.getpid()):
            await asyncio.sleep(0.02)
        self._ssh.stop_listening()
        self._metadata.stop_listening()
        processes.kill_below(os.getpid())
        self._ssh.cut()
        self._metadata.cut()

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(_REAP_SECONDS)
            self._children.reap()

    def _keys(self, user: str) -> list[str]:
        return list(self._machine["logins"].get(user, ()))

    def _environment(self, user: str) -> dict[str, str]:
        env = self._machine["env"]
        return {
            **env,
            "PATH": f"{self._folder / 'bin'}{os.pathsep}{env['PATH']}",
            "USER": user,
            "LOGNAME": user,
            "SHELL": "/bin/bash",
            pods.MARK: str(self._folder),
            **file_view.session(self._folder, user, self._own_view),
        }

    def _mount(self, body: bytes) -> str:
        return disks.answer(body, self._machine["disks"], self._folder.parents[1], self._own_view)

    def _tree(self) -> Mapping[str, Any]:
        metadata = self._machine["metadata"]
        attributes: Doc = {}
        for name, value in self._guest.items():
            space, _, key = name.partition("/")
            attributes.setdefault(space, {})[key] = value
        return {**metadata, "instance": {**metadata["instance"], "guest-attributes": attributes}}

    def _write_guest(self, name: str, value: str | None) -> None:
        if value is None:
            self._guest.pop(name, None)
        else:
            self._guest[name] = value
        self._say({"guest": self._guest})
        self._metadata.changed()

    def _mint(self, kind: str, query: Mapping[str, str]) -> Any:
        token = self._machine["token"]
        if kind == "token":
            return access_token(token["value"], token["expires"])
        return identity_token(query["audience"], token["email"]) if query.get("audience") else None

    def _say(self, message: Mapping[str, Any]) -> None:
        assert self._writer is not None
        self._writer.write(json.dumps(message).encode() + b"\n")

    def _background(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _host_key(file: Path) -> str:
    """Return the public half of the key, which is made at the first boot and stays with the disk."""
    import asyncssh

    if not file.exists():
        asyncssh.generate_private_key("ssh-ed25519").write_private_key(str(file))
    return asyncssh.read_private_key(str(file)).export_public_key().decode()


def _bound(address: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
    except OSError:
        listener.close()
        raise
    return listener
