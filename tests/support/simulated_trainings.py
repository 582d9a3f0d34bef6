"""Trainings on hosts of TPU VMs, in simulated time.

They begin when all their hosts have begun, save, complete, fail by an error of the user, lose peers, and end with their
machines. The hosts answer and refuse like the supervisor: a second attempt on a host, and an attempt older than another
one on the host. The true events are recorded for comparison.
"""

from __future__ import annotations

import base64
import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tpukit.core.clock import ManualClock
from tpukit.core.errors import TpukitError, Transient
from tpukit.places.tpu_vm.channel import Answer, Call

SAVE_SECONDS = 600.0
NOTICE_SECONDS = 10.0
"""Time until JAX notices that a peer is gone."""
PEER_GONE = (
    "E1115 11:11:15.658635   30370 coordination_service_agent.cc:288] Polled an error from coordination service: "
    "UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats)\n"
)
MISTAKE = (
    'Traceback (most recent call last):\n  File "main.py", line 7, in <module>\nValueError: a mistake of the user\n'
)
MEMORY = (
    'Traceback (most recent call last):\n  File "main.py", line 9, in <module>\n'
    "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 4398046511104 bytes.\n"
)
HELLO = "training begins\n"


@dataclass
class Program:
    """A user's program. It completes after `seconds` of work, or fails on the way."""

    seconds: float
    mistake: float = math.inf  # seconds of work until it fails
    memory: bool = False  # it fails by running out of memory
    saved: dict[str, float] = field(default_factory=dict)  # seconds of work that are saved, by workdir


@dataclass
class Process:
    """The process of a training on one host."""

    address: str
    began: float
    end: dict[str, Any] | None = None
    log: str = HELLO
    lost: bool = False  # its machine was lost

    @property
    def alive(self) -> bool:
        return self.end is None and not self.lost

    def exit(self, code: int, at: float, words: str = "", *, signalled: bool = False) -> None:
        self.end = {"at": at, "order": at, "code": code, "told": signalled, "told_at": len(self.log), "error": ""}
        self.end |= {"out_of_memory": False, "disk_full": False}
        self.log += words


@dataclass
class Training:
    """One attempt."""

    job: str
    number: int
    program: Program
    workdir: str
    hosts: int
    fate: str  # what ends it, unless something else does before: done, mistake, peer
    lasts: float  # seconds until then
    processes: dict[int, Process] = field(default_factory=dict)
    stops: dict[int, tuple[float, float]] = field(default_factory=dict)  # workers told to leave: time and grace period
    started: float = math.inf  # when the last host began
    broken: float = math.inf  # when it lost a member
    cause: str = ""  # what ended it

    @property
    def alive(self) -> bool:
        return any(process.alive for process in self.processes.values())

    def is_elsewhere(self, worker: int, address: str) -> bool:
        """Return whether it was begun on machines that were lost before all of its hosts had begun."""
        there = any(process.address == address for process in self.processes.values())
        return not there and (worker in self.processes or self.broken < math.inf)

    def worked(self, now: float) -> float:
        """Return the seconds of work done, by all attempts since the beginning."""
        done = self.program.saved.get(self.workdir, 0.0)
        return done + max(0.0, min(now, self.broken, self.started + self.lasts) - self.started)

    def advance(self, now: float) -> None:
        if self.broken == math.inf and now >= self.started + self.lasts:
            self._meet_fate(self.started + self.lasts)
        for worker, (at, grace) in self.stops.items():
            process = self.processes.get(worker)
            if process is not None and process.alive and now >= at + min(grace, 5.0):
                self.break_up("told to leave", at)
                process.exit(143, at + min(grace, 5.0), signalled=True)
        for process in self.processes.values():
            if process.alive and now >= self.broken + NOTICE_SECONDS:
                process.exit(134, self.broken + NOTICE_SECONDS, PEER_GONE)

    def break_up(self, cause: str, at: float) -> None:
        """Lose a member; the others run for a while longer but make no progress."""
        if self.broken == math.inf:
            saved = self.worked(at) // SAVE_SECONDS * SAVE_SECONDS
            self.cause, self.broken = cause, at
            self.program.saved[self.workdir] = max(saved, self.program.saved.get(self.workdir, 0.0))

    def _meet_fate(self, at: float) -> None:
        self.break_up(self.fate, at)
        last = max(self.processes)
        for worker, process in self.processes.items():
            if not process.alive:
                continue
            if self.fate == "done":
                process.exit(0, at)
            elif self.fate == "peer":
                process.exit(134, at + worker, PEER_GONE)
            elif worker == last:
                process.exit(1, at, MEMORY if self.program.memory else MISTAKE)


