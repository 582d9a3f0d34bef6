"""The Qwen2 architecture (Qwen2, Qwen2.5, and what is derived from them) in plain JAX, with hooks.

Parameters are a tree of arrays, the model is a function of them. Layers are stacked along a first axis, which a scan
walks, so that they are compiled once. Sequences are padded behind their end: attention is causal, so no token ever sees
what comes after it, and what a token gets does not depend on the padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Params = dict[str, Any]
LAYER_HOOKS = ("residual", "attention", "mlp")
"""In every layer: the hidden state after it, and what attention and MLP add to it."""
MODEL_HOOKS = ("embedding", "final_norm", "logits")


class Unsupported(OSError):
    """A checkpoint of another architecture."""


@dataclass(frozen=True)
class Config:
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp_width: int
    vocabulary: int
    positions: int
    epsilon: float
    rope_base: float
    tied: bool


@dataclass(frozen=True)
class Taps:
    """What is taken out of the model, and as what it is stored."""

    hooks: tuple[str, ...]
    layers: tuple[int, ...]
    dtype: str

    def depth(self, config: Config) -> int:
        """How many layers have to be computed for it."""
        if {"final_norm", "logits"} & set(self.hooks):
            return config.layers
        return max(self.layers, default=-1) + 1 if set(self.hooks) & set(LAYER_HOOKS) else 0


def config(raw: Mapping[str, Any]) -> Config:
    """From config.json; what would change the arithmetic and is not known here is refused."""
    rope = {"rope_theta": raw.get("rope_theta", 10000.0), "rope_type": "default"}
    rope |= raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    problems = [
        (raw.get("model_type") != "qwen2", f"model_type is {raw.get('model_type')!r}"),
        (raw.get("hidden_act", "silu") != "silu", f"hidden_act is {raw.get('hidden_act')!r}"),
        (bool(raw.get("use_sliding_window")), "it attends in a sliding window"),
        ((rope.get("type") or rope["rope_type"]) != "default", f"its rotary positions are scaled: {rope}"),
    ]
    if found := [words for wrong, words in problems if wrong]:
        raise Unsupported(f"config.json: {'; '.join(found)}. Only plain Qwen2 is computed here")
    heads = raw["num_attention_heads"]
    return Config(
        layers=raw["num_hidden_layers"],
        width=raw["hidden_size"],
        heads=heads,
        kv_heads=raw.get("num_key_value_heads") or heads,
        head_dim=raw.get("head_dim") or raw["hidden_size"] // heads,
        mlp_width=raw["intermediate_size"],
        vocabulary=raw["vocab_size"],
        positions=raw.get("max_position_embeddings", 32768),
        epsilon=raw.get("rms_norm_eps", 1e-6),
        rope_base=float(rope["rope_theta"]),
        tied=bool(raw.get("tie_word_embeddings", False)),
    )


def load(weights: Mapping[str, np.ndarray], config: Config, taps: Taps, dtype: str) -> Params:
    """Read the parameters that `taps` need to the host, matrices as [in, out]."""
    depth = taps.depth(config)

    def stacked(name: str) -> np.ndarray:
        return np.stack([matrix(f"model.layers.{number}.{name}") for number in range(depth)])

    def matrix(name: str) -> np.ndarray:
        if name not in weights:
            raise Unsupported(f"the checkpoint has no {name}: is it the one that config.json describes?")
        found = weights[name]
        return (found.T if found.ndim == 2 else found).astype(dtype)

    params: Params = {"embedding": matrix("model.embed_tokens.weight").T}
    if depth:
        projections = {one: f"self_attn.{one}_proj" for one in "qkvo"}
        projections |= {one: f"mlp.{one}_proj" for one in ("gate", "up", "down")}
        params["layers"] = {one: stacked(f"{name}.weight") for one, name in projections.items()}
        params["layers"] |= {f"{one}_bias": stacked(f"{projections[one]}.bias") for one in "qkv"}
        norms = {"attention_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}
        params["layers"] |= {one: stacked(f"{name}.weight") for one, name in norms.items()}
    if depth == config.layers:
        params["norm"] = matrix("model.norm.weight")
    if "logits" in taps.hooks:
        params["head"] = params["embedding"].T if config.tied else matrix("lm_head.weight")
    return params


def forward(params: Params, tokens: jax.Array, config: Config, taps: Taps) -> dict[str, jax.Array]:
    """For each hook what it saw of tokens [batch, length]: [layers or 1, batch, length, width]."""
    x = params["embedding"][tokens]
    taken = {"embedding": x[None]}
    hooks = [hook for hook in LAYER_HOOKS if hook in taps.hooks]
    # What is taken goes to its slot in the carry of the scan; the last slot is for layers that nobody asked for.
    slots = [
        taps.layers.index(number) if number in taps.layers else len(taps.layers) for number in range(config.layers)
    ]
    boxes = {hook: jnp.zeros((len(taps.layers) + 1, *x.shape), taps.dtype) for hook in hooks}
    rotations = _rotations(tokens.shape[1], config, x.dtype)

    def layer(
        carry: tuple[jax.Array, Params], piece: tuple[Params, jax.Array]
    ) -> tuple[tuple[jax.Array, Params], None]:
        (x, boxes), (w, slot) = carry, piece
        attention = _attention(_norm(x, w["attention_norm"], config), w, rotations, config)
        x = x + attention
        mlp = _mlp(_norm(x, w["mlp_norm"], config), w)
        x = x + mlp
        made = {"residual": x, "attention": attention, "mlp": mlp}
        put = jax.lax.dynamic_update_index_in_dim
        boxes = {hook: put(box, made[hook].astype(box.dtype), slot, 0) for hook, box in boxes.items()}
        return (x, boxes), None

    if depth := taps.depth(config):
        (x, boxes), _ = jax.lax.scan(layer, (x, boxes), (params["layers"], jnp.array(slots[:depth])))
        taken |= {hook: box[:-1] for hook, box in boxes.items()}
    if depth == config.layers:
        taken["final_norm"] = _norm(x, params["norm"], config)[None]
    if "logits" in taps.hooks:
        taken["logits"] = taken["final_norm"] @ params["head"]
    return {hook: taken[hook].astype(taps.dtype) for hook in taps.hooks}


def _attention(x: jax.Array, w: Params, rotations: jax.Array, config: Config) -> jax.Array:
    def heads(one: str) -> jax.Array:
        return (x @ w[one] + w[f"{one}_bias"]).reshape(*x.shape[:2], -1, config.head_dim)

    queries, keys = (_rotate(heads(one), rotations) for one in "qk")
    mixed = jax.nn.dot_product_attention(queries, keys, heads("v"), is_causal=True)
    return mixed.reshape(*x.shape[:2], -1) @ w["o"]


def _mlp(x: jax.Array, w: Params) -> jax.Array:
    return (jax.nn.silu(x @ w["gate"]) * (x @ w["up"])) @ w["down"]


def _norm(x: jax.Array, weight: jax.Array, config: Config) -> jax.Array:
    exact = x.astype(jnp.float32)
    exact = exact * jax.lax.rsqrt(jnp.mean(exact * exact, axis=-1, keepdims=True) + config.epsilon)
    return exact.astype(x.dtype) * weight


def _rotations(length: int, config: Config, dtype: Any) -> jax.Array:
    """Cosine and sine for each position and each pair of features: [2, length, 1, head_dim / 2]."""
    frequencies = config.rope_base ** (-np.arange(0, config.head_dim, 2, dtype=np.float32) / config.head_dim)
    angles = np.arange(length, dtype=np.float32)[:, None, None] * frequencies
    return jnp.stack([jnp.cos(angles), jnp.sin(angles)]).astype(dtype)


def _rotate(x: jax.Array, rotations: jax.Array) -> jax.Array:
    cos, sin = rotations
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
