"""tpukit: multislice JAX training that survives preemption, from one machine to Google Cloud."""

__version__ = "0.1.0"
