"""An emulator whose TPU VMs are real hosts, and helpers to send requests to both."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import asyncssh

from support.waiting import PATIENCE
from tpubox.google.wire.server import Emulator
from tpubox.google.wire.settings import EVERY_API, Settings

PROJECT = "tpu-project"
NODES = f"tpu/v2/projects/{PROJECT}/locations/us-central2-b/nodes"
V4_8 = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}
V4_16 = {"acceleratorType": "v4-16", "runtimeVersion": "tpu-ubuntu2204-base"}
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class TpuVms:
    """A cloud with a network, real hosts and the real clock."""

    def __init__(self, folder: Path, **settings_: Any) -> None:
        at_once = {"seconds": {"": 0.0}, "arrival_seconds": 0.0}
        settings = Settings(projects=(PROJECT,), enabled=EVERY_API, **{**at_once, **settings_})
        self.emulator = Emulator(folder, settings)
        self.key = asyncssh.generate_private_key("ssh-ed25519")

    def __enter__(self) -> TpuVms:
        self.emulator.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.emulator.stop()

    @property
    def public_key(self) -> str:
        return self.key.export_public_key().decode().strip()

    def send(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        request = urllib.request.Request(
            f"{self.emulator.address}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.emulator.token}"},
        )
        try:
            with OPENER.open(request, timeout=PATIENCE) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = self.send(method, path, body)
        assert status < 300, answer
        assert not answer.get("error"), answer
        return answer

    def make(self, name: str, node: dict[str, Any] = V4_8, **metadata: str) -> dict[str, Any]:
        """Create a TPU VM that accepts our key for the user ada."""
        keys = {"ssh-keys": f"\nada:{self.public_key}"}
        self.ask("POST", f"{NODES}?nodeId={name}", {**node, "metadata": {**keys, **metadata}})
        return self.node(name)

    def node(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", f"{NODES}/{name}")
        return found

    def home(self, name: str, worker: int = 0, user: str = "ada") -> Path:
        """Return the folder on this machine that is a user's home on a host."""
        return self.emulator.folder / "tpu-vms" / self.node(name)["id"] / str(worker) / "home" / user

    def address(self, name: str, worker: int = 0) -> str:
        return str(self.node(name)["networkEndpoints"][worker]["ipAddress"])

    @property
    def ssh_port(self) -> int:
        assert self.emulator.hypervisor.network is not None
        return self.emulator.hypervisor.network.ssh_port

    async def connect(
        self, name: str, worker: int = 0, *, user: str = "ada", key: asyncssh.SSHKey | None = None, **options: Any
    ) -> asyncssh.SSHClientConnection:
        """Connect, and check the host's key against the API."""
        answer = self.ask("POST", f"{NODES}/{name}:getGuestAttributes", {"workerIds": [str(worker)]})
        items = answer["guestAttributes"][0]["queryValue"]["items"]
        keys = [
            asyncssh.import_public_key(f"{one['key']} {one['value']}")
            for one in items
            if one["namespace"] == "hostkeys"
        ]
        return await asyncssh.connect(
            self.address(name, worker),
            self.ssh_port,
            username=user,
            client_keys=[key or self.key],
            known_hosts=(keys, [], []),
            config=None,
            agent_path=None,
            **options,
        )

    def ssh(self, name: str, command: str, worker: int = 0, **options: Any) -> asyncssh.SSHCompletedProcess:
        async def run() -> asyncssh.SSHCompletedProcess:  # type: ignore[return]  # asyncssh: leaving the block may hide an error
            try:
                async with await self.connect(name, worker, **options) as connection:
                    return await connection.run(command)
            finally:
                await asyncio.sleep(0)  # a refused connection is closed in the next iteration of the loop

        return asyncio.run(run())

    def metadata(self, name: str, path: str, worker: int = 0, **options: Any) -> str:
        """Request metadata as a program on the host does."""
        return self.metadata_with_etag(name, path, worker, **options)[0]

    def metadata_with_etag(self, name: str, path: str, worker: int = 0, **options: Any) -> tuple[str, str]:
        network = self.emulator.hypervisor.network
        assert network is not None
        root = f"http://{self.address(name, worker)}:{network.metadata_port}/computeMetadata/v1"
        options.setdefault("headers", {"Metadata-Flavor": "Google"})
        request = urllib.request.Request(f"{root}/{path}", **options)
        try:
            with OPENER.open(request, timeout=PATIENCE) as answer:
                return answer.read().decode(), str(answer.headers["ETag"])
        except urllib.error.HTTPError as error:
            error.close()
            raise
