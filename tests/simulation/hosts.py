"""Hosts of simulated TPU VMs with the supervisor's semantics, their ground truth, and the channel to them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simulation.machines import Machine
from simulation.unattended import Watches
from support.simulated_trainings import Training, Trainings
from tpukit.core.errors import LeaseLost, TpukitError, Transient
from tpukit.places.tpu_vm import target
from tpukit.places.tpu_vm.channel import Answer, Call

if TYPE_CHECKING:
    from simulation.world import World

CHANGES = ("start", "stop", "code", "setup", "mount", "secret", "lose")


@dataclass
class Hosts(Trainings):
    """Trainings that also need their code on each host."""

    world: World = None  # type: ignore[assignment]
    code: dict[str, set[str]] = field(default_factory=dict)  # digests, by address
    every: list[Training] = field(default_factory=list)
    calm: bool = True
    numbers: dict[str, int] = field(default_factory=dict)  # host numbers within their job, by address
    watches: Watches | None = None  # if the plan limits hardware without a driver

    def answer(self, address: str, worker: int, request: Answer) -> Answer:
        if request["do"] in ("start", "stop"):
            self.world.cloud.acts({target.JOB: request["job"]}, "", f"{request['do']}s {request['job']} on {address}")
        if request["do"] == "start":
            cloud = self.world.cloud
            others = [one for one in cloud.made.values() if one.id in cloud.foreign]
            if any(host.internal == address for node in others for host in node.hosts):
                self.world.violate("foreign", f"starts {request['job']} on {address}, which is another user's")
            env = request["env"]
            hosts = int(env["TPUKIT_SLICE_HOSTS"])
            self.numbers[address] = int(env.get("MEGASCALE_SLICE_ID", 0)) * hosts + worker
            env["TPUKIT_SLICE_HOSTS"] = hosts * int(env.get("MEGASCALE_NUM_SLICES", 1))
        if self.watches is not None:
            self.watches.heard(address, request)
        return super().answer(address, self.numbers.get(address, worker), request)

    def healthy(self, training: Training) -> bool:
        self.advance()
        return training.broken == math.inf and training.alive and not self._cannot_begin(training)

    def _cannot_begin(self, training: Training) -> bool:
        """Return whether a TPU VM of the attempt was lost before all its hosts had begun: the others wait in vain."""
        plan = self.world.jobs.get(training.job)
        if plan is None or len(training.processes) == training.hosts:
            return False
        cloud = self.world.cloud
        nodes = [cloud.made.get(name) for name in target.nodes(plan)]
        return any(node is None or node.state != "READY" or node.name in cloud.taken for node in nodes)

    def of_job(self, job: str) -> list[Training]:
        self.advance()
        return [one for one in self.every if one.job == job and one.alive]

    def _prepare(self, address: str, worker: int, request: Answer) -> Answer:
        answer = super()._prepare(address, worker, request)
        digest = request.get("code") or ""
        return {**answer, "code": not digest or digest in self.code.get(address, ())}

    def _code(self, address: str, worker: int, request: Answer) -> Answer:
        self.code.setdefault(address, set()).add(request["code"])
        return {}

    def _start(self, address: str, worker: int, request: Answer) -> Answer:
        digest = request.get("code") or ""
        if digest and digest not in self.code.get(address, ()):
            return {"refused": "machine", "message": f"code {digest} is not here"}
        return super()._start(address, worker, request)

    def _stop(self, address: str, worker: int, request: Answer) -> Answer:
        training = self.running.get((request["job"], int(request["attempt"])))
        if training and any(one.alive and one.address == address for one in training.processes.values()):
            self.world.check_end(training, f"stop on {address}")
        return super()._stop(address, worker, request)

    def _new(self, request: Answer) -> Training:
        training = super()._new(request)
        self.every.append(training)
        return training

    def _check_alone(self, job: str, number: int) -> None:
        for other in self.of_job(job):
            if other is self.began.get((job, number)):
                continue
            if other.broken == math.inf or self.clock.now() - other.broken > 60:
                self.world.violate("doubled", f"attempt {number} of {job} begins while attempt {other.number} runs")


@dataclass
class SimulatedChannel:
    machine: Machine

    def public_key(self) -> str:
        return self.machine.key

    def ask(self, calls: Sequence[Call]) -> list[Answer | TpukitError]:
        if not calls:
            return []
        wanted = {call.request["do"] for call in calls}
        what = f"ssh {' '.join(sorted(wanted))} {calls[0].login.address}"
        mutates = bool(wanted & set(CHANGES))
        try:
            return self.machine.call("ssh", what, lambda: [self._ask(call) for call in calls], mutates=mutates)
        except LeaseLost:
            raise
        except TpukitError as error:
            return [error] * len(calls)

    def close(self) -> None:
        pass

    def _ask(self, call: Call) -> Answer | TpukitError:
        world = self.machine.world
        worker = world.cloud.reach(call, self.machine.key)
        if isinstance(worker, TpukitError):
            return worker
        if call.login.host_keys != (f"ssh-ed25519 key-of-{call.login.address}",):
            return Transient(f"{call.login.address}: wrong host key")
        world.acting = self.machine.name
        request = json.loads(json.dumps(call.request))
        return world.hosts.answer(call.login.address, worker, request)
