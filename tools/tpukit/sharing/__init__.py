"""The job manager: people who share TPU VMs, their working directories and names for things, who holds which TPU, and
the windows under whose numbers they call their jobs. Jobs themselves are sent, driven and remembered as all others."""
