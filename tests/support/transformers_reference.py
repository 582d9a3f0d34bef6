"""Reference activations of transformers' Qwen2 for examples/04-activations; run it with transformers installed.

    python transformers_reference.py CHECKPOINT TOKENS.json OUTPUT.safetensors DTYPE

TOKENS.json has the tokens of each sample. Each sample is run alone, without padding. The output has the arrays of a
shard.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file


def main(checkpoint: str, tokens: str, output: str, dtype: str) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=getattr(torch, dtype)).eval()
    samples = json.loads(Path(tokens).read_text(encoding="utf-8"))
    taken: dict[str, list[torch.Tensor]] = {}
    watched = {"embedding": model.model.embed_tokens, "final_norm": model.model.norm, "logits": model.lm_head}
    for number, layer in enumerate(model.model.layers):
        watched |= {f"residual.{number}": layer, f"attention.{number}": layer.self_attn, f"mlp.{number}": layer.mlp}

    def watch(name: str, module: torch.nn.Module) -> None:
        def hook(_module: torch.nn.Module, _inputs: object, output: Any) -> None:
            values = output[0] if isinstance(output, tuple) else output
            taken.setdefault(name, []).append(values[0])

        module.register_forward_hook(hook)

    for name, module in watched.items():
        watch(name, module)
    with torch.no_grad():
        for sample in samples:
            made = model(torch.tensor([sample]), output_hidden_states=True)
            # Compare the model's own hidden states, the common reference, with the hooks' values.
            states = [taken["embedding"], *(taken[f"residual.{n}"] for n in range(len(model.model.layers) - 1))]
            for state, seen in zip(made.hidden_states, [*states, taken["final_norm"]], strict=True):
                assert torch.equal(state[0], seen[-1])
    arrays = {name: torch.cat(values).contiguous() for name, values in taken.items()}
    save_file(arrays, output, {"made_by": f"transformers {transformers.__version__}, torch {torch.__version__}"})


if __name__ == "__main__":
    main(*sys.argv[1:])
