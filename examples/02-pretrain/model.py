"""A decoder-only language model in plain JAX: parameters are a tree of arrays, the model is a function of them.

It is written for one chip. Every parameter is stored in pieces over the `fsdp` axis and put together by the layer
that needs it, just before it needs it; differentiating that gather sums the gradient over the chips and leaves each
with its piece. Axis `tensor`, where there is one, splits heads and MLP columns, and is left to XLA.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import attention
import jax
import jax.numpy as jnp
from config import Model
from jax.sharding import PartitionSpec as P

Params = dict[str, Any]

# Layers are stacked along a first axis, which the scan walks. Every projection is a matmul of its own: to take a fused
# one apart, and to put its gradient back together, moves more memory than the larger matmul saves.
SHARDING: Params = {
    "embedding": P("tensor", "fsdp"),  # vocabulary, width
    "layers": {
        "query": P(None, "fsdp", "tensor", None),  # layer, width, heads, head_dim
        "key": P(None, "fsdp", "tensor", None),  # layer, width, kv_heads, head_dim
        "value": P(None, "fsdp", "tensor", None),
        "attention_out": P(None, "tensor", None, "fsdp"),  # layer, heads, head_dim, width
        "gate": P(None, "fsdp", "tensor"),  # layer, width, mlp_width
        "up": P(None, "fsdp", "tensor"),
        "down": P(None, "tensor", "fsdp"),  # layer, mlp_width, width
    },
}


def init(key: jax.Array, model: Model) -> Params:
    """Fresh parameters, float32: normal, with what feeds the residual stream scaled down by its depth."""
    keys = iter(jax.random.split(key, 8))

    def normal(*shape: int, fan_in: int, scale: float = 1.0) -> jax.Array:
        # Made flat: XLA takes many times longer to compile random numbers in four dimensions than in two.
        flat = jax.random.normal(next(keys), (shape[0], math.prod(shape[1:])))
        return flat.reshape(shape) * scale * fan_in**-0.5

    layers, width, heads, kv_heads, head_dim = model.layers, model.width, model.heads, model.kv_heads, model.head_dim
    depth = (2 * layers) ** -0.5
    return {
        "embedding": normal(model.vocabulary, width, fan_in=width),
        "layers": {
            "query": normal(layers, width, heads, head_dim, fan_in=width),
            "key": normal(layers, width, kv_heads, head_dim, fan_in=width),
            "value": normal(layers, width, kv_heads, head_dim, fan_in=width),
            "attention_out": normal(layers, heads, head_dim, width, fan_in=heads * head_dim, scale=depth),
            "gate": normal(layers, width, model.mlp_width, fan_in=width),
            "up": normal(layers, width, model.mlp_width, fan_in=width),
            "down": normal(layers, model.mlp_width, width, fan_in=model.mlp_width, scale=depth),
        },
    }


def loss(params: Params, tokens: jax.Array, model: Model, z_loss: float = 0.0) -> jax.Array:
    """Mean cross-entropy, in nats, of predicting each token of `tokens` [batch, length + 1] from those before it."""
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    embedding = _whole(params["embedding"], SHARDING["embedding"], model.dtype)
    x = _norm(_layers(params["layers"], embedding[inputs], model))

    def piece(x: jax.Array, targets: jax.Array) -> jax.Array:
        logits = _logits(x, embedding)
        normaliser = jax.nn.logsumexp(logits, axis=-1)
        # A comparison instead of a lookup: it fuses, its gradient is no scatter, and the vocabulary may be split.
        is_target = jnp.arange(model.vocabulary) == targets[..., None]
        return jnp.sum(normaliser - jnp.sum(jnp.where(is_target, logits, 0.0), axis=-1) + z_loss * normaliser**2)

    if model.loss_chunks == 1:
        total = piece(x, targets)
    else:
        chunks = [jnp.stack(jnp.split(part, model.loss_chunks, axis=1)) for part in (x, targets)]
        total = jnp.sum(jax.lax.map(lambda chunk: jax.checkpoint(piece)(*chunk), tuple(chunks)))
    return total / targets.size


@jax.custom_vjp
def _logits(x: jax.Array, embedding: jax.Array) -> jax.Array:
    """Scores of all tokens, in float32: a loss is a small difference of large numbers."""
    return jnp.einsum("btd,vd->btv", x, embedding, preferred_element_type=jnp.float32)


def _logits_forward(x: jax.Array, embedding: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _logits(x, embedding), (x, embedding)


def _logits_backward(kept: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return gradients at the precision of the computation; at float32 these two matmuls run at half speed."""
    x, embedding = kept
    gradient = gradient.astype(x.dtype)
    return jnp.einsum("btv,vd->btd", gradient, embedding), jnp.einsum("btv,btd->vd", gradient, x)


