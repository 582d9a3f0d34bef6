"""Causal attention on TPUs: the splash attention that ships with JAX.

XLA's attention writes the scores of all pairs of tokens to memory: 256 MiB for each head at 8,192 tokens. The kernel
keeps one block of them on the chip at a time, and skips blocks above the diagonal.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import PartitionSpec as P

BLOCK = 512  # tokens of a block: larger ones need more of the 16 to 128 MiB beside the matrix units, and fewer passes
LANES = 128  # of a TPU's vector unit: the kernel takes multiples of it


def fits(head_dim: int, length: int) -> bool:
    """Return whether the kernel takes these shapes."""
    return head_dim % LANES == 0 and length % min(BLOCK, length) == 0 and length % LANES == 0


def prepare() -> None:
    """Load the kernel on a TPU. Loading it while a step is traced would make JAX compile the step twice."""
    if jax.default_backend() == "tpu":
        _kernel()


def splash(queries: jax.Array, keys: jax.Array, values: jax.Array) -> jax.Array:
    """Attention of [batch, length, heads, head_dim]; several heads of queries may share one of keys and values."""
    heads = P(None, None, "tensor", None)
    # XLA cannot split a kernel by itself, so axis tensor, which the model leaves to XLA, is taken over here.
    return jax.shard_map(
        _on_one_chip, in_specs=(heads, heads, heads), out_specs=heads, axis_names={"tensor"}, check_vma=False
    )(queries, keys, values)


def _on_one_chip(queries: jax.Array, keys: jax.Array, values: jax.Array) -> jax.Array:
    library, masks = _kernel()
    _, length, heads, head_dim = queries.shape
    block = min(BLOCK, length)
    sizes = library.BlockSizes(
        block_q=block,
        block_kv=block,
        block_q_dkv=block,
        block_kv_dkv=block,
        use_fused_bwd_kernel=True,
    )
    mask = masks.MultiHeadMask([masks.CausalMask((length, length))] * heads)
    kernel = library.make_splash_mha(
        mask, block_sizes=sizes, head_shards=1, q_seq_shards=1, interpret=jax.default_backend() != "tpu"
    )
    # The kernel does not scale, and has the heads before the tokens.
    before = (one.swapaxes(1, 2) for one in (queries * head_dim**-0.5, keys, values))
    return jax.vmap(kernel)(*before).swapaxes(1, 2).astype(queries.dtype)


def _kernel() -> tuple[Any, Any]:
    """Return the modules of the kernel and of its masks. Without a TPU, the second that they take is wasted."""
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel, splash_attention_mask

    return splash_attention_kernel, splash_attention_mask
