"""A week of forty people who share sixty spot TPU VMs in four zones, in simulated time.

TPU VMs are preempted, zones run out, hosts fall silent, peers lose each other, calls and answers are lost, and the
process that drives jobs is killed. The commands, the store, the kernel and the place are the real ones.
"""

from __future__ import annotations

import random
import secrets
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from support.simulated_tpu_zones import TpuZones, Unreliable
from support.simulated_trainings import Channel, Killed, Program, Trainings
from tpukit import cli
from tpukit.cli import context, spellings, vms
from tpukit.core.clock import ManualClock
from tpukit.core.errors import TpukitError
from tpukit.jobs import reasons, rules
from tpukit.jobs.controller.driver import Driver
from tpukit.jobs.reasons import Budget, Reason, State
from tpukit.jobs.records import ACTIVE, JOBS, Job
from tpukit.kernel.store import Holder, everything
from tpukit.kernel.store.sqlite import SqliteStore
from tpukit.places.base import Handle
from tpukit.places.tpu_vm import TpuVmPlace
from tpukit.sharing import inventory, users, windows
from tpukit.sharing.inventory import Vm

ZONES = ("us-central2-b", "us-central1-a", "europe-west4-a", "us-east1-d")
PEOPLE, PROGRAMS, TPUS = 40, 200, 60
KINDS = ("v4-8", "v4-16", "v2-32")
HOUR, DAY = 3600.0, 86_400.0
LATEST = 5 * DAY
"""The time after which no jobs are submitted."""


class Place(TpuVmPlace):
    """A place that reports for which job it acts."""

    zones: TpuZones

    def submit(self, handle: Handle) -> None:
        self.zones.acting = handle.plan.id
        super().submit(handle)

    def stop(self, handle: Handle, grace: float) -> None:
        self.zones.acting = handle.plan.id
        super().stop(handle, grace)


