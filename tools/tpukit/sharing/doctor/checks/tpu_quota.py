"""Check the quota for this TPU type: a failed request contains the reason."""

from __future__ import annotations

from tpukit.sharing.doctor import Patient


class Quota:
    name = "quota"
    needs = ("API access",)

    def examine(self, patient: Patient) -> str:
        for request in patient.cloud.queued(patient.vm.zone):
            ours = request.name == patient.vm.name or patient.vm.name in request.nodes
            if ours and request.state == "FAILED" and "quota" in request.error.lower():
                return f"{request.error}; ask for more on the page Quotas of the console, or use another zone"
        return ""

    def fix(self, patient: Patient) -> str:
        return ""


CHECK = Quota()
