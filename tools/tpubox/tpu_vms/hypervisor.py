"""The hypervisor: starts and stops hosts according to the documents of TPU VMs.

A worker of a node should run while the node is READY and nothing in its document forbids it. Code that changes a
document does not contact hosts; `reconcile` sees the change within a tick, `ensure` waits until it has taken effect.
Nothing is started before the first host is needed.
"""

from __future__ import annotations

import json
import logging
import selectors
import shutil
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tpubox.google.iam import credentials
from tpubox.google.tpu import nodes as tpu_nodes
from tpubox.google.tpu import vm_faults
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.state import Doc
from tpubox.tpu_vms import described, network, processes, ssh_config
from tpubox.tpu_vms.zygote import Zygote
from tpukit.core.errors import TpukitError, Transient
from tpukit.places.local import processes as pods

PATIENCE = 120.0
SIMULATED = "tpukit-simulated"
"""Label of nodes without hosts, so that thousands fit.

It has no domain like those of Kubernetes, because Google allows no dots in labels.
"""
_REFRESH = 1.0
_TOKEN_SECONDS = 300.0
_Key = tuple[str, int]


@dataclass(slots=True)
class _Host:
    folder: Path
    pid: int
    began: str
    control: socket.socket
    boot: int
    machine: Doc = field(default_factory=dict)
    up: bool = False
    sent: int = 0
    done: int = 0
    due: float | None = None  # when it must have ended, after the request
    fault: str = ""
    rest: bytes = b""


