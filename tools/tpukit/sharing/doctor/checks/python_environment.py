"""Check that Python and JAX are installed, without touching the chips."""

from __future__ import annotations

from tpukit.sharing.doctor import Patient, on_hosts

_IMPORT = ["python3", "-c", "import importlib.util as u, sys; sys.exit(0 if u.find_spec('jax') else 'no module jax')"]


class PythonEnvironment:
    name = "Python environment"
    needs = ("SSH", "free disk")

    def examine(self, patient: Patient) -> str:
        return on_hosts(patient.hosts.run(_IMPORT), lambda done: done.last if done.code else "")

    def fix(self, patient: Patient) -> str:
        # https://docs.jax.dev/en/latest/installation.html#pip-installation-google-cloud-tpu
        patient.hosts.run(["python3", "-m", "pip", "install", "--user", "jax[tpu]"], 600.0)
        return "jax[tpu] installed"


CHECK = PythonEnvironment()