_logits.defvjp(_logits_forward, _logits_backward)


def _layers(layers: Params, x: jax.Array, model: Model) -> jax.Array:
    """All layers in turn, compiled once."""
    rotations = _rotations(x.shape[1], model)

    def layer(x: jax.Array, pieces: Params) -> tuple[jax.Array, None]:
        # The scan has taken the first axis away.
        w = {name: _whole(piece, P(*SHARDING["layers"][name][1:]), model.dtype) for name, piece in pieces.items()}
        x = x + _attention(_norm(x), w, rotations, model)
        x = x + _mlp(_norm(x), w)
        return x, None

    if model.remat != "none":
        policy = _keep_matmuls if model.remat == "dots" else None
        # Inside a scan XLA cannot undo the recomputation, so nothing needs to keep it from trying.
        layer = jax.checkpoint(layer, policy=policy, prevent_cse=False)
    return jax.lax.scan(layer, x, layers, unroll=model.unroll)[0]


def _attention(x: jax.Array, w: Params, rotations: jax.Array, model: Model) -> jax.Array:
    queries, keys, values = (jnp.einsum("btd,dnh->btnh", x, w[name]) for name in ("query", "key", "value"))
    queries, keys = _rotate(queries, rotations), _rotate(keys, rotations)
    kernel = _attention_kernel(model, queries.dtype, x.shape[1])
    if kernel == "splash":
        mixed = attention.splash(queries, keys, values)
    else:
        mixed = jax.nn.dot_product_attention(queries, keys, values, is_causal=True, implementation=kernel)
    return jnp.einsum("btnh,nhd->btd", mixed, w["attention_out"])


def _mlp(x: jax.Array, w: Params) -> jax.Array:
    gate, up = (jnp.einsum("btd,df->btf", x, w[name]) for name in ("gate", "up"))
    return jnp.einsum("btf,fd->btd", jax.nn.silu(gate) * up, w["down"])


def _norm(x: jax.Array) -> jax.Array:
    """RMSNorm. It has no weights of its own: the matmul that follows can learn any it would have."""
    exact = x.astype(jnp.float32)
    return (exact * jax.lax.rsqrt(jnp.mean(exact * exact, axis=-1, keepdims=True) + 1e-6)).astype(x.dtype)


def _rotations(length: int, model: Model) -> jax.Array:
    """Cosine and sine for each position and each pair of features: [2, length, head_dim / 2]."""
    frequencies = model.rope_base ** (-jnp.arange(0, model.head_dim, 2) / model.head_dim)
    angles = jnp.arange(length)[:, None] * frequencies
    return jnp.stack([jnp.cos(angles), jnp.sin(angles)])


def _rotate(x: jax.Array, rotations: jax.Array) -> jax.Array:
    """Rotary positions: turn each pair of features by an angle that grows with the position."""
    cos, sin = rotations[:, :, None, :]
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _whole(piece: jax.Array, spec: P, dtype: str) -> jax.Array:
    """Gather a parameter for the computation, rounded first, so that half the bytes travel."""
    return jax.lax.all_gather(piece.astype(dtype), "fsdp", axis=spec.index("fsdp"), tiled=True)


def _whole_forward(piece: jax.Array, spec: P, dtype: str) -> tuple[jax.Array, None]:
    return _whole(piece, spec, dtype), None


def _whole_backward(spec: P, _dtype: str, _: None, gradient: jax.Array) -> tuple[jax.Array]:
    """Many chips' gradients are summed in float32, which JAX would not do by itself: that is all this is for."""
    exact = gradient.astype(jnp.float32)
    return (jax.lax.psum_scatter(exact, "fsdp", scatter_dimension=spec.index("fsdp"), tiled=True),)


_whole.defvjp(_whole_forward, _whole_backward)


def _keep_matmuls(primitive: Any, *_: Any, **__: Any) -> bool:
    """Keep what matmuls and fused attention made; norms, rotations and activations are cheaper made again than read."""
    return primitive.name in ("dot_general", "pallas_call") or "dot_product_attention" in primitive.name


def _attention_kernel(model: Model, dtype: Any, length: int) -> str:
    """Return the attention to use. `auto` takes a fused kernel only where it supports the shapes."""
    if model.attention != "auto":
        return model.attention
    backend = jax.default_backend()
    if backend == "tpu" and attention.fits(model.head_dim, length):
        return "splash"
    cudnn = dtype == jnp.bfloat16 and model.head_dim % 8 == 0 and model.head_dim <= 128
    return "cudnn" if backend == "gpu" and cudnn else "xla"
