"""Where attempts run, behind one contract. Their names are theirs: elsewhere a place is asked what it can do."""

NAMES = ("local", "gke", "tpu-vm")
DEFAULT = "local"
RENDERED = "gke"
"""The place that manifests are shown for unless another is named."""
MACHINES = "tpu-vm"
"""The place whose machines people name and share."""
