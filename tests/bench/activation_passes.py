"""One side of the comparison of extractions: load a model, then process the same samples once per input line.

    python activation_passes.py ours|theirs CHECKPOINT STREAMS OUTPUT BATCH

Prints the seconds of each pass. `theirs` is the usual loop over transformers: small batches, padded to the longest of
each, hidden states of all layers to numpy, and a gzipped pickle for each shard.
"""

from __future__ import annotations

import gzip
import json
import pickle
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARD_SAMPLES = 512


def ours(checkpoint: Path, streams: Path, output: Path, batch: int) -> Callable[[], None]:
    """Process streams as a worker of a fleet does, including checksums and checkpoints."""
    sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "examples" / "04-activations")]
    import extract

    from tpukit.host.bucket import Folder
    from tpukit.host.shards import Extraction, Run, Stream

    (listed,) = json.loads((streams / "streams.json").read_text(encoding="utf-8"))["streams"]
    stream = Stream(listed["name"], listed["samples"], listed["sha256"])
    options = {"model": str(checkpoint), "batch_tokens": str(batch)}
    program = extract.make(options, lambda _: None)
    run = Run(SHARD_SAMPLES, ".safetensors", "extract.py:make", options, "")

    def once() -> None:
        work = Extraction(Folder(streams), Folder(output), stream, run, "bench", str(streams), output.parent)
        work.work(program, lambda: None, lambda *_: None)

    return once


def theirs(checkpoint: Path, streams: Path, output: Path, batch: int) -> Callable[[], None]:
    import torch
    from transformers import AutoModel

    model = AutoModel.from_pretrained(checkpoint, dtype=torch.float32).eval()

    def hidden_states(samples: list[dict]) -> list[dict]:
        longest = max(len(sample["tokens"]) for sample in samples)
        ids = torch.zeros(len(samples), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, sample in enumerate(samples):
            ids[row, : len(sample["tokens"])] = torch.tensor(sample["tokens"])
            mask[row, : len(sample["tokens"])] = 1
        with torch.no_grad():
            states = model(ids, attention_mask=mask, output_hidden_states=True, use_cache=False).hidden_states[1:]
        return [
            {"id": one["id"], "layers": [state[row, : len(one["tokens"])].numpy().copy() for state in states]}
            for row, one in enumerate(samples)
        ]

    def once() -> None:
        (file,) = streams.glob("stream_*.jsonl")
        samples = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        output.mkdir(parents=True)
        for first in range(0, len(samples), SHARD_SAMPLES):
            shard = samples[first : first + SHARD_SAMPLES]
            made = [one for at in range(0, len(shard), batch) for one in hidden_states(shard[at : at + batch])]
            with gzip.open(output / f"shard_{first // SHARD_SAMPLES:04d}.pkl.gz", "wb") as target:
                pickle.dump(made, target)

    return once


def main(side: str, checkpoint: str, streams: str, output: str, batch: str) -> None:
    make = {"ours": ours, "theirs": theirs}[side]
    once = make(Path(checkpoint), Path(streams), Path(output), int(batch))
    for _ in sys.stdin:
        shutil.rmtree(output, ignore_errors=True)
        before = time.perf_counter()
        once()
        print(time.perf_counter() - before, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