class Week:
    def __init__(self, folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.dice, self.clock = folder, random.Random(seed), ManualClock()
        self.began = self.clock.now()
        self.store = SqliteStore(folder / "store.db", now=self.clock.now)
        self.trainings = Trainings(self.clock, self.dice)
        self.cloud = TpuZones(folder, clock=self.clock, dice=self.dice, trainings=self.trainings)
        self.calm, self.drivers = False, 0
        self.typed: Counter[str] = Counter()  # commands, and the kinds of errors that they met
        self.stopped: set[str] = set()  # jobs stopped by a user
        self.runner = CliRunner()
        self.settings()
        monkeypatch.setenv("TPUKIT_HOME", str(folder))
        monkeypatch.setenv("TPUKIT_SETTINGS", str(folder / "settings.yaml"))
        monkeypatch.delenv("TPUKIT_STORE", raising=False)
        vms.settings.cache_clear()
        monkeypatch.setattr(secrets, "token_bytes", random.Random(seed).randbytes)  # job ids come from the seed too
        monkeypatch.setattr(context, "CLOCK", self.clock)
        monkeypatch.setattr(context, "store", lambda: self.store)
        monkeypatch.setattr(context, "sender", lambda: "this-store")
        mine = {"tpu-vm": self.place("data", lambda _: "")}
        monkeypatch.setattr(context, "places", lambda: mine)
        monkeypatch.setattr(vms, "cloud", lambda: self.cloud)
        monkeypatch.setattr(vms, "public_key", lambda: "ada:ssh-ed25519 AAAA tpukit")
        monkeypatch.chdir(folder)
        self.take_over()
        self.settle()

    def settings(self, zone: str = ZONES[0]) -> None:
        text = f"project: my-project-1\nzone: {zone}\nssh_user: ada\n"
        (self.folder / "settings.yaml").write_text(text)

    def place(self, name: str, fate: object) -> Place:
        cloud = Unreliable(self.cloud, fate)  # type: ignore[arg-type]
        channel = Channel(self.cloud.reach, self.trainings, fate)
        made = Place(
            self.folder / name, self.clock, lambda: "this-store", cloud=lambda _: cloud, channel=lambda *_: channel
        )
        made.zones = self.cloud
        return made

    def settle(self) -> None:
        (self.folder / "code").mkdir()
        for number in range(PEOPLE):
            users.add(self.store, f"user{number}", (), self.clock.now())
            users.set_directory(self.store, f"user{number}", 1, str(self.folder / "code"), self.clock.now())
            users.set_setting(self.store, f"user{number}", "monitor_after_run", "False", self.clock.now())
        for number in range(TPUS):
            kind = KINDS[number % 3]
            vm = Vm(f"team-{kind}-spot-{number}", ZONES[number % len(ZONES)], kind, self.clock.now(), spot=True)
            inventory.register(self.store, vm, self.clock.now())
            self.tpu("vm", "apply", vm.name, "--no-wait")

    def take_over(self) -> None:
        """Let another machine drive from now on."""
        self.drivers += 1
        name = f"driver-{self.drivers}"
        places = {"tpu-vm": self.place(name, self.fate)}
        self.driver = Driver(self.store, places, self.clock, Holder(name))
        for troubles in (self.driver.kernel._keys, self.driver.kernel._groups):
            troubles._random = random.Random(self.drivers)

    def fate(self, call: str) -> str:
        if self.calm:
            return ""
        return self.dice.choices(["", "refused", "lost", "killed"], [9700, 150, 140, 2])[0]

    def tpu(self, *words: str) -> str:
        """Run a command, and return its output, or an empty string after an error that users can meet."""
        self.cloud.acting = " ".join(words)
        done = self.runner.invoke(cli.command, spellings.canonical(list(words)))
        if isinstance(done.exception, TpukitError):
            self.typed[f"{words[0]}: {type(done.exception).__name__}"] += 1
            return ""
        assert done.exit_code == 0, f"tpu {' '.join(words)}: {done.output} {done.exception!r}"
        self.typed[words[0]] += 1
        return done.stdout

    # Events between two rounds

    def weather(self, seconds: float) -> None:
        cloud, dice = self.cloud, self.dice
        cloud._pass_time()
        for name, node in list(cloud.made.items()):
            if node.state != "READY" or name in cloud.taken:
                continue
            throw = dice.random() / seconds
            if throw < 1 / (12 * HOUR):
                cloud.preempt(name)
            elif throw < 1.1 / (12 * HOUR):
                cloud.repair(name)
            elif throw < 1.4 / (12 * HOUR):
                cloud.quiet[dice.choice(node.hosts).internal] = self.clock.now() + dice.choice([20, 300, 7200])
        for zone in ZONES:
            if dice.random() < seconds / (12 * HOUR):
                cloud.short.add(zone)
            elif dice.random() < seconds / (4 * HOUR):
                cloud.short.discard(zone)

    def people(self, seconds: float) -> None:
        dice = self.dice
        late = self.clock.now() - self.began > LATEST
        for _ in range(int(seconds * PROGRAMS / LATEST * 1.5 + dice.random())):
            if len(self.trainings.programs) < PROGRAMS:
                self.send()
        if late or dice.random() > seconds / 1200:
            return
        user = f"user{dice.randrange(PEOPLE)}"
        tpu = f"team-{KINDS[(number := dice.randrange(TPUS)) % 3]}-spot-{number}"
        mine = windows.of_user(self.store, user)
        ended = [window for window in mine if not vms.is_active(window.job)]
        command = dice.choice(["apply", "find", "release", "reapply", "check", "ack", "clean", *["again"] * 4, "kill"])
        if command == "apply":
            self.tpu("vm", "apply", tpu, "--no-wait")
        elif command == "find":
            self.tpu("find", "v*")
        elif command == "release":
            self.tpu("release", tpu, user)
        elif command == "reapply":
            self.tpu("vm", "reapply", tpu, "--yes", "--no-wait")
        elif command in ("check", "ack", "clean"):
            self.tpu(command, user)
        elif mine and command == "kill" and dice.random() < 0.2:
            window = dice.choice(mine)
            self.stopped.add(window.job)
            self.tpu("job", "stop", window.name, "--no-wait")
        elif ended and command == "again":
            other = ("--on", tpu) if dice.random() < 0.5 else ()
            self.tpu("job", dice.choice(["resume", "rerun"]), dice.choice(ended).name, "--detach", *other)

    def send(self) -> None:
        dice, number = self.dice, len(self.trainings.programs)
        program = Program(dice.uniform(0.2, 12) * HOUR)
        if dice.random() < 0.2:
            program.mistake, program.memory = dice.random() * program.seconds, dice.random() < 0.3
        kind = dice.choice(KINDS)
        rule = dice.choice([*rules.RULES, "pre", "pre"])
        said = [f"name: train-{number}", f"tpu: {kind}", "capacity: spot", f"rule: {rule}"]
        said += [f"command: [python, main.py, program-{number}]", f"max: {{restarts: {dice.randrange(3)}}}"]
        file = self.folder / "code" / "job.yaml"
        file.write_text("\n".join(said) + f"\nworkdir: gs://bucket/{number}\n")
        self.trainings.programs[f"program-{number}"] = program
        user, throw = f"user{dice.randrange(PEOPLE)}", dice.random()
        some = f"team-{kind}-spot-{dice.randrange(TPUS // 3) * 3 + KINDS.index(kind)}"
        if throw < 0.15:
            sent = self.tpu("run", str(file), "--place", "tpu-vm", "--detach")
        elif throw < 0.25:
            zone = inventory.get(self.store, some).zone
            self.settings(zone)
            sent = self.tpu("run", str(file), "--place", "tpu-vm", "--on", some, "--detach")
            self.settings()
        elif throw < 0.5:
            sent = self.tpu("run", some, user, "-apply", "-q", *(("--yes",) if throw < 0.3 else ()))
        else:
            sent = self.tpu("run", kind, user, "-q")
        if not sent:
            del self.trainings.programs[f"program-{number}"]
            self.tpu("vm", "reapply", some, "--yes", "--no-wait")

    def drive(self) -> None:
        try:
            self.driver.round()
            if self.dice.random() < 0.05:
                self.cloud.acting = "sweep"
                self.driver.sweep()
        except Killed:
            self.take_over()

    def active(self) -> list[Job]:
        return [entry.value for entry in everything(self.store, JOBS, states=ACTIVE)]

    def run(self) -> None:
        while self.clock.now() - self.began < 7 * DAY:
            seconds = self.dice.choices([2.0, 20.0, 120.0, 900.0, 3000.0], [3, 3, 2, 3, 3])[0]
            self.clock.sleep(seconds)
            self.weather(seconds)
            self.people(seconds)
            self.drive()

    def clear_up(self) -> None:
        """Stop all faults, wait until every active job ends, and sweep what is left."""
        self.calm = self.trainings.calm = True
        self.cloud.short.clear()
        self.cloud.quiet.clear()
        due = self.clock.now() + 3 * DAY
        while self.active():
            assert self.clock.now() < due, [(job.id, job.state, job.message) for job in self.active()]
            self.clock.sleep(60.0 if len(self.active()) < 5 else 600.0)
            self.cloud._pass_time()
            self.drive()
        for _ in range(5):
            self.clock.sleep(300.0)
            self.cloud._pass_time()
            self.driver.sweep()


@pytest.fixture
def week(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Week]:
    heard = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)}
    made = Week(tmp_path, request.param, monkeypatch)
    yield made
    made.store.close()
    vms.settings.cache_clear()
    for number, handler in heard.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("week", [0], indirect=True)
