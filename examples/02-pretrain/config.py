"""Everything that can be set, with its type and its default, and the flags that set it.

`--config=NAME` takes a preset, `--config.training.learning_rate=0.01` changes one field of it. A job file's `config:`
mapping arrives as exactly such flags.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Model:
    vocabulary: int = 256  # one token per byte
    width: int = 64
    layers: int = 2
    heads: int = 4  # of queries
    kv_heads: int = 2  # each serves heads / kv_heads heads of queries
    head_dim: int = 16
    mlp_width: int = 192
    rope_base: float = 10_000.0
    dtype: str = "bfloat16"  # of the computation; parameters and optimizer stay float32
    attention: str = "auto"  # cudnn | splash | xla | auto: cuDNN's on a GPU, splash on a TPU, XLA's elsewhere
    remat: str = "none"  # what a layer keeps for the backward pass: none = everything | dots = matmuls | full = nothing
    unroll: int = 1  # layers per step of the scan: all of them compile slower and run faster
    loss_chunks: int = 1  # pieces of the sequence whose logits are never in memory together


@dataclass(frozen=True, slots=True)
class Data:
    dataset: str = "text"  # text | synthetic: random tokens, for measuring speed
    path: str = "alice.txt"  # beside train.py, or absolute
    sequence_length: int = 128
    synthetic_windows: int = 65_536  # how long an epoch of synthetic data is


@dataclass(frozen=True, slots=True)
class Mesh:
    fsdp: int = 0  # chips that share one copy of the parameters; 0 = all of a slice
    tensor: int = 1  # chips that share each matrix multiplication


@dataclass(frozen=True, slots=True)
class Training:
    batch_size: int = 16  # sequences per step, over all hosts
    num_epochs: int = 3
    steps: int = 0  # this many instead of num_epochs; 0 = num_epochs
    learning_rate: float = 1e-2  # at its peak
    warmup_steps: int = 10
    weight_decay: float = 0.1
    adam_b1: float = 0.9
    adam_b2: float = 0.95
    clip_norm: float = 1.0
    z_loss: float = 0.0  # pulls the logits' normaliser towards 1; 1e-4 steadies long runs
    checkpoint_per_epoch: int = 1
    checkpoint_every: int = 0  # steps between checkpoints instead of checkpoint_per_epoch
    keep_checkpoints: int = 2
    log_every: int = 10
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Config:
    model: Model = field(default_factory=Model)
    data: Data = field(default_factory=Data)
    mesh: Mesh = field(default_factory=Mesh)
    training: Training = field(default_factory=Training)


PRESETS = {
    # Trains in seconds on 16 simulated chips of a laptop.
    "tiny": Config(),
    # 1.3 billion parameters, the shape of GPT-3 XL with SwiGLU. Sized for one H200: 16 bytes a parameter for weights,
    # gradients and Adam is 21 GB, and what 24 × 2048 tokens leave for the backward pass another 80 GB.
    "1b3": Config(
        model=Model(
            vocabulary=32_768,
            width=2048,
            layers=24,
            heads=16,
            kv_heads=16,
            head_dim=128,
            mlp_width=5632,
            remat="none",
            unroll=24,
        ),
        data=Data(dataset="synthetic", sequence_length=2048),
        training=Training(
            batch_size=24,
            num_epochs=1,
            learning_rate=2e-4,
            warmup_steps=200,
            checkpoint_per_epoch=4,
        ),
    ),
    # The same model for TPUs: a loop over the layers, because unrolled it compiles for many minutes.
    "1b3-tpu": Config(
        model=Model(
            vocabulary=32_768,
            width=2048,
            layers=24,
            heads=16,
            kv_heads=16,
            head_dim=128,
            mlp_width=5632,
            remat="full",
            loss_chunks=4,
        ),
        data=Data(dataset="synthetic", sequence_length=2048),
        training=Training(batch_size=128, num_epochs=1, learning_rate=2e-4, warmup_steps=200, checkpoint_per_epoch=4),
    ),
    # 7.5 and 69.5 billion parameters, in the shapes of Llama 3 with one matrix for both ends of the vocabulary.
    "8b": Config(
        model=Model(
            vocabulary=128_256,
            width=4096,
            layers=32,
            heads=32,
            kv_heads=8,
            head_dim=128,
            mlp_width=14_336,
            rope_base=500_000.0,
            remat="full",
            loss_chunks=16,
        ),
        data=Data(dataset="synthetic", sequence_length=8192),
        training=Training(
            batch_size=1024, num_epochs=1, learning_rate=3e-4, warmup_steps=2000, checkpoint_per_epoch=32
        ),
    ),
    "70b": Config(
        model=Model(
            vocabulary=128_256,
            width=8192,
            layers=80,
            heads=64,
            kv_heads=8,
            head_dim=128,
            mlp_width=28_672,
            rope_base=500_000.0,
            remat="full",
            loss_chunks=16,
        ),
        data=Data(dataset="synthetic", sequence_length=8192),
        training=Training(
            batch_size=512, num_epochs=1, learning_rate=1.5e-4, warmup_steps=2000, checkpoint_per_epoch=32
        ),
    ),
}


class Misuse(Exception):
    """The flags cannot be followed. Says everything that is wrong with them."""


def parse(arguments: Sequence[str]) -> Config:
    """Return the configuration of the flags."""
    config, changes, problems = PRESETS["tiny"], [], []
    for argument in arguments:
        name, equals, text = argument.partition("=")
        if not equals or not name.startswith("--config"):
            problems.append(f"{argument}: write --config=PRESET or --config.SECTION.FIELD=VALUE")
        elif name != "--config":
            changes.append((name.removeprefix("--config."), text))
        elif text in PRESETS:
            config = PRESETS[text]
        else:
            problems.append(f"{argument}: there is no such preset; there are {', '.join(PRESETS)}")
    for name, text in changes:
        try:
            config = _changed(config, name, text)
        except ValueError as error:
            problems.append(f"--config.{name}={text}: {error}")
    problems += [] if problems else _contradictions(config)
    if problems:
        raise Misuse("\n".join(problems))
    return config


def _changed(config: Config, name: str, text: str) -> Config:
    section, _, key = name.partition(".")
    known = [f"{part.name}.{item.name}" for part in dataclasses.fields(config) for item in _fields(config, part.name)]
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        raise ValueError(f"there is no such field{'; did you mean ' + near[0] if near else ''}")
    part = getattr(config, section)
    kind = type(getattr(part, key))
    try:
        value = kind(text)
    except ValueError:
        raise ValueError(f"must be {'a whole number' if kind is int else 'a number'}") from None
    return dataclasses.replace(config, **{section: dataclasses.replace(part, **{key: value})})


def _fields(config: Config, section: str) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(getattr(config, section))


def _contradictions(config: Config) -> list[str]:
    """Return the problems of fields that are valid alone, but not together."""
    model, training = config.model, config.training
    rules = {
        "model.kv_heads must divide model.heads": model.kv_heads > 0 and model.heads % model.kv_heads == 0,
        "model.head_dim must be even, for rotary positions": model.head_dim > 0 and model.head_dim % 2 == 0,
        "model.loss_chunks must divide data.sequence_length": model.loss_chunks > 0
        and config.data.sequence_length % model.loss_chunks == 0,
        "model.remat must be none, dots or full": model.remat in ("none", "dots", "full"),
        "model.attention must be auto, cudnn, splash or xla": model.attention in ("auto", "cudnn", "splash", "xla"),
        "model.dtype must be bfloat16 or float32": model.dtype in ("bfloat16", "float32"),
        "data.dataset must be text or synthetic": config.data.dataset in ("text", "synthetic"),
        "training.batch_size must be at least 1": training.batch_size >= 1,
        "training.num_epochs and training.steps must not both be 0": max(training.num_epochs, training.steps) >= 1,
        "training.log_every must be at least 1": training.log_every >= 1,
    }
    return [rule for rule, kept in rules.items() if not kept]
