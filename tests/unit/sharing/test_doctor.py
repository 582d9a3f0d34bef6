"""The doctor on hosts whose state changes with each repair."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from tpukit import catalogue
from tpukit.core.clock import ManualClock
from tpukit.core.errors import Denied, HostKeyChanged, TpukitError, Transient
from tpukit.google.tpu_vm import Node, Queued
from tpukit.sharing import doctor
from tpukit.sharing.doctor import Done, Outcome, Patient
from tpukit.sharing.inventory import Vm

ZONE, NOW = "us-central2-b", 1_700_000_000.0
GIB = 2**20


@dataclass
class Machine:
    """A host with faults."""

    reachable: bool = True
    boots: float = math.inf  # seconds until an unreachable host listens
    refuses: TpukitError = field(default_factory=lambda: Transient("no route to host"))
    skew: int = 0
    free: int = 50 * GIB
    logs: int = 0
    mounted: set[str] = field(default_factory=set)
    jax: bool = True
    wandb: bool = True
    holders: list[str] = field(default_factory=list)
    chips: int = 4
    installs: bool = True

    def run(self, argv: Sequence[str]) -> Done | TpukitError:
        words = [word for word in argv if word != "sudo"]
        if not self.reachable:
            return self.refuses
        if words == ["true"] or words[0] in ("mkdir", "rm", "find"):
            return Done(0, "")
        if words[0] == "date":
            return Done(0, f"{int(NOW) - self.skew}\n")
        if words[0] == "chronyc":
            self.skew = 0
        if words[0] == "df":
            return Done(0, f"Filesystem 1024-blocks Used Available Capacity\n/dev/sda 1 1 {self.free} 1% /\n")
        if words[0] == "journalctl":
            self.free, self.logs = self.free + self.logs, 0
        if words[0] == "mountpoint":
            return Done(0 if words[-1] in self.mounted else 1, "")
        if words[0] == "mount":
            self.mounted.add(words[-1])
        if words[:3] == ["python3", "-m", "pip"] and self.installs:
            self.jax, self.wandb = self.jax or "jax" in words[-1], self.wandb or words[-1] == "wandb"
        if words[:2] == ["python3", "-c"]:
            return self._python(words[2])
        return Done(0, "")

    def _python(self, program: str) -> Done:
        if "os.kill" in program:
            self.holders.clear()
        if "/proc/" in program:
            return Done(0, " ".join(self.holders) + "\n")
        if "find_spec('wandb')" in program:
            return Done(0, "") if self.wandb else Done(1, "", "no module wandb\n")
        if "find_spec" in program:
            return Done(0, "") if self.jax else Done(1, "", "no module jax\n")
        return Done(1, "", "RuntimeError: the TPU is in use\n") if self.holders else Done(0, f"{self.chips}\n")


@dataclass
class World:
    machines: list[Machine] = field(default_factory=lambda: [Machine(), Machine()])
    state: str = "READY"
    request: str = "ACTIVE"
    error: str = ""
    denied: bool = False
    mount: str = ""
    busy: str = ""
    wandb: bool = False  # the user has a wandb key
    agrees: bool = True
    asked: list[str] = field(default_factory=list)
    clock: ManualClock = field(default_factory=lambda: ManualClock(NOW))

    def nodes(self, zone: str) -> list[Node]:
        if self.denied:
            raise Denied("tpu.nodes.list is missing")
        return [Node("t", "1", self.state)] if self.state else []

    def queued(self, zone: str) -> list[Queued]:
        return [Queued("t", self.request, error=self.error)] if self.request else []

    def run(self, argv: Sequence[str], seconds: float = 60.0) -> list[Done | TpukitError]:
        for machine in self.machines:
            machine.reachable = machine.reachable or NOW + machine.boots <= self.clock.now()
        return [machine.run(argv) for machine in self.machines]

    def make_anew(self) -> None:
        self.state, self.request = "READY", "ACTIVE"
        self.machines = [Machine() for _ in self.machines]

    def allowed(self, question: str) -> bool:
        self.asked.append(question)
        return self.agrees

    def examine(self, *, fix: bool = True) -> dict[str, Outcome]:
        vm = Vm("t", ZONE, "v4-16", 1.0, disk="10.0.0.2:/share", mount=self.mount)
        patient = Patient(
            *(vm, catalogue.find("v4-16"), self, self, self.clock, self.make_anew, self.allowed),  # type: ignore[arg-type]
            busy=self.busy,
            wandb=self.wandb,
        )
        self.findings = {one.check: one for one in doctor.examine(patient, doctor.known_checks(), fix=fix)}
        return {name: one.outcome for name, one in self.findings.items() if one.outcome is not Outcome.GOOD}


def test_checks_are_eleven_each_behind_what_it_needs():
    names = [check.name for check in doctor.known_checks()]
    assert len(names) == len(set(names)) == 11
    for number, check in enumerate(doctor.known_checks()):
        assert set(check.needs) <= set(names[:number])


def test_sound_tpu_is_good_and_nothing_is_asked():
    world = World(mount="/mnt/share", machines=[Machine(mounted={"/mnt/share"})] * 2)
    assert world.examine() == {}
    assert world.asked == []


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ({"skew": 300}, "clock"),
        ({"free": GIB, "logs": 9 * GIB}, "free disk"),
        ({"jax": False}, "Python environment"),
        ({"holders": ["17", "4"]}, "stale process"),
        ({"chips": 3}, "JAX sees all chips"),
    ],
)
def test_fault_of_one_host_is_named_mended_and_gone(fault, check):
    world = World(machines=[Machine(), Machine(**fault)])
    before = world.examine(fix=False)
    assert before[check] is Outcome.BAD and world.findings[check].says.startswith("host 1: ")
    assert world.examine() == {check: Outcome.MENDED}
    assert world.examine() == {}


def test_disk_that_is_not_mounted_is_mounted():
    world = World(mount="/mnt/share")
    assert world.examine() == {"disk mounted": Outcome.MENDED}
    assert all(machine.mounted == {"/mnt/share"} for machine in world.machines)


def test_wandb_is_installed_on_hosts_without_it_where_the_user_has_a_key_and_not_otherwise():
    world = World(machines=[Machine(), Machine(wandb=False)], wandb=True)
    assert world.examine(fix=False) == {"wandb": Outcome.BAD}
    assert world.findings["wandb"].says == "host 1: no module wandb"
    assert world.examine() == {"wandb": Outcome.MENDED}
    assert World(machines=[Machine(wandb=False)]).examine() == {}


def test_fix_that_does_not_help_is_bad_and_what_needs_it_is_not_examined():
    world = World(machines=[Machine(jax=False, installs=False)])
    assert world.examine() == {"Python environment": Outcome.BAD, "JAX sees all chips": Outcome.UNKNOWN}
    assert world.findings["Python environment"].fix == "jax[tpu] installed"


def test_preempted_tpu_is_made_anew_only_with_consent():
    world = World(state="PREEMPTED", request="SUSPENDED", agrees=False)
    assert world.examine()["TPU state"] is Outcome.BAD
    assert world.examine()["SSH"] is Outcome.UNKNOWN
    world.agrees = True
    assert world.examine() == {"TPU state": Outcome.MENDED}


@pytest.mark.parametrize("state", ["CREATING", "REPAIRING", "RESTARTING"])
def test_tpu_that_comes_by_itself_is_left_alone(state):
    world = World(state=state)
    assert world.examine()["TPU state"] is Outcome.BAD
    assert world.asked == [] and world.state == state


def test_active_job_is_not_disturbed():
    world = World(busy="train-1", machines=[Machine(holders=["17"], chips=0)], mount="")
    assert world.examine() == {}
    assert world.machines[0].holders == ["17"]
    world = World(busy="train-1", state="PREEMPTED")
    assert world.examine()["TPU state"] is Outcome.BAD and world.asked == []


def test_refused_api_and_quota_are_for_a_person():
    world = World(denied=True)
    outcomes = world.examine()
    assert outcomes.pop("API access") is Outcome.BAD and set(outcomes.values()) == {Outcome.UNKNOWN}
    world = World(state="", request="FAILED", error="Quota limit 'TPUV4' has been exceeded")
    assert world.examine()["quota"] is Outcome.BAD
    assert "ask for more" in world.findings["quota"].says


@pytest.mark.parametrize("refuses", [Transient("no route to host"), HostKeyChanged("not the key that Google has")])
def test_host_that_was_just_made_is_waited_for(refuses):
    world = World(machines=[Machine(), Machine(reachable=False, boots=9.0, refuses=refuses)], mount="")
    assert "SSH" not in world.examine()


def test_unreachable_host_is_named():
    world = World(machines=[Machine(), Machine(reachable=False)])
    assert world.examine()["SSH"] is Outcome.BAD
    assert world.findings["SSH"].says == "host 1: no route to host"


def test_checks_that_need_each_other_are_refused():
    class One:
        name, needs = "one", ("two",)

    class Two:
        name, needs = "two", ("one",)

    with pytest.raises(ValueError, match="depend on each other"):
        doctor.ordered([One(), Two()])  # type: ignore[list-item]
