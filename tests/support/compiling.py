"""How JAX compiles in tests: hosts of a few steps would otherwise compile for most of their time."""

QUICK = "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true"
"""For XLA_FLAGS."""

# JAX's compilation cache is no help where there are several hosts: on CPUs only the first one finds what it kept, and
# gloo gives up when the others come half a minute after it.
