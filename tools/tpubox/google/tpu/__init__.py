"""The Cloud TPU API: TPU VMs and queued resources."""
