"""Check that the TPU exists and is READY."""

from __future__ import annotations

from tpukit.sharing import shared_vms
from tpukit.sharing.doctor import Patient

_GONE = ("PREEMPTED", "TERMINATED", "STOPPED", "NOT_FOUND", "SUSPENDED", "FAILED")


class TpuState:
    name = "TPU state"
    needs = ("API access", "quota")

    def examine(self, patient: Patient) -> str:
        state = shared_vms.state(patient.cloud, patient.vm)
        return "" if state == "READY" else f"{patient.vm.name} is {state}"

    def fix(self, patient: Patient) -> str:
        state = shared_vms.state(patient.cloud, patient.vm)
        # The rule of an active job recreates its TPU. One that is being created or repaired recovers by itself.
        if (
            patient.busy
            or not state.endswith(_GONE)
            or not patient.allowed(f"{patient.vm.name} is {state}. Recreate it?")
        ):
            return ""
        patient.make_anew()
        return "deleted and recreated"


CHECK = TpuState()
