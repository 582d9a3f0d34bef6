"""How JAX compiles in tests: hosts of a few steps would otherwise compile for most of their time."""

QUICK = "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true"
"""For XLA_FLAGS."""
