"""Step 3: all that the next step depends on is saved: momentum, data position and random key too."""

import os
import pickle
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

STEPS, BATCH, WIDTH = 60, 16, 1536
EVERY = 10
FOLDER = Path(os.environ.get("TPUKIT_WORKDIR", "workdir"), "checkpoints")


def init(key):
    shapes = {"in": (64, WIDTH), "middle": (WIDTH, WIDTH), "out": (WIDTH, 1)}
    keys = jax.random.split(key, len(shapes))
    return {
        name: jax.random.normal(k, shapes[name]) * shapes[name][0] ** -0.5 for name, k in zip(shapes, keys, strict=True)
    }


def predict(params, x, key):
    x = jax.nn.relu(x @ params["in"])
    x = x * jax.random.bernoulli(key, 0.95, x.shape) / 0.95  # dropout
    return (jax.nn.relu(x @ params["middle"]) @ params["out"])[:, 0]


def loss_of(params, batch, key):
    return jnp.mean((predict(params, batch["x"], key) - batch["y"]) ** 2)


@jax.jit
def update(params, momentum, batch, key):
    loss, gradients = jax.value_and_grad(loss_of)(params, batch, key)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
    params = jax.tree.map(lambda p, m: p - 1e-3 * m, params, momentum)
    return params, momentum, loss


def next_batch(data):
    x = data.standard_normal((BATCH, 64), dtype=np.float32)
    return {"x": x, "y": np.sin(3 * x[:, 0]) + 2 * x[:, 1] * x[:, 2]}


def save(step, state):
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "checkpoint.pickle").open("wb") as file:
        pickle.dump({"step": step, **state}, file)


def restore(state):
    """Return the last saved state; without a checkpoint, the given one at step 0."""
    if not (FOLDER / "checkpoint.pickle").exists():
        return {"step": 0, **state}
    with (FOLDER / "checkpoint.pickle").open("rb") as file:
        return pickle.load(file)


def main():
    data = np.random.default_rng(0)
    key, of_params = jax.random.split(jax.random.key(0))
    params = init(of_params)
    state = restore(
        {
            "params": params,
            "momentum": jax.tree.map(jnp.zeros_like, params),
            "data": data.bit_generator.state,  # where the data goes on
            "key": jax.random.key_data(key),  # where dropout does
        }
    )
    params, momentum, key = state["params"], state["momentum"], jax.random.wrap_key_data(state["key"])
    data.bit_generator.state = state["data"]

    for step in range(state["step"] + 1, STEPS + 1):
        key, dropout = jax.random.split(key)
        params, momentum, loss = update(params, momentum, next_batch(data), dropout)
        print(f"step {step} loss {loss:.6f}", flush=True)
        if step % EVERY == 0:
            position, numbers = data.bit_generator.state, jax.random.key_data(key)
            save(step, jax.device_get({"params": params, "momentum": momentum, "data": position, "key": numbers}))


if __name__ == "__main__":
    main()
