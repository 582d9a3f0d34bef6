"""Attention of the pretraining example on TPUs: the kernel, interpreted on this machine, against XLA's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import compiling
from support.waiting import PATIENCE

EXAMPLE = Path(__file__).parents[2] / "examples" / "02-pretrain"

CHECK_NUMBERS = """
import jax, numpy as np
from functools import partial
from jax.sharding import AxisType, Mesh, PartitionSpec as P
import attention

attention.BLOCK = 128  # two blocks a side, of which one is skipped

@partial(jax.jit, static_argnums=0)
def gradients(function, *arrays):
    rows = P(("data", "fsdp"))
    spread = jax.shard_map(function, in_specs=rows, out_specs=rows, axis_names={"data", "fsdp"}, check_vma=False)
    return jax.value_and_grad(lambda *arrays: (spread(*arrays) * weights).sum(), argnums=(0, 1, 2))(*arrays)

shapes = [(2, 256, 4, 128), (2, 256, 2, 128), (2, 256, 2, 128), (2, 256, 4, 128)]  # two heads share keys and values
*arrays, weights = (np.random.default_rng(n).normal(size=shape).astype("float32") for n, shape in enumerate(shapes))
mesh = Mesh(np.array(jax.devices()).reshape(1, 2, 2), ("data", "fsdp", "tensor"), axis_types=(AxisType.Auto,) * 3)
with jax.set_mesh(mesh):
    kernel = gradients(attention.splash, *arrays)
    xla = gradients(partial(jax.nn.dot_product_attention, is_causal=True, implementation="xla"), *arrays)
jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4), kernel, xla)
"""


@pytest.mark.jax
def test_kernel_of_tpus_has_the_values_and_gradients_of_xla_s_attention():
    env = {"PATH": os.environ["PATH"], "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "4", "XLA_FLAGS": compiling.QUICK}
    env["PYTHONPATH"] = f"{EXAMPLE}:{EXAMPLE.parents[1] / 'tools'}"
    done = subprocess.run(
        [sys.executable, "-c", CHECK_NUMBERS], env=env, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
