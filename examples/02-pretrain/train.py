"""Pretrain a language model on any number of TPU slices, and survive losing them.

The whole program, top to bottom: read the flags, start JAX, spread the state over the mesh, take up where the last
checkpoint left off, train, write down a digest of what was learnt. Run it by `tpu run`, or plainly: python train.py
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import attention
import jax
import jax.numpy as jnp
import model as lm
import numpy as np
import optax
from config import Config, Misuse, Training, parse
from data import Batch, Batches, steps_per_epoch
from etils import epath
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from metrics import Metrics

from tpukit import host as tpu

BATCH = P(("data", "fsdp"))  # its rows, over all chips that do not share a row


class State(NamedTuple):
    params: lm.Params
    optimizer: Any


def main() -> None:
    config = parse(sys.argv[1:])
    host = tpu.start()  # before anything touches a device
    mesh = host.mesh(fsdp=config.mesh.fsdp, tensor=config.mesh.tensor)
    check_fit(config, mesh)

    epoch = steps_per_epoch(config)
    steps = config.training.steps or config.training.num_epochs * epoch
    optimizer = make_optimizer(config.training, steps)
    with jax.set_mesh(mesh):
        init, abstract_state = make_init(config, optimizer, mesh)
        train_step = make_train_step(config, optimizer, abstract_state, mesh)

        batches = Batches(config, steps, NamedSharding(mesh, BATCH))
        checkpoints = tpu.Checkpoints(
            host, every=checkpoint_interval(config.training, epoch), keep=config.training.keep_checkpoints
        )
        metrics = Metrics(config, host, checkpoints, steps)
        state, done = checkpoints.restore_latest(abstract_state, batches) or (init(), 0)

        for step in range(done + 1, steps + 1):
            state, measured = train_step(state, next(batches))
            # The step before this one is looked at while this one runs, so the chips never wait for Python.
            metrics.record(step, measured, wait=host.sync)
            leaving = host.leaving(step)
            if leaving or checkpoints.due(step, final=step == steps):
                metrics.flush()
                checkpoints.save(step, state, batches)
            if leaving:
                checkpoints.close()
                host.leave()

        checkpoints.close()
        metrics.flush()
        write_result(host, steps, state.params, mesh)
    host.close()


def check_fit(config: Config, mesh: Mesh) -> None:
    """Everything that is split over chips must come out even."""
    model = config.model
    split = {
        "training.batch_size": (config.training.batch_size, mesh.shape["data"] * mesh.shape["fsdp"]),
        "model.width": (model.width, mesh.shape["fsdp"]),
        "model.kv_heads": (model.kv_heads, mesh.shape["tensor"]),
        "model.mlp_width": (model.mlp_width, mesh.shape["tensor"]),
        "model.vocabulary": (model.vocabulary, mesh.shape["tensor"]),
    }
    uneven = [
        f"{name} is {size}, and must be a multiple of {by} here" for name, (size, by) in split.items() if size % by
    ]
    if uneven:
        raise Misuse("\n".join(uneven))


def make_optimizer(training: Training, steps: int) -> optax.GradientTransformation:
    """AdamW under a warm-up and a cosine to a tenth of the peak."""
    warmup = min(training.warmup_steps, steps // 2)
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, training.learning_rate, warmup, max(steps, warmup + 1), training.learning_rate / 10
    )
    return optax.adamw(schedule, training.adam_b1, training.adam_b2, weight_decay=training.weight_decay)


def make_init(config: Config, optimizer: optax.GradientTransformation, mesh: Mesh) -> tuple[Callable[[], State], State]:
    """Return the function that makes the first state, and the shape and sharding of each of its arrays."""

    def init() -> State:
        params = lm.init(jax.random.key(config.training.seed), config.model)
        return State(params, optimizer.init(params))

    shapes = jax.eval_shape(init)
    specs = State(
        lm.SHARDING,
        # Adam's averages lie where their parameter lies; what is left are counters.
        optax.tree.map_params(
            optimizer, lambda _, spec: spec, shapes.optimizer, lm.SHARDING, transform_non_params=lambda _: P()
        ),
    )
    shardings = jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs)
    abstract = jax.tree.map(
        lambda shape, sharding: jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding), shapes, shardings
    )
    return jax.jit(init, out_shardings=shardings), abstract


def make_train_step(
    config: Config, optimizer: optax.GradientTransformation, abstract_state: State, mesh: Mesh
) -> Callable[[State, Batch], tuple[State, dict[str, jax.Array]]]:
    """One update. The old state's memory becomes the new one's."""
    attention.prepare()

    def gradients_on_one_chip(params: lm.Params, tokens: jax.Array) -> tuple[jax.Array, jax.Array, lm.Params]:
        loss, gradients = jax.value_and_grad(lm.loss)(params, tokens, config.model, config.training.z_loss)
        # Already summed over fsdp by the gather's gradient. Once per step, the slices meet.
        gradients = jax.tree.map(lambda g: jax.lax.pmean(g, "data") / mesh.shape["fsdp"], gradients)
        squares = sum(jnp.sum(g * g) for g in jax.tree.leaves(gradients))
        return jax.lax.pmean(loss, ("data", "fsdp")), jnp.sqrt(jax.lax.psum(squares, "fsdp")), gradients

    # Axis tensor stays with XLA, so the specs may only speak of the others.
    pieces = jax.tree.map(lambda spec: P(*(axis if axis == "fsdp" else None for axis in spec)), lm.SHARDING)
    gradients_of = jax.shard_map(
        gradients_on_one_chip,
        mesh=mesh,
        in_specs=(pieces, BATCH),
        out_specs=(P(), P(), pieces),
        axis_names={"data", "fsdp"},
        check_vma=False,
    )

    def train_step(state: State, batch: Batch) -> tuple[State, dict[str, jax.Array]]:
        loss, norm, gradients = gradients_of(state.params, batch["tokens"])
        clip = jnp.minimum(1.0, config.training.clip_norm / norm)
        updates, optimizer_state = optimizer.update(
            jax.tree.map(lambda g: g * clip, gradients), state.optimizer, state.params
        )
        # The index comes back to be logged: what the chips saw, not what we think we sent.
        measured = {"loss": loss, "gradient_norm": norm, "index": batch["index"]}
        return State(optax.apply_updates(state.params, updates), optimizer_state), measured

    shardings = jax.tree.map(lambda array: array.sharding, abstract_state)
    return jax.jit(
        train_step,
        donate_argnums=0,
        out_shardings=(shardings, NamedSharding(mesh, P())),
        # The tuner times Triton's matmuls on a cool GPU. On one that a whole step has heated cuBLAS is faster.
        compiler_options={"xla_gpu_enable_triton_gemm": False} if jax.default_backend() == "gpu" else None,
    )


def checkpoint_interval(training: Training, epoch: int) -> int:
    """Return the steps between checkpoints; 0: none."""
    if training.checkpoint_every or not training.checkpoint_per_epoch:
        return training.checkpoint_every
    return max(1, epoch // training.checkpoint_per_epoch)


def write_result(host: tpu.Host, steps: int, params: lm.Params, mesh: Mesh) -> None:
    """Return a digest of all parameters, bit for bit. Two runs that learnt the same have the same digest."""
    whole = jax.jit(lambda pieces: pieces, out_shardings=NamedSharding(mesh, P()))(params)
    if host.first:
        digest = hashlib.sha256()
        for path, array in jax.tree_util.tree_leaves_with_path(whole):
            digest.update(jax.tree_util.keystr(path).encode())
            digest.update(np.asarray(array.addressable_data(0)).data)
        host.report(step=steps, params=digest.hexdigest()[:16])
        result = {"steps": steps, "parameters_sha256": digest.hexdigest(), "attempt": host.world.attempt}
        epath.Path(host.world.workdir, "result.json").write_text(json.dumps(result) + "\n")
        print(f"done: {steps} steps, parameters {digest.hexdigest()[:16]}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except Misuse as misuse:
        print(misuse, file=sys.stderr)
        sys.exit(2)