def test_week_of_preemptions_stock_outs_and_mistakes_ends_every_job_rightly_and_leaves_nothing(week):
    week.run()
    week.clear_up()
    assert week.trainings.violations == []
    jobs = [entry.value for entry in everything(week.store, JOBS)]
    assert len(jobs) >= PROGRAMS
    seen: Counter[str] = Counter()
    for job in jobs:
        check(week, job, seen)
    print(seen, week.typed)
    left = {name for name in (*week.cloud.made, *week.cloud.requests) if not name.startswith("team-")}
    assert left == set()
    for reason in (Reason.DONE, Reason.PREEMPTED, Reason.PEER_LOST, Reason.USER_ERROR, Reason.OUT_OF_MEMORY):
        assert seen[reason] > 3, seen
    for row in vms.rows():
        assert not row.held


def check(week: Week, job: Job, seen: Counter[str]) -> None:
    program = week.trainings.programs[job.plan["spec"]["command"][-1]]
    for attempt in job.attempts:
        training = week.trainings.began.get((job.id, attempt.number))
        cause = training.cause if training else "never began"
        story = f"{job.id} attempt {attempt.number}: {attempt.reason} {attempt.detail}; really: {cause}"
        assert attempt.reason is not None, story
        seen[attempt.reason] += 1
        if reasons.MEANINGS[attempt.reason].budget is Budget.USER:
            assert cause == "mistake", story
        if attempt.reason is Reason.DONE:
            assert cause == "done", story
    last = job.attempts[-1].reason if job.attempts else None
    story = f"{job.id} {job.state}: {job.message}; {[one.reason for one in job.attempts]}"
    if job.state is State.COMPLETED:
        assert last is Reason.DONE, story
    elif job.state is State.FAILED:
        assert last is not None, story
        meaning = reasons.MEANINGS[last]
        if meaning.budget is Budget.USER:
            assert program.mistake < program.seconds, story
        elif meaning.lost:
            assert rules.RULES[job.plan["spec"]["rule"]][meaning.lost] is rules.Action.NOTHING, story
        else:
            raise AssertionError(story)
    else:
        assert job.state is State.CANCELLED and job.id in week.stopped, story
