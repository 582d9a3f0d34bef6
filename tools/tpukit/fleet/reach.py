"""Access to the hosts of a fleet's TPU VMs, and requests to their supervisors."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tpukit.core import fence
from tpukit.core.errors import Conflict, Invalid, LeaseLost, NotYet, TpukitError, Transient
from tpukit.fleet.records import Worker
from tpukit.fleet.seen import Host
from tpukit.google.tpu_vm import SSH_KEYS, Node, TpuVms, with_key
from tpukit.places.local import processes as pods
from tpukit.places.tpu_vm.channel import Answer, Call, Channel, Login

STATUS_SECONDS = 15.0
SETUP_SECONDS = 1800.0
UPLOAD_SECONDS = 600.0
KEY_READERS = 16
MOST_WORDS = 500
"""Maximum characters of a message that a program reports."""


@dataclass(frozen=True, slots=True)
class Sight:
    """A host that was asked: its report, or the reason why there is none."""

    host: Host | None = None
    why: str = ""
    silent: bool = False  # it does not respond at all
    witness: bool = False  # another host of its zone did


def job_of(worker: Worker) -> str:
    """Return the supervisor's name for the worker's program: other code is another job, with its own folder."""
    return f"fleet-{worker.work.code[:12]}" if worker.work else ""


@dataclass(frozen=True, slots=True)
class Reach:
    client: TpuVms
    channel: Channel
    user: str
    external_ips: bool
    store: str  # mark of the launching store
    host_keys: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of nodes, by their ids

    @property
    def ssh_keys(self) -> str:
        return f"{self.user}:{self.channel.public_key()}"

    def login(self, zone: str, node: Node) -> Login | None:
        """Return the login of a host; None until it has published a host key."""
        if node.id not in self.host_keys:
            keys = self.client.host_keys(zone, node.name)
            if not keys or not keys[0] or not node.hosts:
                return None
            self.host_keys[node.id] = tuple(keys[0])
        address = node.hosts[0].address if self.external_ips else node.hosts[0].internal
        return Login(address, self.user, self.host_keys[node.id])

    def admit(self, zone: str, node: Node) -> None:
        """Add our key to a TPU VM that another driver made."""
        if self.ssh_keys not in node.metadata.get(SSH_KEYS, "").splitlines():
            self.client.set_metadata(zone, node.name, node.id, lambda found: with_key(found, self.ssh_keys))

    def look(self, zone: str, asked: Sequence[tuple[Worker, Node]]) -> list[Sight]:
        """Ask many hosts concurrently.

        A host that refuses our key, or to which our key could not be written, is unseen because of a fault on our side.
        A host that does not respond, or has published no host key, is silent.
        """
        if not asked:
            return []
        let_in = fence.carry(partial(self._let_in, zone))
        with ThreadPoolExecutor(min(KEY_READERS, len(asked))) as pool:
            logins = list(pool.map(let_in, [node for _, node in asked]))
        calls = {
            at: Call(login, _status(worker), seconds=STATUS_SECONDS)
            for at, ((worker, _), login) in enumerate(zip(asked, logins, strict=True))
            if isinstance(login, Login)
        }
        answers = dict(zip(calls, self.channel.ask(list(calls.values())), strict=True))
        return [
            _sight(worker, answers.get(at, login))
            for at, ((worker, _), login) in enumerate(zip(asked, logins, strict=True))
        ]

    def answers(self, zone: str, node: Node) -> bool:
        """Return whether a host responds to us at all."""
        login = self._let_in(zone, node)
        if not isinstance(login, Login):
            return False
        (answer,) = self.channel.ask([Call(login, {"do": "status", "attempts": []}, seconds=STATUS_SECONDS)])
        return not isinstance(answer, TpukitError)

    def _let_in(self, zone: str, node: Node) -> Login | TpukitError | None:
        try:
            self.admit(zone, node)
            return self.login(zone, node)
        except LeaseLost:
            raise
        except TpukitError as error:
            return error

    def launch(
        self,
        worker: Worker,
        login: Login,
        archive: bytes,
        argv: Sequence[str],
        env: Mapping[str, str],
        unattended: Mapping[str, Any] | None = None,
    ) -> None:
        """Start the worker's program, unless it runs. `unattended` has the limits for a missing driver."""
        assert worker.work is not None
        about = {"job": job_of(worker), "attempt": worker.attempt, "code": worker.work.code}
        ready = self._ask(login, {"do": "prepare", **about})
        if holder := ready["held"]:
            if holder["job"] == about["job"]:
                return  # another driver was faster: its attempt is adopted in the next round
            if not str(holder["job"]).startswith("fleet-"):
                raise Conflict(f"job {holder['job']} runs on {worker.tpu}", hint="stop it first")
            self._ask(login, {"do": "stop", "grace": 0, **holder})
            raise NotYet(f"an earlier program is still stopping on {worker.tpu}")
        if not ready["code"]:
            self._ask(login, {"do": "code", "code": worker.work.code}, archive, UPLOAD_SECONDS)
        start = {"store": self.store, "argv": list(argv), "env": dict(env), "workdir": "~/.tpukit/worker"}
        start["unattended"] = dict(unattended or {})
        self._ask(login, {"do": "start", **about, **start})

    def stop(self, worker: Worker, login: Login, attempt: int) -> None:
        self._ask(login, {"do": "stop", "grace": 0, "job": job_of(worker), "attempt": attempt})

    def log(self, worker: Worker, login: Login, position: int = 0) -> tuple[dict[str, Any], Host]:
        """Return what the program printed from `position` on, and its host's report."""
        wanted = {"job": job_of(worker), "attempt": worker.attempt, "log": position}
        answer = self._ask(login, {"do": "status", "attempts": [wanted]})
        piece: dict[str, Any] = answer["attempts"][0]["log"]
        return piece, _host(worker, answer)

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


def _status(worker: Worker) -> Answer:
    return {"do": "status", "attempts": [{"job": job_of(worker), "attempt": worker.attempt, "log": None}]}


def _sight(worker: Worker, answer: Answer | Login | TpukitError | None) -> Sight:
    if answer is None:
        return Sight(why="it has published no host key", silent=True)
    if isinstance(answer, Login):
        return Sight(why="the host was not contacted")
    if isinstance(answer, TpukitError):
        return Sight(why=answer.message, silent=isinstance(answer, Transient))
    if "attempts" not in answer:
        return Sight(why=str(answer.get("message", "its supervisor refused the request")))
    try:
        return Sight(_host(worker, answer))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return Sight(why=f"its report cannot be read: {error!r}")


def _host(worker: Worker, answer: Answer) -> Host:
    (facts,) = answer["attempts"]
    state = pods.state_of(facts["began"], facts["end"], locked=facts["locked"], stopping=facts["stop"])
    running = [one["attempt"] for one in answer["running"] if one["job"] == job_of(worker)]
    said = facts.get("progress") or {"text": "{}", "at": 0.0}
    values = _values(said["text"])
    return Host(
        running=max(running, default=0),
        code=state.code if state.phase is pods.Phase.ENDED else None,
        lost=state.phase is pods.Phase.LOST,
        frozen=bool(facts.get("frozen")),
        moved=float(said["at"]),
        samples=_count(values.get("step")),
        shards=_count(values.get("shards")),
        latest=_count(facts.get("latest")),
        error=str(values.get("error") or "")[:MOST_WORDS],
        warning=str(values.get("warning") or "")[:MOST_WORDS],
    )


def _values(text: str) -> dict[str, Any]:
    """Return the program's report; anything else in that file counts as none."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return 0
    return max(0, int(value))
