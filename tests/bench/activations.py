"""Extraction of activations on this machine's CPU, compared with a plain loop over transformers.

A worker of a fleet with examples/04-activations runs beside a loop that uses transformers and writes a gzipped pickle.
Each side has loaded its model and processed the samples once before it is measured.

    python tests/bench/activations.py FOLDER PYTHON-WITH-TRANSFORMERS    # runs only this measurement
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from measure import in_turn
from rows import Row, faster, table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "04-activations"))
import make_tiny

from support import transformers_environment
from tpukit.fleet import streams

SCRIPT = Path(__file__).with_name("activation_passes.py")
PAIRS = 5
LAYERS, WIDTH, VOCABULARY = 4, 256, 8192
SAMPLES, MEDIAN, LONGEST = 128, 120, 512
OURS_TOKENS, THEIR_SAMPLES = 512, 8  # per batch


def measure(env: Mapping[str, str], folder: Path, python: str = "") -> list[Row]:
    python = python or transformers_environment.python(build=True)
    shutil.rmtree(folder, ignore_errors=True)
    make_tiny.make(folder / "model", layers=LAYERS, width=WIDTH, head_dim=64, vocabulary=VOCABULARY)
    tokens = _samples(folder)
    ours, theirs = (sys.executable, "ours", folder, OURS_TOKENS, env), (python, "theirs", folder, THEIR_SAMPLES, env)
    with _Side(*ours) as our_pass, _Side(*theirs) as their_pass:
        pairs = in_turn(our_pass, their_pass, PAIRS)
    words = f"activations of {tokens:,} tokens, {LAYERS} layers of {WIDTH} / transformers and pickle.gz"
    return [faster(words, pairs, at_least=3.0)]


def _samples(folder: Path) -> int:
    """Write samples with lengths distributed as in texts: many short ones, few long ones."""
    draw = np.random.RandomState(0)
    lengths = np.exp(draw.normal(np.log(MEDIAN), 0.8, SAMPLES)).clip(8, LONGEST).astype(int)
    lines = [
        json.dumps({"id": number, "tokens": draw.randint(0, VOCABULARY, length).tolist()})
        for number, length in enumerate(lengths)
    ]
    (folder / "data.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    streams.split([folder / "data.jsonl"], folder / "streams", 1)
    return int(lengths.sum())


class _Side:
    """A process with its model loaded. Each call processes the samples once and returns the seconds."""

    def __init__(self, python: str, side: str, folder: Path, batch: int, env: Mapping[str, str]) -> None:
        words = [str(folder / "model"), str(folder / "streams"), str(folder / side), str(batch)]
        self._side, self._log = side, (folder / f"{side}.log").open("w+", encoding="utf-8")
        self._process = subprocess.Popen(
            [python, str(SCRIPT), side, *words],
            env={**env, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def __enter__(self) -> Callable[[], float]:
        return self._pass

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def _pass(self) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        if not (line := self._process.stdout.readline()):
            self._log.seek(0)
            raise SystemExit(f"bench: extraction, {self._side}: it ended: {self._log.read()[-2000:]}")
        return float(line)


if __name__ == "__main__":
    print(table(measure(dict(os.environ), Path(sys.argv[1]), *sys.argv[2:3])))
