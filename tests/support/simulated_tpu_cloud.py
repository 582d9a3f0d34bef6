"""A cloud of TPU VMs that acts by itself, whose hosts run real programs.

Requests wait, are fulfilled, taken back and forgotten. There is no network: the API is plain data that advances with
every call, and each host is the supervisor itself in its own folder, with its shims as real processes.
"""

from __future__ import annotations

import importlib.util
import io
import itertools
import json
import os
import sys
import threading
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tpukit import catalogue
from tpukit.core import fence
from tpukit.core.errors import Conflict, Denied, NotFound, TpukitError, Transient
from tpukit.google.tpu_vm import Host, Node, Queued, Request
from tpukit.places.local import processes as pods
from tpukit.places.tpu_vm.channel import Answer, Call, programs, version

_NEXT = {"CREATING": "ACCEPTED", "ACCEPTED": "PROVISIONING", "PROVISIONING": "ACTIVE", "SUSPENDING": "SUSPENDED"}


@dataclass
class TpuCloud:
    folder: Path
    made: dict[str, Node] = field(default_factory=dict)
    requests: dict[str, tuple[Request, Queued]] = field(default_factory=dict)
    lists: int = 0  # number of list calls
    scarce: bool = False  # no capacity is available
    shut: bool = False  # hosts refuse every login
    silent: set[str] = field(default_factory=set)  # addresses that do not respond
    lock: threading.RLock = field(default_factory=threading.RLock)
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    moments: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    where: dict[str, str] = field(default_factory=dict)  # zones of TPU VMs and requests, by name

    def nodes(self, zone: str) -> Sequence[Node]:
        with self.lock:
            self.lists += 1
            self._pass_time()
            return [node for node in self.made.values() if self.where[node.name] == zone]

    def queued(self, zone: str) -> Sequence[Queued]:
        with self.lock:
            self._pass_time()
            return [queued for _, queued in self.requests.values() if self.where[queued.name] == zone]

    def request(self, zone: str, request: Request) -> None:
        fence.check()
        with self.lock:
            if request.name in self.requests:
                raise Conflict(f"{request.name} already exists")
            queued = Queued(request.name, "CREATING", labels=request.labels, nodes=request.nodes)
            queued = replace(queued, id=f"created {next(self.moments)}")
            self.requests[request.name] = request, queued
            self.where |= dict.fromkeys((request.name, *request.nodes), zone)

    def create(self, zone: str, request: Request) -> None:
        fence.check()
        with self.lock:
            for name in request.nodes:
                self._make(request, name, "")
                self.where[name] = zone

    def delete_queued(self, zone: str, name: str, expected: str) -> None:
        fence.check()
        with self.lock:
            if name not in self.requests or self.where[name] != zone:
                raise NotFound(f"{name} was not found")
            request, queued = self.requests[name]
            if queued.id != expected:
                raise Conflict(f"{name} is {queued.id}, not {expected}")
            self.requests[name] = request, replace(queued, state="DELETING", by_service=False)

    def delete_node(self, zone: str, name: str, expected: str) -> None:
        fence.check()
        with self.lock:
            self._expect(zone, name, expected)
            self.lose(name)
            del self.made[name]

    def host_keys(self, zone: str, name: str) -> Sequence[Sequence[str]]:
        with self.lock:
            return [[f"ssh-ed25519 key-of-{host.internal}"] for host in self.made[name].hosts]

    def login(self, public_key: str) -> str:
        return ""

    def set_metadata(self, zone: str, name: str, expected: str, change: Any) -> None:
        fence.check()
        with self.lock:
            self._expect(zone, name, expected)
            self.made[name] = replace(self.made[name], metadata=dict(change(self.made[name].metadata)))

    def preempt(self, name: str) -> None:
        """Preempt a TPU VM: first its machine is lost, then the API reports it, then the queued resource."""
        with self.lock:
            self.lose(name)
            node = self.made[name] = replace(self.made[name], state="PREEMPTED")
            if node.queued in self.requests:
                request, queued = self.requests[node.queued]
                self.requests[node.queued] = request, replace(queued, state="SUSPENDING", by_service=True)

    def lose(self, name: str) -> None:
        """Power off a TPU VM: all processes of its hosts end at once."""
        for host in self.made[name].hosts:
            folder = self.folder / host.internal
            for attempt in folder.glob("jobs/*/attempt-*"):
                pods.lose(attempt)

    def _expect(self, zone: str, name: str, expected: str) -> None:
        if name not in self.made or self.where[name] != zone:
            raise NotFound(f"{name} was not found")
        if self.made[name].id != expected:
            raise Conflict(f"{name} is {self.made[name].id}, not {expected}")

    def _pass_time(self) -> None:
        for name, (request, queued) in list(self.requests.items()):
            if queued.state == "DELETING":
                self._take_away(request)
                del self.requests[name]
                continue
            state = _NEXT.get(queued.state, queued.state)
            if queued.state == "SUSPENDING" and self.lists % 3:  # it takes a while to remove all its TPU VMs
                continue
            if queued.state in ("ACCEPTED", "WAITING_FOR_RESOURCES"):
                state = "WAITING_FOR_RESOURCES" if self.scarce else "PROVISIONING"
            if state == "ACTIVE" and queued.state == "PROVISIONING":
                for node in request.nodes:
                    self._make(request, node, name)
            if state == "SUSPENDED":
                self._take_away(request)
            self.requests[name] = request, replace(queued, state=state)

    def _make(self, request: Request, name: str, queued: str) -> None:
        if name in self.made:
            raise Conflict(f"{name} already exists")
        number = next(self.numbers)
        hosts = catalogue.find(request.accelerator).hosts
        addresses = tuple(Host(f"10.0.{number}.{index + 2}") for index in range(hosts))
        self.made[name] = Node(
            name,
            str(number),
            "READY",
            accelerator=request.accelerator,
            hosts=addresses,
            queued=queued,
            labels=request.labels,
            metadata=request.metadata,
        )

    def _take_away(self, request: Request) -> None:
        for name in request.nodes:
            if name in self.made:
                self.lose(name)
                del self.made[name]


