"""Step 5: told to leave, it saves the step it is at, and leaves."""

import hashlib
import os
import pickle
import signal
import sys
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
    """Under another name until all of it is on the disk. The one before stays, for the day when this one is spoilt."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    content = pickle.dumps({"step": step, **state})
    draft = FOLDER / f"{step}.tmp"
    with draft.open("wb") as file:
        file.write(hashlib.sha256(content).digest())
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(FOLDER / f"{step}.pickle")
    for old in saved()[:-2]:
        old.unlink()


def saved():
    return sorted(FOLDER.glob("*.pickle"), key=lambda path: int(path.stem))


def restore(state):
    """Return the newest complete checkpoint; without one, the given state at step 0."""
    for path in reversed(saved()):
        content = path.read_bytes()
        if hashlib.sha256(content[32:]).digest() == content[:32]:
            return pickle.loads(content[32:])
        path.unlink()
    return {"step": 0, **state}


def main():
    told = []  # to leave, by SIGTERM: spot capacity is taken away a little later
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))
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
        if step % EVERY == 0 or told:
            position, numbers = data.bit_generator.state, jax.random.key_data(key)
            save(step, jax.device_get({"params": params, "momentum": momentum, "data": position, "key": numbers}))
        if told:
            sys.exit(143)  # not 0: there is more to do


if __name__ == "__main__":
    main()
