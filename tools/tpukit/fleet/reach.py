"""The hosts of a fleet's TPU VMs: how they are reached, and what their supervisors are asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tpukit import pods
from tpukit.cloud.tpu_vm import Node, TpuVms
from tpukit.errors import Conflict, Invalid, NotYet, TpukitError, Transient
from tpukit.fleet.decide import Host
from tpukit.fleet.records import Worker
from tpukit.places.tpu_vm.channel import Answer, Call, Channel, Login

STATUS_SECONDS = 15.0
SETUP_SECONDS = 1800.0
UPLOAD_SECONDS = 600.0


def job_of(worker: Worker) -> str:
    """What the supervisor knows the worker's program by: other code is another job, with a folder of its own."""
    return f"fleet-{worker.work.code[:12]}" if worker.work else ""


@dataclass(frozen=True, slots=True)
class Reach:
    client: TpuVms
    channel: Channel
    user: str
    external_ips: bool
    store: str  # mark of who launches
    host_keys: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of nodes, by their ids

    @property
    def ssh_keys(self) -> str:
        return f"{self.user}:{self.channel.public_key()}"

    def login(self, zone: str, node: Node) -> Login | None:
        """None before its host has published a host key."""
        if node.id not in self.host_keys:
            keys = self.client.host_keys(zone, node.name)
            if not keys or not keys[0] or not node.hosts:
                return None
            self.host_keys[node.id] = tuple(keys[0])
        address = node.hosts[0].address if self.external_ips else node.hosts[0].internal
        return Login(address, self.user, self.host_keys[node.id])

    def admit(self, zone: str, node: Node) -> None:
        """Let our key into a TPU VM that another driver made."""
        known = node.metadata.get("ssh-keys", "").splitlines()
        if self.ssh_keys not in known:
            metadata = {**node.metadata, "ssh-keys": "\n".join([*known, self.ssh_keys])}
            self.client.set_metadata(zone, node.name, node.id, metadata)

    def ask(self, workers: Sequence[tuple[Worker, Login]]) -> list[Host | None]:
        """All at once; None where one does not answer."""
        calls = [
            Call(
                login,
                {"do": "status", "attempts": [{"job": job_of(worker), "attempt": worker.attempt, "log": None}]},
                seconds=STATUS_SECONDS,
            )
            for worker, login in workers
        ]
        answers = self.channel.ask(calls)
        return [_host(worker, answer) for (worker, _), answer in zip(workers, answers, strict=True)]

    def launch(self, worker: Worker, login: Login, archive: bytes, argv: Sequence[str], env: dict[str, str]) -> None:
        assert worker.work is not None
        about = {"job": job_of(worker), "attempt": worker.attempt, "code": worker.work.code}
        ready = self._ask(login, {"do": "prepare", **about})
        if holder := ready["held"]:
            if holder["job"] == about["job"]:
                return  # another driver was faster: its attempt is taken for ours when it is next seen
            if not str(holder["job"]).startswith("fleet-"):
                raise Conflict(f"job {holder['job']} runs on {worker.tpu}", hint="stop it first")
            self._ask(login, {"do": "stop", "grace": 0, **holder})
            raise NotYet(f"an earlier program leaves {worker.tpu}")
        if not ready["code"]:
            self._ask(login, {"do": "code", "code": worker.work.code}, archive, UPLOAD_SECONDS)
        start = {"store": self.store, "argv": list(argv), "env": env, "workdir": "~/.tpukit/worker"}
        self._ask(login, {"do": "start", **about, **start})

    def stop(self, worker: Worker, login: Login, attempt: int) -> None:
        self._ask(login, {"do": "stop", "grace": 0, "job": job_of(worker), "attempt": attempt})

    def log(self, worker: Worker, login: Login, position: int = 0) -> dict[str, Any]:
        wanted = {"job": job_of(worker), "attempt": worker.attempt, "log": position}
        answer = self._ask(login, {"do": "status", "attempts": [wanted]})
        piece: dict[str, Any] = answer["attempts"][0]["log"]
        return piece

    def _ask(self, login: Login, request: Answer, content: bytes = b"", seconds: float = 30.0) -> Answer:
        (answer,) = self.channel.ask([Call(login, request, content, seconds)])
        if isinstance(answer, TpukitError):
            raise answer
        if kind := answer.get("refused"):
            words = f"{login.address}: {answer.get('message', '')}"
            raise (
                Conflict(words)
                if kind in ("held", "superseded")
                else (Invalid(words) if kind == "request" else Transient(words))
            )
        return answer


def _host(worker: Worker, answer: Answer | TpukitError) -> Host | None:
    if isinstance(answer, TpukitError) or "attempts" not in answer:
        return None
    (facts,) = answer["attempts"]
    state = pods.state_of(facts["began"], facts["end"], locked=facts["locked"], stopping=facts["stop"])
    running = [one["attempt"] for one in answer["running"] if one["job"] == job_of(worker)]
    said = facts.get("progress") or {"text": "{}", "at": 0.0}
    try:
        values = json.loads(said["text"])
    except ValueError:
        values = {}
    return Host(
        running=max(running, default=0),
        code=state.code if state.phase is pods.Phase.ENDED else None,
        lost=state.phase is pods.Phase.LOST,
        frozen=bool(facts.get("frozen")),
        moved=float(said["at"]),
        samples=int(values.get("step") or 0),
        shards=int(values.get("shards") or 0),
    )