@dataclass
class Hosts:
    """The channel to hosts. A host accepts the keys in the metadata of its TPU VM."""

    cloud: TpuCloud
    key: str = "ssh-ed25519 AAAA tpukit"
    asked: int = 0

    def public_key(self) -> str:
        return self.key

    def ask(self, calls: Sequence[Call]) -> list[Answer | TpukitError]:
        if any(call.changes for call in calls):
            fence.check()
        return [self._ask(call) for call in calls]

    def close(self) -> None:
        pass

    def _ask(self, call: Call) -> Answer | TpukitError:
        self.asked += 1
        address, user = call.login.address, call.login.user
        node = next(
            (one for one in self.cloud.made.values() if any(host.internal == address for host in one.hosts)), None
        )
        if node is None or node.state != "READY" or address in self.cloud.silent:
            return Transient(f"{address}: no route to host")
        if call.login.host_keys != (f"ssh-ed25519 key-of-{address}",):
            return Transient(f"{address}: wrong host key")
        if self.cloud.shut or f"{user}:{self.key}" not in node.metadata.get("ssh-keys", "").splitlines():
            return Denied(f"{address}: permission denied")
        supervisor = _supervisor(self.cloud.folder / address)
        request = json.loads(json.dumps(call.request))
        request.pop("unattended", None)  # its watch would outlive the test by a day
        with _environment_of_a_host():
            answer: Answer = json.loads(json.dumps(supervisor.answer(request, io.BytesIO(call.content))))
        return answer


@contextmanager
def _environment_of_a_host() -> Iterator[None]:
    """Remove the caller's secrets, which a host does not know, from the environment."""
    secret = os.environ.pop("WANDB_API_KEY", None)
    try:
        yield
    finally:
        if secret is not None:
            os.environ["WANDB_API_KEY"] = secret


_LOADED: dict[Path, types.ModuleType] = {}


def _supervisor(home: Path) -> types.ModuleType:
    """Return the program as installed in the host's own folder."""
    folder = home / "programs" / version()
    if not folder.exists():  # a program may have removed it
        for name, text in programs().items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
    if folder not in _LOADED:
        name, package = f"supervision_{len(_LOADED)}", folder / "supervision"
        spec = importlib.util.spec_from_file_location(
            name, package / "__init__.py", submodule_search_locations=[str(package)]
        )
        assert spec and spec.loader
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
        for part in (
            "host_unattended",
            "host_uploader",
            "host_netrc",
            "host_mounts",
        ):  # before a program removes their files
            importlib.import_module(f"{name}.{part}")
        _LOADED[folder] = importlib.import_module(f"{name}.host_requests")
    return _LOADED[folder]
