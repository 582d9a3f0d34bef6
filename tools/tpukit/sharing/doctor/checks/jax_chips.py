"""Check that JAX sees all chips of each host. All hosts start at once, as a slice of several starts only together."""

from __future__ import annotations

from tpukit.sharing.doctor import Done, Patient, on_hosts

# Two cores of a chip, which some generations show as two devices, have the same coordinates.
_CHIPS = "import jax; print(len({tuple(getattr(d, 'coords', [d.id])) for d in jax.local_devices()}))"
_COUNT = ["python3", "-c", _CHIPS]
SECONDS = 180.0


class JaxChips:
    name = "JAX sees all chips"
    needs = ("Python environment", "stale process")

    def examine(self, patient: Patient) -> str:
        if patient.busy:
            return ""  # the job holds the chips
        expected = patient.shape.chips // patient.shape.hosts

        def wrong(done: Done) -> str:
            words = done.out.split()
            if done.code or not words or not words[-1].isdecimal():
                return f"JAX does not start: {done.last}"
            return f"JAX sees {words[-1]} of {expected} chips" if int(words[-1]) < expected else ""

        return on_hosts(patient.hosts.run(_COUNT, SECONDS), wrong)

    def fix(self, patient: Patient) -> str:
        if not patient.allowed(f"Delete {patient.vm.name} and recreate it? Data on its disks is lost."):
            return ""
        patient.make_anew()
        return "the TPU was deleted and recreated"


CHECK = JaxChips()
