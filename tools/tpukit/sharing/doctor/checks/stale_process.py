"""Check that no process outside a job holds the chips."""

from __future__ import annotations

from tpukit.sharing.doctor import Done, Patient, on_hosts

# Chips are files: /dev/accel0 and on, or /dev/vfio/0 and on. https://cloud.google.com/tpu/docs/troubleshooting
_HOLDERS = """
import glob, os
held = set()
for fd in glob.glob('/proc/[0-9]*/fd/*'):
    try:
        target = os.readlink(fd)
    except OSError:
        continue
    if target.startswith(('/dev/accel', '/dev/vfio/')):
        held.add(fd.split('/')[2])
print(' '.join(sorted(held, key=int)))
"""


_LOCK = "/tmp/libtpu_lockfile"  # noqa: S108 (libtpu's own)


class StaleProcess:
    name = "stale process"
    needs = ("SSH",)

    def examine(self, patient: Patient) -> str:
        if patient.busy:
            return ""  # the job holds the chips
        answers = patient.hosts.run(["sudo", "python3", "-c", _HOLDERS])
        return on_hosts(answers, lambda done: done.last if done.code else _held(done))

    def fix(self, patient: Patient) -> str:
        answers = patient.hosts.run(["sudo", "python3", "-c", _HOLDERS])
        pids = sorted({pid for one in answers if isinstance(one, Done) for pid in one.out.split() if pid.isdecimal()})
        if not pids or not patient.allowed(f"Kill processes {', '.join(pids)} on {patient.vm.name}?"):
            return ""
        patient.hosts.run(["sudo", "python3", "-c", f"{_HOLDERS}\nfor pid in held: os.kill(int(pid), 9)"])
        patient.hosts.run(["sudo", "rm", "-f", _LOCK])
        return "1 process killed" if len(pids) == 1 else f"{len(pids)} processes killed"


def _held(done: Done) -> str:
    return f"processes {done.out.strip()} hold the chips" if done.out.strip() else ""


CHECK = StaleProcess()
