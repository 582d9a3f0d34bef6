"""Check that SSH logins to all hosts succeed.

A new machine is READY some seconds before its hosts listen and before Google has their host keys. Until then Google
reports the keys of the previous machine.
"""

from __future__ import annotations

from tpukit.core.errors import HostKeyChanged, NotYet, Transient
from tpukit.sharing.doctor import Patient, on_hosts

LISTEN_SECONDS = 20.0
PAUSE_SECONDS = 2.0


class Ssh:
    name = "SSH"
    needs = ("TPU state",)

    def examine(self, patient: Patient) -> str:
        due = patient.clock.monotonic() + LISTEN_SECONDS
        while True:
            answers = patient.hosts.run(["true"])
            may_pass = any(isinstance(one, (HostKeyChanged, NotYet, Transient)) for one in answers)
            if not may_pass or patient.clock.monotonic() >= due:
                return on_hosts(answers, lambda done: done.last if done.code else "")
            patient.clock.sleep(PAUSE_SECONDS)

    def fix(self, patient: Patient) -> str:
        return ""


CHECK = Ssh()
