"""Check the free disk space of each host."""

from __future__ import annotations

from tpukit.sharing.doctor import Done, Patient, on_hosts

LEAST_KIB = 2 * 2**20
_LOGS = "/tmp/tpu_logs"  # noqa: S108 (libtpu's own)


class FreeDisk:
    name = "free disk"
    needs = ("SSH",)

    def examine(self, patient: Patient) -> str:
        def wrong(done: Done) -> str:
            fields = done.out.strip().splitlines()[-1].split() if done.out.strip() else []
            if done.code or len(fields) < 4 or not fields[3].isdecimal():
                return f"`df` says {done.last}"
            free = int(fields[3])
            return f"{free / 2**20:.1f} GiB are free; remove what is not needed" if free < LEAST_KIB else ""

        return on_hosts(patient.hosts.run(["df", "-Pk", "/"]), wrong)

    def fix(self, patient: Patient) -> str:
        """Delete old logs of the machine and of libtpu. Users' data is theirs to remove."""
        patient.hosts.run(["sudo", "journalctl", "--vacuum-size=100M"])
        if patient.busy:
            return "old logs of the machine removed"
        patient.hosts.run(["sudo", "find", _LOGS, "-type", "f", "-delete"])
        return "old logs removed"


CHECK = FreeDisk()
