"""The Cloud TPU API answers, and lets us see the zone."""

from __future__ import annotations

from tpukit.sharing.doctor import Patient


class ApiAccess:
    name = "API access"
    needs: tuple[str, ...] = ()

    def examine(self, patient: Patient) -> str:
        patient.cloud.nodes(patient.vm.zone)  # what it raises says what to do
        return ""

    def fix(self, patient: Patient) -> str:
        return ""


CHECK = ApiAccess()
