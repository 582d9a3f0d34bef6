"""All hosts let us in."""

from __future__ import annotations

from tpukit.manager.doctor import Patient, on_hosts


class Ssh:
    name = "SSH"
    needs = ("TPU state",)

    def examine(self, patient: Patient) -> str:
        return on_hosts(patient.hosts.run(["true"]), lambda done: done.last if done.code else "")

    def fix(self, patient: Patient) -> str:
        return ""


CHECK = Ssh()
