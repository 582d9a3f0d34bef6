"""Check that the shared disk, if the group has one, is mounted on each host."""

from __future__ import annotations

from tpukit.sharing.doctor import Patient, on_hosts


class DiskMounted:
    name = "disk mounted"
    needs = ("SSH",)

    def examine(self, patient: Patient) -> str:
        if not patient.vm.mount:
            return ""
        answers = patient.hosts.run(["mountpoint", "-q", patient.vm.mount])
        return on_hosts(answers, lambda done: f"nothing is mounted at {patient.vm.mount}" if done.code else "")

    def fix(self, patient: Patient) -> str:
        vm = patient.vm
        patient.hosts.run(["sudo", "mkdir", "-p", vm.mount])
        # Ignore hosts that report it as already mounted.
        answers = patient.hosts.run(["sudo", "mount", "-t", "nfs", "-o", "nolock,soft", vm.disk, vm.mount])
        refused = on_hosts(answers, lambda done: "" if not done.code or "already mounted" in done.err else done.last)
        return f"{vm.disk} mounted at {vm.mount}" + (f"; {refused}" if refused else "")


CHECK = DiskMounted()
