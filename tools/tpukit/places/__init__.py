"""The places where attempts run, behind one contract.

Only this package uses their names; elsewhere, code checks the capabilities of a place.
"""

NAMES = ("local", "gke", "tpu-vm")
DEFAULT = "local"
RENDERED = "gke"
"""The place that manifests are rendered for by default."""
MACHINES = "tpu-vm"
"""The place with named, shared machines."""
