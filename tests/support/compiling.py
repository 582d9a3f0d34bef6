"""Compiler flags for JAX in tests: hosts with few steps would otherwise spend most of their time compiling."""

QUICK = "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true"
"""Value for XLA_FLAGS."""

# JAX's compilation cache does not help with several hosts: on CPUs only the first one finds its entries, and gloo gives
# up when the others arrive half a minute later.
