"""The hosts of an attempt: their logins, and the requests to their supervisors."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tpukit.core import fence
from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, Denied, Invalid, LeaseLost, NotYet, TpukitError, Transient
from tpukit.google.tpu_vm import SSH_KEYS, Node, TpuVms, with_key
from tpukit.jobs.plan import Plan
from tpukit.places.base import Handle
from tpukit.places.tpu_vm import boot_limit, environment, secrets, target
from tpukit.places.tpu_vm.channel import Answer, Call, Channel, Login
from tpukit.places.tpu_vm.machines import Machines
from tpukit.places.tpu_vm.shared_code import Code, pack
from tpukit.places.workdirs import Held

SETUP_SECONDS = 1800.0
UPLOAD_SECONDS = 600.0
MOUNT_SECONDS = 120.0
STATUS_SECONDS = 15.0
KEY_READERS = 16
RETIRE_SECONDS, RETIRE_MARGIN = 240.0, 60.0
"""Seconds that a driver relies on hosts it reserved for deletion, and that they stay reserved beyond that."""


@dataclass(frozen=True, slots=True)
class Hosts:
    client: TpuVms
    channel: Channel
    code: Code
    sender: Callable[[], str]
    host_keys: dict[tuple[str, str], tuple[tuple[str, ...], ...]] = field(
        default_factory=dict
    )  # by zone and id of nodes
    registered: set[str] = field(default_factory=set)  # keys registered with OS Login

    def logins(self, plan: Plan, nodes: Sequence[Node | None]) -> list[Login | None]:
        """Return a login per host; None if the host, or its host key, does not exist yet."""
        zone, user = target.of(plan).zone, target.of(plan).user
        self._read_keys(zone, [node for node in nodes if node is not None])
        logins: list[Login | None] = []
        for node in nodes:
            keys = self.host_keys.get((zone, node.id), ()) if node is not None else ()
            for index in range(plan.slice.hosts):
                known = node is not None and index < len(keys) and index < len(node.hosts) and bool(keys[index])
                if not known or node is None:
                    logins.append(None)
                    continue
                host = node.hosts[index]
                address = host.address if plan.settings.external_ips else host.internal
                logins.append(Login(address, user, keys[index]))
        return logins

    def keep_only(self, zone: str, ids: Set[str]) -> None:
        """Forget the host keys of deleted TPU VMs of a zone."""
        for key in [key for key in list(self.host_keys) if key[0] == zone and key[1] not in ids]:
            self.host_keys.pop(key, None)

    def start(self, handle: Handle, machines: Machines) -> None:
        """Start the attempt on all hosts, once all are ready: code present, machine set up, chips free."""
        plan, attempt = handle.plan, handle.attempt
        logins = self._all(plan, machines)
        digest = plan.snapshot.digest if plan.snapshot else ""
        about = {"job": plan.id, "attempt": attempt.number, "code": digest}
        ready = self._each([Call(login, {"do": "prepare", **about}) for login in logins])
        self._wait_for_chips(handle, {one: answer["held"] for one, answer in zip(logins, ready, strict=True)})
        without = [login for login, answer in zip(logins, ready, strict=True) if not answer["code"]]
        if without:
            packed = pack(self.code.require(plan))
            self._each([Call(one, {"do": "code", "code": digest}, packed, UPLOAD_SECONDS) for one in without])
        if mounts := _mounts(plan):
            self._each([Call(login, {"do": "mount", "mounts": mounts}, seconds=MOUNT_SECONDS) for login in logins])
        if attempt.number == 0:
            self._claim(plan, logins)
        if netrc := secrets.wandb(plan.spec.env):
            self._each([Call(login, {"do": "secret"}, netrc.encode()) for login in logins])
        if plan.settings.setup:
            request = {"do": "setup", "code": digest, **self._setup(plan, digest)}
            self._each([Call(login, request, seconds=SETUP_SECONDS) for login in logins])
        self._each(
            [
                Call(login, {"do": "start", **about, **self._program(handle, machines, index)})
                for index, login in enumerate(logins)
            ]
        )

    def _claim(self, plan: Plan, logins: Sequence[Login]) -> None:
        """Mark a workdir that the job file names on disks of the hosts, which may outlive the job.

        Raises:
            Invalid: It holds the output of another job.
        """
        folder = plan.spec.workdir or ""
        if not folder or "://" in folder:
            return
        request = {"do": "claim", "job": plan.id, "workdir": folder, "resume": plan.resume}
        for login, answer in zip(logins, self._each([Call(login, request) for login in logins]), strict=True):
            if answer["holder"] is not None:
                raise Invalid(Held(f"{folder} on {login.address}", answer["holder"], output=True).problem)

    def _wait_for_chips(self, handle: Handle, holders: Mapping[Login, Answer | None]) -> None:
        """Check that no attempt holds the chips, and stop an earlier attempt that came back with its host."""
        job, number = handle.plan.id, handle.attempt.number
        there = {login: holder for login, holder in holders.items() if holder}
        for login, holder in there.items():
            if holder["job"] != job or holder["attempt"] > number:
                words = f"attempt {holder['attempt']} of job {holder['job']} runs on {login.address}"
                raise Conflict(words, hint="stop it first, or name another TPU VM")
        if there:
            self.channel.ask([Call(login, {"do": "stop", "grace": 0, **holder}) for login, holder in there.items()])
            raise NotYet(
                f"an earlier attempt of {job} is still stopping on {', '.join(login.address for login in there)}"
            )

    @contextmanager
    def retired(self, handle: Handle, machines: Machines, clock: Clock) -> Iterator[None]:
        """Reserve the hosts for deletion during the block, fenced so that no other job begins there meanwhile.

        Raises:
            Conflict: An attempt of another job runs there.
            Transient: A host is unreachable.
        """
        began, outer = clock.elapsed(), fence.carry(fence.check)
        self._retire(handle, machines)

        def left() -> float:
            rest = began + RETIRE_SECONDS - clock.elapsed()
            if rest <= 0:
                raise LeaseLost(f"hosts of {handle.plan.id} are not reserved any longer")
            return min(rest, outer())

        with fence.held(left):
            yield

    def _retire(self, handle: Handle, machines: Machines) -> None:
        ready = [node if node is not None and node.state == "READY" else None for node in machines.nodes]
        logins = [login for login in self.logins(handle.plan, ready) if login is not None]
        if len(logins) < handle.plan.slice.hosts * sum(node is not None for node in ready):
            raise NotYet("TPU VMs that are to be recreated have not published their host keys: a job may run there")
        request = {"do": "retire", "job": handle.plan.id, "attempt": handle.attempt.number}
        request["seconds"] = RETIRE_SECONDS + RETIRE_MARGIN
        answers = self.channel.ask([Call(one, request, seconds=STATUS_SECONDS) for one in logins])
        if any(isinstance(answer, Denied) for answer in answers):
            self.admit(handle.plan, replace(machines, nodes=tuple(ready)))  # the next call finds the hosts accessible
        for login, answer in zip(logins, answers, strict=True):
            if isinstance(answer, TpukitError) or "running" not in answer:
                names = ", ".join(target.nodes(handle.plan))
                raise Transient(f"{names} cannot be recreated: it is not known whether a job runs there: {answer}")
            for one in (*answer["running"], answer["held"]):
                if one is not None and one["job"] != handle.plan.id:
                    words = f"attempt {one['attempt']} of job {one['job']} runs on {login.address}"
                    raise Conflict(words, hint="stop it first, or name another TPU VM")

    def status(
        self, handle: Handle, logins: Sequence[Login | None], positions: Sequence[int], silent: Sequence[bool]
    ) -> list[Call | None]:
        """Return the request to each host for the attempt's state and its log behind a position.

        A host that did not answer last time gets a shorter timeout.
        """
        job, number = handle.plan.id, handle.attempt.number
        return [
            None
            if login is None
            else Call(
                login,
                {"do": "status", "attempts": [{"job": job, "attempt": number, "log": position}]},
                seconds=STATUS_SECONDS / 3 if quiet else STATUS_SECONDS,
            )
            for login, position, quiet in zip(logins, positions, silent, strict=True)
        ]

    def tell(self, handle: Handle, logins: Sequence[Login | None], do: str, **more: Any) -> list[Answer | TpukitError]:
        about = {"do": do, "job": handle.plan.id, "attempt": handle.attempt.number, **more}
        return self.channel.ask([Call(login, about) for login in logins if login is not None])

    def is_admitted(self, plan: Plan, machines: Machines) -> bool:
        """Return whether hosts have our key, according to the API."""
        if target.of(plan).os_login:
            return self.channel.public_key() in self.registered
        line = f"{target.of(plan).user}:{self.channel.public_key()}"
        return all(
            node is None or line in node.metadata.get(SSH_KEYS, "").splitlines()
            for index, node in enumerate(machines.nodes)
            if index not in machines.gone
        )

    def admit(self, plan: Plan, machines: Machines) -> None:
        """Add our key to TPU VMs that others created, as gcloud does, without removing other keys."""
        if target.of(plan).os_login:
            key = self.channel.public_key()  # each machine has its own key
            if key not in self.registered:
                self.client.login(key)
                self.registered.add(key)
            return
        line = f"{target.of(plan).user}:{self.channel.public_key()}"
        for index, node in enumerate(machines.nodes):
            if index in machines.gone:  # another one with that name is not ours
                continue
            if node is not None and line not in node.metadata.get(SSH_KEYS, "").splitlines():
                zone = target.of(plan).zone
                self.client.set_metadata(zone, node.name, node.id, lambda found: with_key(found, line))

    def _all(self, plan: Plan, machines: Machines) -> list[Login]:
        logins = self.logins(plan, machines.nodes)
        known = [login for login in logins if login is not None]
        if len(known) < len(logins):
            raise NotYet(f"hosts of {plan.id} have not published their host keys yet")
        return known

    def _each(self, calls: Sequence[Call]) -> list[Answer]:
        answers = []
        for call, answer in zip(calls, self.channel.ask(calls), strict=True):
            if isinstance(answer, TpukitError):
                raise answer
            answers.append(_accepted(call, answer))
        return answers

    def _program(self, handle: Handle, machines: Machines, index: int) -> Mapping[str, Any]:
        plan, attempt = handle.plan, handle.attempt
        first = machines.nodes[0]
        assert first is not None
        slice_index, host_index = divmod(index, plan.slice.hosts)
        return {
            "store": target.store_label(self.sender()),
            "uploader": _uploader(plan) if index == 0 else [],
            "unattended": _unattended(plan, machines.nodes[slice_index] or first),
            "argv": list(plan.command_of(attempt.stage)),
            "env": environment.host(plan, attempt, slice_index, host_index, first.hosts[0].internal),
            "workdir": workdir(plan, attempt.origin),
        }

    def _setup(self, plan: Plan, digest: str) -> Mapping[str, Any]:
        """Return the command, with a key that changes when it or a file that it names does."""
        argv = list(plan.settings.setup)
        key = hashlib.sha256("\0".join(argv).encode())
        for word in argv if digest else ():
            file = self.code.shelf / digest / word
            if "/../" not in f"/{word}/" and not word.startswith("/") and file.is_file():
                key.update(b"\0" + file.read_bytes())
        return {"argv": argv, "env": dict(plan.spec.env), "key": key.hexdigest()}

    def _read_keys(self, zone: str, nodes: Sequence[Node]) -> None:
        unknown = [node for node in nodes if (zone, node.id) not in self.host_keys]
        if not unknown:
            return
        with ThreadPoolExecutor(min(KEY_READERS, len(unknown))) as pool:
            for node, keys in zip(unknown, pool.map(lambda one: self._keys_of(zone, one), unknown), strict=True):
                if len(keys) >= len(node.hosts) and all(keys):
                    self.host_keys[zone, node.id] = keys

    def _keys_of(self, zone: str, node: Node) -> tuple[tuple[str, ...], ...]:
        try:
            return tuple(tuple(keys) for keys in self.client.host_keys(zone, node.name))
        except TpukitError:
            return ()  # hosts without known keys are not contacted; the next round reads them again


def workdir(plan: Plan, origin: int) -> str:
    """Return the workdir. Without a bucket, each host has its own folder, which is lost with the TPU VM."""
    own = f"~/.tpukit/work/{plan.id}"
    return plan.workdir_of(origin) if plan.workdir else own if not origin else f"{own}/rerun-{origin}"


def bytes_of(piece: Mapping[str, Any]) -> bytes:
    return base64.b64decode(piece["bytes"])


def _mounts(plan: Plan) -> list[Mapping[str, Any]]:
    vms = target.of(plan)
    share = [{"kind": "nfs", "source": vms.disk, "path": vms.mount, "read_only": False}] if vms.disk else []
    buckets = [
        {"kind": "bucket", "source": one.bucket, "path": one.path, "read_only": one.read_only}
        for one in plan.spec.mounts
    ]
    return [*share, *buckets]


def _unattended(plan: Plan, node: Node) -> Mapping[str, Any]:
    """Return the limit for a host of `node`, and what to delete then if the job created it.

    That is its own TPU VM, or the queued resource of all.
    """
    if not plan.spec.max.unattended:
        return {}
    vms = target.of(plan)
    url = boot_limit.hardware_url(vms.project, vms.zone, node.name, node.queued)
    labels = {name: node.labels.get(name, "") for name in (target.JOB, target.ATTEMPT, target.STORE)}
    return {
        "seconds": plan.spec.max.unattended,
        "grace": plan.spec.max.grace,
        "hardware": {"url": url, "labels": labels} if target.is_own(plan) else {},
    }


def _uploader(plan: Plan) -> list[str]:
    """Return the command of the uploader, run by the Python of the job's command, which has its packages."""
    if not plan.spec.tensorboard or not plan.settings.tensorboard:
        return []
    first = plan.command_of(0)[0]
    python = first if re.fullmatch(r"python[0-9.]*", Path(first).name) else "python3"
    where = ["--tensorboard", plan.settings.tensorboard, "--experiment", plan.id]
    return [python, "-m", "tpukit.host.tensorboard", *where]


def _accepted(call: Call, answer: Answer) -> Answer:
    kind, words = answer.get("refused"), f"{call.login.address}: {answer.get('message', '')}"
    if kind is None:
        return answer
    if kind in ("held", "superseded"):
        raise Conflict(words)
    if kind in ("setup", "request"):
        raise Invalid(words, hint="fix the cause, then run `tpu job resume`")
    raise Transient(words)
