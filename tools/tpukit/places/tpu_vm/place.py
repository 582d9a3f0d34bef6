"""The tpu-vm place: a job has TPU VMs, its own or named ones, with a supervisor on each of their hosts.

There is no background controller: an observation requests to stop peers of a failed host, or to add this driver's key
to hosts, and the driver does so under the job's lease. What identifies an attempt is in the names and labels of its TPU
VMs, on their disks and in its record, so that another driver on another machine can continue.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, Denied, Invalid, NotFound, Problem, TpukitError, Transient
from tpukit.core.quantities import counted
from tpukit.google.tpu_vm import Node, TpuVms
from tpukit.jobs.plan import Plan, VmTarget
from tpukit.jobs.spec import durations
from tpukit.jobs.spec import settings as settings_file
from tpukit.places import lines
from tpukit.places.base import Claim, FollowUp, Handle, Known, Line, Observation, unclaimed
from tpukit.places.capabilities import TPU_VM
from tpukit.places.tpu_vm import renewals, secrets, target
from tpukit.places.tpu_vm.acquiring import Acquiring
from tpukit.places.tpu_vm.asking import Hosts, workdir
from tpukit.places.tpu_vm.channel import Answer, Channel, Login
from tpukit.places.tpu_vm.log_store import LogStore
from tpukit.places.tpu_vm.machines import Machines
from tpukit.places.tpu_vm.observing import Observer
from tpukit.places.tpu_vm.shared_code import Code
from tpukit.places.tpu_vm.stopping import Stopping
from tpukit.places.tpu_vm.sweeping import Sweeper
from tpukit.places.workdirs import Workdirs

FOLLOW_SECONDS = 0.5
_BOARD = "the first host uploads TensorBoard data: the Python of the job's command needs tpukit[tpu] there"
_NO_BOARD = "TensorBoard data stays in the workdir: the setting `tensorboard` is not set"


def google(project: str) -> TpuVms:
    from tpukit.google import tpu_vm

    return tpu_vm.Client(project)


def over_ssh(folder: Path, key: str | None) -> Channel:
    from tpukit.places.tpu_vm.ssh import Ssh

    return Ssh(folder, key)


class TpuVmPlace:
    name = "tpu-vm"
    capabilities = TPU_VM

    def __init__(
        self,
        root: Path,
        clock: Clock,
        sender: Callable[[], str],
        *,
        cloud: Callable[[str], TpuVms] = google,
        channel: Callable[[Path, str | None], Channel] = over_ssh,
        code: Code | None = None,
        workdirs: Workdirs | None = None,
    ) -> None:
        """Initialize with `sender`, the mark of this store on what it creates."""
        self._root, self._clock, self._sender = root, clock, sender
        self._cloud, self._channel = cloud, channel
        self._clients: dict[str, TpuVms] = {}
        self._channels: dict[str | None, Channel] = {}
        self._observers: dict[tuple[str, str | None], Observer] = {}
        self._logs = LogStore(root)
        self._code = code or Code(root / "code")
        self._workdirs = workdirs or Workdirs()
        self._sweeper = Sweeper(root / "tpu-vm-zones", clock, sender)
        self._stopping = Stopping(clock)
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            channels, self._channels, self._observers = self._channels, {}, {}
        for channel in channels.values():
            channel.close()

    def prepare(self, plan: Plan) -> Plan:
        settings, named = plan.settings, plan.vms.nodes if plan.vms else ()
        problems = [
            Problem(name, f"TPU VMs belong to a Google Cloud {name}, and none is set", settings_file.hint(name))
            for name in ("project", "zone")
            if not getattr(settings, name)
        ]
        if plan.spec.capacity == "flex-start":
            problems.append(
                Problem(
                    "",
                    "capacity: TPU VMs do not support flex-start",
                    "write capacity: spot, or send the job to a cluster",
                )
            )
        if named and len(named) != plan.spec.slices:
            hint = f"name {plan.spec.slices}, with commas between them, or leave --on out"
            problems.append(
                Problem("--on", f"the job has {counted(plan.spec.slices, 'slice')}, not {len(named)}", hint)
            )
        problems += secrets.check(plan.spec.env)
        if problems:
            raise Invalid(problems)
        target.runtime(plan)
        assert settings.project
        assert settings.zone
        vms = replace(plan.vms or VmTarget("", "", ""), project=settings.project, zone=settings.zone)
        posix = self._client(settings.project).login(self._channel_of(plan).public_key())
        user = settings.ssh_user or posix or target.login_user(settings)
        plan = replace(plan, target=replace(vms, user=user, os_login=bool(posix)))
        return replace(plan, target=replace(target.of(plan), ids=self._acquiring(plan).ids(plan))) if named else plan

    def taken(self, plan: Plan) -> frozenset[str]:
        """Return the names of queued resources, including those of other users."""
        queued = self._acquiring(plan).queued(target.of(plan).zone)
        return frozenset(queued)

    def check(self, plan: Plan) -> Sequence[Problem]:
        try:
            if not target.is_own(plan):
                self._acquiring(plan).check(plan)
        except Invalid as error:
            return error.problems
        return []

    def check_code(self, plan: Plan) -> None:
        """Check that the code exists; a missing snapshot is no error, since a driver on another machine may have it."""
        if plan.snapshot:
            with suppress(Transient):
                self._code.require(plan)

    def share_code(self, plan: Plan) -> str:
        try:
            self._code.put(plan)
        except Transient:
            raise
        except TpukitError as error:
            return str(error)
        return ""

    def group(self, plan: Plan) -> str | None:
        return f"{plan.vms.project}/{plan.vms.zone}" if plan.vms else None

    def submit(self, handle: Handle) -> None:
        plan = handle.plan
        if not handle.attempt.number:
            self._workdirs.claim(plan, plan.workdir)
        self._sweeper.note(target.of(plan))
        self._code.share(plan)
        hosts = self._hosts(plan)
        machines = self._acquiring(plan).acquire(handle, lambda seen: hosts.retired(handle, seen, self._clock))
        if machines is not None and not machines.gone:
            hosts.admit(plan, machines)
            hosts.start(handle, machines)

    def observe(self, handles: Sequence[Handle]) -> Sequence[Observation | TpukitError]:
        if not handles:
            return []
        by_key: dict[str | None, list[int]] = {}
        for index, handle in enumerate(handles):
            by_key.setdefault(handle.plan.settings.ssh_key, []).append(index)
        seen: dict[int, Observation | TpukitError] = {}
        for members in by_key.values():
            chosen = [handles[index] for index in members]
            seen |= zip(members, self._observer(chosen[0].plan).observe(chosen), strict=True)
        return [seen[index] for index in range(len(handles))]

    def follow_up(self, handle: Handle, what: FollowUp) -> None:
        hosts, machines = self._hosts(handle.plan), self._acquiring(handle.plan).assess(handle)
        if what.admit:
            hosts.admit(handle.plan, machines)
        if what.renew:
            renewals.renew(hosts.client, handle.plan, machines, self._clock.now())
        if not what.leave:
            return
        logins = hosts.logins(handle.plan, self._there(machines))
        names = handle.plan.host_names
        leaving = [login for name, login in zip(names, logins, strict=True) if name in what.leave]
        hosts.tell(handle, leaving, "stop", grace=what.grace)

    def logs(self, handle: Handle, host: str = "", *, follow: bool = False) -> Iterator[Line]:
        names = [host] if host else handle.plan.host_names
        positions = dict.fromkeys(names, 0)
        while True:
            over = not self._observer(handle.plan).read_logs(handle, names) or not follow
            for name in names:
                positions[name] = max(positions[name], self._logs.start(handle, name))
                file = self._logs.path(handle, name)
                for line, position in lines.read(file, positions[name], unfinished=over):
                    positions[name] = position
                    yield Line(name, line)
            if over:
                return
            self._clock.sleep(FOLLOW_SECONDS)

    def tail(self, handle: Handle, host: str, size: int) -> Sequence[str]:
        return self._observer(handle.plan).tail(handle, host, size)

    def stop(self, handle: Handle, grace: float) -> None:
        acquiring, hosts = self._acquiring(handle.plan), self._hosts(handle.plan)
        machines = acquiring.ours(handle, acquiring.assess(handle))
        if machines.ready:
            there = self._there(machines)
            logins = hosts.logins(handle.plan, there)
            answers = hosts.tell(handle, logins, "stop", grace=grace)
            if any(isinstance(answer, Denied) for answer in answers):
                hosts.admit(handle.plan, machines)  # the next call finds the hosts accessible
            if handle.cancelled and not handle.attempt.state.ended:
                unreachable = _unreachable(handle.plan, there, logins, answers)
                self._stopping.note(handle, unreachable, lambda: acquiring.release(handle))
        acquiring.withdraw(handle, machines)
        if handle.attempt.state.ended:
            self._observer(handle.plan).read_logs(handle, handle.plan.host_names)
            acquiring.release(handle)

    def lose(self, handle: Handle, host: str) -> None:
        hosts = self._hosts(handle.plan)
        logins = hosts.logins(handle.plan, self._there(self._acquiring(handle.plan).assess(handle)))
        login = logins[handle.plan.host_names.index(host)]
        for answer in hosts.tell(handle, [login], "lose"):
            if isinstance(answer, TpukitError):
                raise answer

    def execute(self, handle: Handle, host: str, command: Sequence[str], *, terminal: bool) -> int:
        """Run a command over SSH, in the home folder of the login."""
        plan = handle.plan
        machines = self._acquiring(plan).assess(handle)
        login = self._hosts(plan).logins(plan, self._there(machines))[plan.host_names.index(host)]
        if login is None:
            raise NotFound(f"host {host} does not exist", hint=f"`tpu job show {plan.id}` shows which hosts are")
        return self._channel_of(plan).attached(login, command, terminal=terminal)

    def sweep(
        self, known: Callable[[], Known], complain: Callable[[str], None] = lambda text: None, claim: Claim = unclaimed
    ) -> Sequence[str]:
        return self._sweeper.sweep(self._client, known, complain, claim)

    def workdir(self, plan: Plan, origin: int) -> str:
        return workdir(plan, origin)

    def notes(self, plan: Plan) -> Sequence[str]:
        spec, own = plan.spec, target.is_own(plan)
        return [
            *(["the image is not used: the command runs on the TPU VM itself"] if spec.image else []),
            *(
                ["hosts need gcsfuse to mount buckets; `tpu settings setup` shows the command that prepares hosts"]
                if spec.mounts
                else []
            ),
            *([_BOARD if plan.settings.tensorboard else _NO_BOARD] if spec.tensorboard else []),
            *([f"{plan.slice.name} may be unavailable in {target.of(plan).zone}"] if self._elsewhere(plan) else []),
            *(
                [f"TPU VMs {', '.join(target.nodes(plan))} are created for the job, and deleted when it ends"]
                if own
                else []
            ),
        ]

    def limit(self, plan: Plan) -> str:
        seconds = plan.spec.max.unattended
        if not seconds:
            return "the job runs on without a driver: max.unattended is 0s"
        what = "and its TPU VMs are deleted" if target.is_own(plan) else "and its TPU VMs stay"
        return f"without a driver for {durations.write(seconds)} the program is stopped {what}: see max.unattended"

    def forget(self, handle: Handle) -> str:
        plan, vms = handle.plan, target.of(handle.plan)
        where = f"--project {vms.project} --zone {vms.zone}"
        if target.is_own(plan):
            acquiring = self._acquiring(plan)
            machines = acquiring.ours(handle, acquiring.assess(handle))
            if there := [one.name for one in (*machines.nodes, *machines.queued) if one and one.state != "DELETING"]:
                raise Conflict(f"the API reports that {there[0]} exists")
            remove = f"gcloud compute tpus queued-resources delete {plan.id} --force {where}"
            return f"queued resource {plan.id} with its TPU VMs: `{remove}` removes them"
        return f"processes on TPU VM {', '.join(vms.nodes)} in {vms.zone}"

    def _elsewhere(self, plan: Plan) -> bool:
        return bool(plan.slice.zones) and target.of(plan).zone not in plan.slice.zones

    def _there(self, machines: Machines) -> list[Node | None]:
        return [None if index in machines.gone else node for index, node in enumerate(machines.nodes)]

    def _client(self, project: str) -> TpuVms:
        with self._lock:
            if project not in self._clients:
                self._clients[project] = self._cloud(project)
            return self._clients[project]

    def _channel_of(self, plan: Plan) -> Channel:
        key = plan.settings.ssh_key
        with self._lock:
            if key not in self._channels:
                self._channels[key] = self._channel(self._root / "ssh", key)
            return self._channels[key]

    def _acquiring(self, plan: Plan) -> Acquiring:
        channel = self._channel_of(plan)
        return Acquiring(self._client(target.of(plan).project), self._sender, channel.public_key)

    def _hosts(self, plan: Plan) -> Hosts:
        return self._observer(plan).hosts

    def _observer(self, plan: Plan) -> Observer:
        client, channel = self._client(target.of(plan).project), self._channel_of(plan)
        key = target.of(plan).project, plan.settings.ssh_key
        with self._lock:
            if key not in self._observers:
                hosts = Hosts(client, channel, self._code, self._sender)
                self._observers[key] = Observer(client, hosts, self._logs, self._clock)
            return self._observers[key]


def _unreachable(
    plan: Plan, there: Sequence[Node | None], logins: Sequence[Login | None], answers: Sequence[Answer | TpukitError]
) -> list[str]:
    """Return the hosts of existing TPU VMs that did not answer."""
    said = iter(answers)
    silent = [login is None or isinstance(next(said), TpukitError) for login in logins]
    hosts = plan.slice.hosts
    return [name for index, name in enumerate(plan.host_names) if silent[index] and there[index // hosts] is not None]
