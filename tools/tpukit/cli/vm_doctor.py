"""`tpu vm solve` and `tpu vm mount-disk`: the doctor."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from tpukit.cli import questions

if TYPE_CHECKING:
    from tpukit.core.errors import TpukitError
    from tpukit.sharing.doctor import Done, Patient
    from tpukit.sharing.inventory import Vm

_MARKS = {"good": ("✓", "green"), "mended": ("✓", "yellow"), "bad": ("✗", "red"), "not examined": ("·", "")}


@click.command()
@click.argument("tpu")
@click.option("--dry-run", is_flag=True, help="Report faults without repairing them.")
@click.option("--yes", is_flag=True, help="Do not ask before processes are killed or the TPU is recreated.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def solve(tpu: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Diagnose a TPU and repair it. Exits 1 if a fault remains.

    Processes, disks and chips of a job that is active on the TPU are left alone.
    """
    _examine(tpu, (), fix=not dry_run, yes=yes, as_json=as_json)


@click.command("mount-disk")
@click.argument("tpu")
@click.option(
    "--disk", default="", metavar="SERVER:/PATH", help="Shared disk, NFS (default: the last one of the zone)."
)
@click.option("--at", "mount", default="", metavar="FOLDER", help="Folder to mount it at (default: the last one).")
def mount_disk(tpu: str, disk: str, mount: str) -> None:
    """Mount the shared disk on all hosts of a TPU, and check that jobs get your wandb key.

    The disk that you name becomes the default for the other TPUs of the zone.
    """
    from tpukit.cli import context, vms
    from tpukit.core.errors import Invalid, Problem
    from tpukit.sharing import inventory

    vm = vms.known(tpu)
    near = [one for one in (vm, *inventory.listed(context.store())) if one.zone == vm.zone and one.disk]
    disk, mount = disk or (near[0].disk if near else ""), mount or (near[0].mount if near else "")
    if not disk or not mount:
        hint = "name the disk: --disk 10.0.0.2:/share --at /mnt/share"
        raise Invalid(Problem("--disk", f"no TPU of {vm.zone} has a shared disk yet", hint))
    if not mount.startswith("/") or ":" not in disk or disk.startswith("-"):
        raise Invalid(Problem("--disk", f"{disk} at {mount} cannot be mounted", "write SERVER:/PATH and /FOLDER"))
    inventory.set_disk(context.store(), vm.name, disk, mount, context.CLOCK.now())
    click.echo(
        "each job that you send gets your wandb key; hosts do not keep it"
        if _has_wandb_key()
        else "no wandb key on this machine; run `wandb login`, or set WANDB_API_KEY, for jobs that use wandb",
        err=True,
    )
    _examine(tpu, ("API access", "quota", "TPU state", "SSH", "disk mounted", "wandb"), fix=True)


def _examine(tpu: str, only: Sequence[str], *, fix: bool, yes: bool = False, as_json: bool = False) -> None:
    from tpukit.cli import context
    from tpukit.sharing import doctor

    patient, close = _patient(tpu, yes)
    bad = False
    findings = []
    try:
        known = [check for check in doctor.known_checks() if not only or check.name in only]
        for finding in doctor.examine(patient, known, fix=fix):
            findings.append(finding)
            bad = bad or finding.outcome in (doctor.Outcome.BAD, doctor.Outcome.UNKNOWN)
            if not as_json:
                mark, color = _MARKS[finding.outcome]
                text = "; ".join(filter(None, (finding.says, finding.fix)))
                click.echo(
                    click.style(mark, fg=color or None) + f" {finding.check:20} {finding.outcome:12} {text}".rstrip()
                )
    finally:
        close()
    if as_json:
        context.print_json(
            [{"check": one.check, "outcome": one.outcome, "says": one.says, "fix": one.fix} for one in findings]
        )
    sys.exit(int(bad))


def _patient(tpu: str, yes: bool) -> tuple[Patient, Callable[[], None]]:
    from tpukit import catalogue
    from tpukit.cli import context, vm_act, vms
    from tpukit.sharing.doctor import Patient

    vm = vms.known(tpu, register=False)
    hosts = shell(vm)
    patient = Patient(
        vm,
        catalogue.find(vm.type),
        vms.cloud(),
        hosts,
        context.CLOCK,
        lambda: vm_act.make_anew(vm, wait=True),
        lambda question: yes or (questions.possible() and questions.confirm(question)),
        busy=vm.job if vm.job and vms.is_active(vm.job) else "",
        wandb=_has_wandb_key(),
    )
    return patient, hosts.close


def _has_wandb_key() -> bool:
    from tpukit.places.tpu_vm import secrets

    return bool(secrets.wandb({}))


class Shell:
    """Hosts over SSH, with the host keys that Google publishes."""

    def __init__(self, vm: Vm) -> None:
        from tpukit.cli import vms
        from tpukit.core import paths
        from tpukit.places.tpu_vm import target
        from tpukit.places.tpu_vm.ssh import Ssh

        own = vms.settings()
        self._ssh = Ssh(paths.data() / "ssh", own.ssh_key)
        posix = "" if own.ssh_user else vms.cloud().login(self._ssh.public_key())
        self._vm, self._user = vm, posix or target.login_user(own)

    def run(self, argv: Sequence[str], seconds: float = 60.0) -> list[Done | TpukitError]:
        from tpukit.cli import vms
        from tpukit.core.errors import NotYet
        from tpukit.places.tpu_vm.channel import Login
        from tpukit.sharing.doctor import Done

        vm = self._vm
        node = next((one for one in vms.cloud().nodes(vm.zone) if one.name == vm.name), None)
        keys = vms.cloud().host_keys(vm.zone, vm.name) if node else ()
        if node is None or not keys or len(keys) < len(node.hosts):
            return [NotYet(f"the hosts of {vm.name} have not published their keys yet")]
        logins = [Login(host.address, self._user, tuple(own)) for host, own in zip(node.hosts, keys, strict=False)]
        answers = self._ssh.execute(logins, argv, seconds)
        return [
            Done(one[0], one[1].decode(errors="replace"), one[2].decode(errors="replace"))
            if isinstance(one, tuple)
            else one
            for one in answers
        ]

    def close(self) -> None:
        self._ssh.close()


shell = Shell
