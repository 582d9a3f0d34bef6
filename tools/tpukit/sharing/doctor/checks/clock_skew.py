"""Check that hosts and this machine agree on the time, which certificates and leases depend on."""

from __future__ import annotations

from tpukit.sharing.doctor import Done, Patient, on_hosts

MOST_SECONDS = 30.0


class Clock:
    name = "clock"
    needs = ("SSH",)

    def examine(self, patient: Patient) -> str:
        def wrong(done: Done) -> str:
            if done.code or not done.out.strip().isdecimal():
                return f"`date` says {done.last}"
            late = patient.clock.now() - int(done.out)
            return (
                f"its clock is {abs(late):.0f} s {'late' if late > 0 else 'early'}" if abs(late) > MOST_SECONDS else ""
            )

        return on_hosts(patient.hosts.run(["date", "+%s"]), wrong)

    def fix(self, patient: Patient) -> str:
        patient.hosts.run(["sudo", "chronyc", "-a", "makestep"])
        return "told chrony to step the clocks"


CHECK = Clock()
