"""A model of random weights in the form of Qwen2, as Hugging Face stores it, and a dataset to try it on.

    python make_tiny.py FOLDER [--layers 4] [--width 64] [--files 2] [--untied] [--text FILE]

The same words give the same files. Its tokens are the 256 bytes. The paragraphs of the text are samples of FOLDER/data,
in two streams.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import tensors
from checkpoint import INDEX, ONE

HEAD_DIM = 16


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser("make_tiny.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    for name, default in (
        ("layers", 4),
        ("width", 64),
        ("head-dim", HEAD_DIM),
        ("vocabulary", 256),
        ("files", 1),
        ("seed", 0),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--untied", action="store_true", help="with a head of its own")
    parser.add_argument("--text", type=Path, help="whose paragraphs are samples")
    given = parser.parse_args(argv)
    make(
        given.folder,
        layers=given.layers,
        width=given.width,
        head_dim=given.head_dim,
        vocabulary=given.vocabulary,
        tied=not given.untied,
        files=given.files,
        seed=given.seed,
    )
    if given.text:
        _dataset(given.folder, given.text)


def make(
    folder: Path,
    *,
    layers: int = 4,
    width: int = 64,
    head_dim: int = HEAD_DIM,
    vocabulary: int = 256,
    tied: bool = True,
    files: int = 1,
    seed: int = 0,
) -> None:
    heads = width // head_dim
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_act": "silu",
        "hidden_size": width,
        "intermediate_size": width * 3,
        "max_position_embeddings": 4096,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": heads // 2,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "tie_word_embeddings": tied,
        "dtype": "bfloat16",
        "vocab_size": vocabulary,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer()), encoding="utf-8")
    weights = dict(_weights(config, head_dim, seed))
    if files == 1:
        tensors.written(folder / ONE, weights, {"format": "pt"})
        return
    names = {name: f"model-{number % files + 1:05d}-of-{files:05d}.safetensors" for number, name in enumerate(weights)}
    for file in sorted(set(names.values())):
        part = {name: array for name, array in weights.items() if names[name] == file}
        tensors.written(folder / file, part, {"format": "pt"})
    index = {"metadata": {"total_size": sum(array.nbytes for array in weights.values())}, "weight_map": names}
    (folder / INDEX).write_text(json.dumps(index, indent=2), encoding="utf-8")


def _weights(config: dict, head_dim: int, seed: int) -> Iterator[tuple[str, np.ndarray]]:
    draw = np.random.RandomState(seed)  # numpy promises that it stays as it is, unlike its newer generators
    width, mlp, kv = config["hidden_size"], config["intermediate_size"], config["num_key_value_heads"] * head_dim

    def normal(*shape: int, scale: float, mean: float = 0.0) -> np.ndarray:
        return (mean + scale * draw.standard_normal(shape)).astype(ml_dtypes.bfloat16)

    yield "model.embed_tokens.weight", normal(config["vocab_size"], width, scale=1.0)
    for number in range(config["num_hidden_layers"]):
        layer = f"model.layers.{number}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{layer}.{norm}.weight", normal(width, scale=0.2, mean=1.0)
        for name, rows in (("q", width), ("k", kv), ("v", kv)):
            yield f"{layer}.self_attn.{name}_proj.weight", normal(rows, width, scale=width**-0.5)
            yield f"{layer}.self_attn.{name}_proj.bias", normal(rows, scale=0.5)
        yield f"{layer}.self_attn.o_proj.weight", normal(width, width, scale=width**-0.5)
        for name in ("gate", "up"):
            yield f"{layer}.mlp.{name}_proj.weight", normal(mlp, width, scale=width**-0.5)
        yield f"{layer}.mlp.down_proj.weight", normal(width, mlp, scale=mlp**-0.5)
    yield "model.norm.weight", normal(width, scale=0.2, mean=1.0)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", normal(config["vocab_size"], width, scale=width**-0.5)


def _dataset(folder: Path, text: Path) -> None:
    from tpukit.fleet import streams

    paragraphs = [" ".join(one.split()) for one in text.read_text(encoding="utf-8").split("\n\n")]
    samples = [{"id": number, "tokens": list(one.encode())} for number, one in enumerate(filter(None, paragraphs))]
    (folder / "samples.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in samples), encoding="utf-8")
    streams.split([folder / "samples.jsonl"], folder / "data", 2)


def _tokenizer() -> dict:
    """Bytes, as the byte-level tokenizers of this family write them: each as a character that can be printed."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {byte: chr(byte) for byte in plain} | {byte: chr(256 + number) for number, byte in enumerate(others)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {
        "version": "1.0",
        "pre_tokenizer": level,
        "decoder": level,
        "model": {"type": "BPE", "vocab": {letters[byte]: byte for byte in range(256)}, "merges": []},
    }


if __name__ == "__main__":
    main(sys.argv[1:])
