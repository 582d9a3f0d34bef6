"""Check that the Cloud TPU API responds and that the zone is visible."""

from __future__ import annotations

from tpukit.sharing.doctor import Patient


class ApiAccess:
    name = "API access"
    needs: tuple[str, ...] = ()

    def examine(self, patient: Patient) -> str:
        patient.cloud.nodes(patient.vm.zone)  # the error itself contains the advice
        return ""

    def fix(self, patient: Patient) -> str:
        return ""


CHECK = ApiAccess()
