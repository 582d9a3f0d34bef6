"""Training speed of examples/02-pretrain on this accelerator, compared with the matmul speed of its chip.

    python tests/bench/mfu.py [STEPS] [FLAG...]    flags of train.py; default: 100 steps of --config=1b3

The matmul runs for seconds: a chip at its power limit is slower than in its first milliseconds, and so is training.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
# A separate process, so that memory it leaves allocated on the chip is not missing in training.
MATMUL = """
import time, jax, jax.numpy as jnp
rows, inner, columns = 32768, 2048, 5632
key = jax.random.key(0)
a = jax.random.normal(key, (rows, inner), jnp.bfloat16)
b = jax.random.normal(key, (inner, columns), jnp.bfloat16)
multiply = jax.jit(jnp.matmul)
multiply(a, b).block_until_ready()
for times in (10, 3000):
    began = time.perf_counter()
    for _ in range(times):
        result = multiply(a, b)
    result.block_until_ready()
    rate = 2 * rows * inner * columns * times / (time.perf_counter() - began)
    print(f"matmul, {times} times: {rate / 1e12:.0f} TFLOP/s on {jax.devices()[0].device_kind}", flush=True)
"""


def main(steps: str = "100", *flags: str) -> int:
    path = os.pathsep.join(filter(None, [str(ROOT / "tools"), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    train = [sys.executable, str(ROOT / "examples/02-pretrain/train.py"), *(flags or ["--config=1b3"])]
    train += [f"--config.training.steps={steps}", "--config.training.checkpoint_per_epoch=0"]
    with tempfile.TemporaryDirectory() as folder:
        code = subprocess.run(train, env=env, cwd=folder, check=False).returncode
    return code or subprocess.run([sys.executable, "-c", MATMUL], env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
