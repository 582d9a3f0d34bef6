"""Settings for JAX in tests: hosts with few steps would otherwise spend most of their time compiling."""

QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
"""Value for XLA_FLAGS."""

ENVIRONMENT = {"XLA_FLAGS": QUICK, "JAX_DEFAULT_PRNG_IMPL": "unsafe_rbg"}
"""The first parameters depend on the mesh: for tests that train on one mesh only."""

SMALL = {
    "model.layers": 1,
    "model.width": 16,
    "model.head_dim": 4,
    "model.mlp_width": 16,
    "model.dtype": "float32",
    "data.sequence_length": 16,
    "training.batch_size": 8,
}
"""Fields of the pretraining example's configuration."""

# JAX's compilation cache does not help with several hosts: on CPUs only the first one finds its entries, and gloo gives
# up when the others arrive half a minute later.