@dataclass
class Trainings:
    """All trainings so far, and the hosts that run them."""

    clock: ManualClock
    dice: random.Random
    programs: dict[str, Program] = field(default_factory=dict)  # by the last word of the command
    began: dict[tuple[str, int], Training] = field(default_factory=dict)
    running: dict[tuple[str, int], Training] = field(default_factory=dict)
    latest: dict[tuple[str, str], int] = field(default_factory=dict)  # attempts, by address and job
    notes: set[tuple[str, str, int]] = field(default_factory=set)  # of stops, on hosts
    retired: dict[str, tuple[str, float]] = field(default_factory=dict)  # by address: the retiring job, and until when
    violations: list[str] = field(default_factory=list)
    calm: bool = False  # peers no longer lose each other
    advanced: float = 0.0  # time of the last advance

    def advance(self) -> None:
        if self.advanced == self.clock.now():
            return
        self.advanced = self.clock.now()
        for key, training in list(self.running.items()):
            training.advance(self.clock.now())
            if not training.alive:
                del self.running[key]

    def lose(self, address: str, how: str) -> None:
        """Lose a machine with everything that runs on it."""
        self.advance()
        for training in self.running.values():
            for process in training.processes.values():
                if process.address == address and process.alive:
                    training.break_up(how, self.clock.now())
                    process.lost = True

    def on(self, address: str) -> Training | None:
        """Return the training that runs on a host."""
        for training in self.running.values():
            if any(process.alive and process.address == address for process in training.processes.values()):
                return training
        return None

    def answer(self, address: str, worker: int, request: Answer) -> Answer:
        self.advance()
        answer: Answer = getattr(self, f"_{request['do']}")(address, worker, request)
        return answer

    def _prepare(self, address: str, worker: int, request: Answer) -> Answer:
        return {"code": True, "held": self._held(address, request), "boot": "1"}

    def _start(self, address: str, worker: int, request: Answer) -> Answer:
        job, number = request["job"], int(request["attempt"])
        if self.latest.get((address, job), -1) > number:
            return {"refused": "superseded", "message": f"a later attempt of {job} has already run on this host"}
        if holder := self._held(address, request):
            return {"refused": "held", "message": f"job {holder['job']} holds this host"}
        self.latest[address, job] = number
        training = self.began.get((job, number))
        if training is None or training.is_elsewhere(worker, address):
            training = self._new(request)
        if worker not in training.processes and (address, job, number) not in self.notes:
            self._check_alone(job, number)
            training.processes[worker] = Process(address, self.clock.now())
            self.running[job, number] = training
            if len(training.processes) == training.hosts:
                training.started = self.clock.now()
        return self._facts(address, job, number, None)

    def _status(self, address: str, worker: int, request: Answer) -> Answer:
        asked = [self._facts(address, one["job"], one["attempt"], one.get("log")) for one in request["attempts"]]
        holder = self.on(address)
        runs = [{"job": holder.job, "attempt": holder.number, "store": ""}] if holder else []
        return {"boot": "1", "attempts": asked, "running": runs}

    def _stop(self, address: str, worker: int, request: Answer) -> Answer:
        job, number = request["job"], int(request["attempt"])
        self.notes.add((address, job, number))
        self.latest[address, job] = max(number, self.latest.get((address, job), -1))
        training = self.running.get((job, number))
        process = training.processes.get(worker) if training else None
        if training and process and process.address == address:
            training.stops.setdefault(worker, (self.clock.now(), float(request["grace"])))
        return self._facts(address, job, number, None)

    def _retire(self, address: str, worker: int, request: Answer) -> Answer:
        holder = self.on(address)
        if (holder is None or holder.job == request["job"]) and self._retirer(address, request["job"]) is None:
            self.retired[address] = request["job"], self.clock.now() + request["seconds"]
        runs = [{"job": holder.job, "attempt": holder.number, "store": ""}] if holder else []
        return {"running": runs, "held": self._held(address, request)}

    def _retirer(self, address: str, job: str) -> Answer | None:
        by, until = self.retired.get(address, ("", 0.0))
        return {"job": by, "attempt": 0, "store": ""} if by != job and self.clock.now() <= until else None

    def _new(self, request: Answer) -> Training:
        program = self.programs[request["argv"][-1]]
        done = program.saved.get(request["workdir"], 0.0)
        fates = {"done": program.seconds - done, "mistake": program.mistake - done}
        hosts = int(request["env"]["TPUKIT_SLICE_HOSTS"])
        if hosts > 1 and not self.calm:
            fates["peer"] = self.dice.expovariate(1 / 36_000)
        fate = min(fates, key=lambda one: fates[one])
        training = Training(
            *(request["job"], int(request["attempt"]), program, request["workdir"], hosts, fate, max(0.0, fates[fate]))
        )
        self.began[training.job, training.number] = training
        return training

    def _held(self, address: str, request: Answer) -> Answer | None:
        holder = self.on(address)
        if holder is None or (holder.job, holder.number) == (request["job"], int(request["attempt"])):
            return self._retirer(address, request["job"])
        return {"job": holder.job, "attempt": holder.number, "store": ""}

    def _check_alone(self, job: str, number: int) -> None:
        for other, attempt in self.running:
            if other == job and attempt != number and self.running[other, attempt].alive:
                self.violations.append(f"attempt {number} of {job} begins while attempt {attempt} runs")

    def _facts(self, address: str, job: str, number: int, log: int | None) -> Answer:
        training = self.began.get((job, number))
        processes = training.processes.values() if training else ()
        process = next((one for one in processes if one.address == address), None)
        facts: Answer = {
            "began": {"pid": 1, "shim": 1, "at": process.began, "awake": 0.0} if process else None,
            "end": process.end if process else None,
            "locked": bool(process and process.alive),
            "stop": (address, job, number) in self.notes,
            "frozen": False,
            "progress": self._progress(training) if training and process else None,
        }
        if log is not None:
            text = process.log.encode() if process else b""
            facts["log"] = {"at": log, "bytes": base64.b64encode(text[log:]).decode(), "size": len(text)}
        return facts

    def _progress(self, training: Training) -> Answer:
        now = self.clock.now()
        worked = training.worked(now) if training.broken == math.inf else training.program.saved[training.workdir]
        saved = int(worked // SAVE_SECONDS) * 10
        text = {"step": int(worked // 60), "saved": saved, "time": now}
        return {"text": json.dumps(text), "at": now}


class Killed(BaseException):
    """The process is killed, at any moment."""


@dataclass
class Channel:
    """One process's channel to the hosts: calls and answers may be lost, and the process may die in between."""

    reach: Any  # from the call to the number of the worker, or to an error
    trainings: Trainings
    fate: Any  # of one call: "", refused, lost, killed
    key: str = "ssh-ed25519 AAAA tpukit"

    def public_key(self) -> str:
        return self.key

    def ask(self, calls: Sequence[Call]) -> list[Answer | TpukitError]:
        return [self._ask(call) for call in calls]

    def close(self) -> None:
        pass

    def _ask(self, call: Call) -> Answer | TpukitError:
        address = call.login.address
        worker = self.reach(call, self.key)
        if isinstance(worker, TpukitError):
            return worker
        fate = self.fate(call.request["do"])
        if fate == "refused":
            return Transient(f"{address}: connection reset")
        answer = self.trainings.answer(address, worker, json.loads(json.dumps(call.request)))
        if fate == "killed":
            raise Killed
        return Transient(f"{address}: the connection was lost") if fate == "lost" else answer
