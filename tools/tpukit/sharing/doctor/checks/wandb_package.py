"""Check that wandb can be imported on each host, if the user uses it. Its key travels with each job instead."""

from __future__ import annotations

from tpukit.sharing.doctor import Patient, on_hosts

_FIND = "import importlib.util as u, sys; sys.exit(0 if u.find_spec('wandb') else 'no module wandb')"


class WandbPackage:
    name = "wandb"
    needs = ("SSH",)

    def examine(self, patient: Patient) -> str:
        if not patient.wandb:
            return ""
        return on_hosts(patient.hosts.run(["python3", "-c", _FIND]), lambda done: done.last if done.code else "")

    def fix(self, patient: Patient) -> str:
        patient.hosts.run(["python3", "-m", "pip", "install", "--user", "wandb"], 600.0)
        return "wandb installed"


CHECK = WandbPackage()
