"""Jobs on TPU VMs: machines from the Cloud TPU API, reached by SSH."""

from tpukit.places.tpu_vm.place import TpuVmPlace

__all__ = ["TpuVmPlace"]