class Hypervisor:
    def __init__(self, cloud: Cloud, folder: Path, google: str) -> None:
        self._cloud = cloud
        self._folder = folder / "tpu-vms"
        self._google = google
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._hosts: dict[_Key, _Host] = {}
        self._tokens: dict[str, Doc] = {}
        self._crashed: dict[_Key, float] = {}
        self._seen = (-1, 0.0)
        self._failed = False
        self._closed = False
        self._selector: selectors.BaseSelector | None = None
        self._zygote: Zygote | None = None
        self.network: network.Network | None = None
        self.ssh = ssh_config.SshConfig(folder / "ssh")

    def start(self) -> None:
        """Kill processes that a killed emulator left behind. Hosts restart as after a power cut."""
        for record in self._folder.glob("*/*/pid"):
            pid, _, began = record.read_text(encoding="ascii").partition(" ")
            if processes.started(int(pid)) == began:
                processes.kill_tree(int(pid))
            pods.kill_strays(record.parent)
        with self._cloud.state.transaction():
            for name, vm in self._cloud.state.all("vm").items():
                self._cloud.state.put("vm", name, {**vm, "_host_faults": {}})

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for key in list(self._hosts):
                self._kill(key)
            if self._zygote:
                self._zygote.close()
            if self._selector:
                self._selector.close()
                self._selector = None
            if self.network:
                self.network.close()

    def ensure(self, name: str = "") -> None:
        """Wait until the hosts of this TPU VM, or of all, match their documents."""
        due = time.monotonic() + PATIENCE
        with self._changed:
            while True:
                problem: Exception | None = None
                try:
                    self._reconcile()
                except (OSError, TpukitError) as error:
                    problem = error
                if problem is None and self._settled(name):
                    return
                if time.monotonic() > due:
                    what = f"hosts of {name or 'TPU VMs'} are not up after {PATIENCE:.0f} s"
                    raise Transient(f"{what}: {problem}" if problem else what) from problem
                self._changed.wait(0.5)

    def reconcile(self) -> None:
        """Reconcile the hosts with the documents; failures are retried with the next call.

        This is cheap if nothing changed: the emulator calls it several times a second.
        """
        with self._lock:
            if self._closed:
                return
            state = (self._cloud.state.changes(), time.monotonic())
            # Time matters only for existing hosts, and for those that could not be started.
            waits = not (self._hosts or self._crashed or self._failed) or state[1] < self._seen[1] + _REFRESH
            if state[0] == self._seen[0] and waits:
                return
            self._seen = state
            self._failed = False
            try:
                self._reconcile()
            except (OSError, TpukitError):
                self._failed = True
                logging.getLogger(__name__).exception("hosts of TPU VMs")

    def _reconcile(self) -> None:
        nodes = {vm["id"]: vm for vm in self._cloud.state.all("vm").values() if not vm.get("labels", {}).get(SIMULATED)}
        for key, host in list(self._hosts.items()):
            self._end_if_due(key, host, nodes.get(key[0]))
        for vm in nodes.values():
            for worker in range(vm["_hosts"]):
                key = (vm["id"], worker)
                soon = time.monotonic() < self._crashed.get(key, 0.0) + _REFRESH
                if tpu_nodes.runs(vm, worker) and key not in self._hosts and not soon:
                    self._start_serving()
                    self._boot(vm, worker)
        for (node, worker), host in self._hosts.items():
            if host.due is None:
                self._update(host, nodes[node], worker)
        self._remove_disks(nodes)
        self.ssh.write(self.network, nodes.values(), partial(self._cloud.state.get, "vm_guest"))

    def _end_if_due(self, key: _Key, host: _Host, vm: Doc | None) -> None:
        if vm is None or (host.due is not None and time.monotonic() > host.due):
            self._kill(key)
        elif host.due is None and (shutdown := tpu_nodes.shutdown_of(vm, key[1])):
            if host.fault or not host.up:
                self._kill(key)
                return
            # Announce the shutdown first, so that programs waiting for the notice have the whole grace period.
            self._update(host, vm, key[1])
            grace = float(shutdown["grace"])
            self._tell(host, "shutdown", grace=grace)
            host.due = time.monotonic() + grace + 5.0
        elif host.due is None and (not tpu_nodes.runs(vm, key[1]) or host.boot != tpu_nodes.boot(vm, key[1])):
            self._kill(key)

    def _start_serving(self) -> None:
        if self._zygote is None:
            self._zygote = Zygote()
        if self.network:
            return
        last = self._folder / "network"
        self.network = network.claim(last.read_text(encoding="ascii") if last.exists() else "")
        self._folder.mkdir(exist_ok=True)
        last.write_text(self.network.prefix, encoding="ascii")
        tpu_nodes.renumber(self._cloud, self.network.prefix)
        self._selector = selectors.DefaultSelector()
        threading.Thread(target=self._listen, name="tpu-vms", daemon=True).start()

    def _boot(self, vm: Doc, worker: int) -> None:
        assert self._zygote is not None and self._selector is not None
        folder = self._folder / vm["id"] / str(worker)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            pid, control = self._zygote.fork(folder, own_view=self._cloud.settings.vm_views)
        except (OSError, Transient):
            self._zygote.close()
            self._zygote = None
            raise
        began = processes.started(pid)
        (folder / "pid").write_text(f"{pid} {began}", encoding="ascii")
        host = _Host(folder, pid, began, control, tpu_nodes.boot(vm, worker))
        self._hosts[vm["id"], worker] = host
        self._selector.register(control, selectors.EVENT_READ, (vm["id"], worker))

    def _update(self, host: _Host, vm: Doc, worker: int) -> None:
        """Send a host its description if that changed, and apply a fault to it."""
        assert self.network is not None
        fault = vm.get("_host_faults", {}).get(str(worker), "")
        if host.up and fault != host.fault:
            self._strike(host, fault)
        if host.fault:
            return
        vm = self._cloud.state.get("vm", vm["name"]) or vm  # its addresses may be new
        machine = described.machine(self._cloud, vm, worker, self.network, self._token(vm), self._google)
        if machine != {**host.machine, "guest": machine["guest"]}:
            host.machine = machine
            self._tell(host, "machine", machine=machine)

    def _strike(self, host: _Host, fault: str) -> None:
        before, host.fault = host.fault, fault
        if before:
            processes.wake(host.pid)
        if before == "unreachable":
            self._tell(host, "unreachable", on=False)
        if fault == "unreachable":
            self._tell(host, "unreachable", on=True)
        if fault == "freeze":
            processes.freeze(host.pid)

    def _token(self, vm: Doc) -> Doc:
        """Return the token of the node's account for the metadata server, renewed shortly before it expires."""
        email, now = described.account_of(vm), self._cloud.clock.now()
        token = self._tokens.get(email)
        if token is None or token["expires"] < now + _TOKEN_SECONDS:
            expires = now + credentials.LONGEST_SECONDS
            token = {"email": email, "value": credentials.mint(self._cloud, email, expires), "expires": expires}
            self._tokens[email] = token
        return token

    def _settled(self, name: str) -> bool:
        for vm in self._cloud.state.all("vm", name).values():
            if vm.get("labels", {}).get(SIMULATED):
                continue
            for worker in range(vm["_hosts"]):
                host = self._hosts.get((vm["id"], worker))
                if not tpu_nodes.runs(vm, worker):
                    continue
                if host is None or host.due or not host.up or (host.done < host.sent and host.fault != "freeze"):
                    return False
        return True

    def has_hosts(self, name: str) -> bool:
        """Return whether hosts of the TPU VM run.

        It takes no lock: callers are inside transactions, which `reconcile` begins while it holds the lock.
        """
        vm = self._cloud.state.get("vm", name)
        return vm is not None and any(node == vm["id"] for node, _ in list(self._hosts))

    def _kill(self, key: _Key) -> None:
        host = self._hosts.pop(key)
        if processes.started(host.pid) == host.began:
            processes.kill_tree(host.pid)
        if self._selector:
            with suppress(KeyError, ValueError):
                self._selector.unregister(host.control)
        host.control.close()
        (host.folder / "pid").unlink(missing_ok=True)
        self._changed.notify_all()

    def _remove_disks(self, nodes: dict[str, Doc]) -> None:
        for disk in self._folder.glob("[0-9]*"):
            vm = nodes.get(disk.name)
            running = any(node == disk.name for node, _ in self._hosts)
            if not running and (vm is None or vm["state"] == "PREEMPTED"):
                shutil.rmtree(disk, ignore_errors=True)

    def _tell(self, host: _Host, do: str, **more: Any) -> None:
        host.sent += 1
        with suppress(OSError):  # the host has ended, which the other thread will notice
            host.control.sendall(json.dumps({"do": do, "number": host.sent, **more}).encode() + b"\n")

    def _listen(self) -> None:
        while selector := self._selector:
            try:
                ready = selector.select(timeout=0.2)
            except (OSError, ValueError):  # the selector is closed
                return
            for one, _ in ready:
                with self._lock:
                    self._hear(one.data)

    def _hear(self, key: _Key) -> None:
        host = self._hosts.get(key)
        if host is None:
            return
        try:
            chunk = host.control.recv(1 << 16)
        except OSError:
            chunk = b""
        if not chunk:  # shut down, or crashed: a crashed host is restarted
            if not host.up:
                self._crashed[key] = time.monotonic()
            self._kill(key)
            pods.kill_strays(host.folder)
            self._seen = (-1, 0.0)
            name = next((name for name, vm in self._cloud.state.all("vm").items() if vm["id"] == key[0]), "")
            if name and not self.has_hosts(name):
                vm_faults.hosts_went(self._cloud, name)
            return
        *lines, host.rest = (host.rest + chunk).split(b"\n")
        for line in lines:
            message = json.loads(line)
            guest = message.get("guest") or message.get("ready", {}).get("guest")
            if guest:
                self._cloud.state.put("vm_guest", f"{key[0]}/{key[1]}", guest)
            host.up = host.up or "ready" in message
            host.done = message.get("did", host.done)
        self._changed.notify_all()
