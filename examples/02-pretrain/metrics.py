"""What a run says about itself: each step's loss in `metrics.jsonl`, and its speed at every log interval.

MFU is the share of the chips' peak that goes into the model's own arithmetic: a multiply-add is two operations, the
backward pass costs twice the forward one, causal attention counts half, and nothing recomputed or looked up counts.
"""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from config import Config

from tpukit.host import Checkpoints, Host

# Dense bf16 operations per second of one JAX device. A TPU7x chip is two devices.
PEAK = {
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5e": 197e12,
    "TPU v5": 459e12,
    "TPU v5p": 459e12,
    "TPU v6 lite": 918e12,
    "TPU v6e": 918e12,
    "TPU7x": 2307e12 / 2,
    "NVIDIA H100 80GB HBM3": 989e12,
    "NVIDIA H200": 989e12,
}


def flops_per_token(config: Config) -> float:
    """Operations of one training step per token, by the rules above."""
    model = config.model
    attention = model.width * model.head_dim * (2 * model.heads + 2 * model.kv_heads)
    mlp = 3 * model.width * model.mlp_width
    output = model.width * model.vocabulary
    scores = model.heads * model.head_dim * config.data.sequence_length  # queries × keys and weights × values, halved
    return 6.0 * (model.layers * (attention + mlp + scores) + output)


class Metrics:
    """Takes each step's numbers as they come from the devices."""

    def __init__(self, config: Config, host: Host, checkpoints: Checkpoints, steps: int) -> None:
        self._config, self._host, self._checkpoints, self._steps = config, host, checkpoints, steps
        self._flops = flops_per_token(config)
        self._peak = PEAK.get(jax.devices()[0].device_kind)
        self._marked_at = 0.0
        self._marked_step = -1
        self._speed: dict[str, float] = {}
        self._pending: tuple[int, dict[str, Any]] | None = None
        self._journal: Path | None = None
        if host.first and "://" not in host.world.workdir:  # an object store cannot append
            Path(host.world.workdir).mkdir(parents=True, exist_ok=True)
            self._journal = Path(host.world.workdir, "metrics.jsonl")
        if host.first:
            host.scalars.prepare()

    def record(self, step: int, measured: dict[str, Any], *, wait: bool = False) -> None:
        """Take the numbers of `step`, and write those of the step before it, which is done or nearly so."""
        self.flush()
        self._pending = (step, measured)
        if wait:
            self.flush()

    def flush(self) -> None:
        """Write what was taken and not yet written, once the devices have it."""
        if self._pending is None:
            return
        (step, measured), self._pending = self._pending, None
        loss = float(measured["loss"])
        log = step % self._config.training.log_every == 0 or step == self._steps
        if self._marked_step < 0:
            self._marked_step, self._marked_at = step, time.perf_counter()  # the first step compiled: not a speed
        elif log:
            self._measure(step)
        batch = hashlib.sha256(np.asarray(measured["index"], dtype="<i4").tobytes()).hexdigest()[:16]
        if self._journal:
            line = {"step": step, "loss": loss, "batch": batch, "attempt": self._host.world.attempt}
            with self._journal.open("a", encoding="utf-8") as journal:
                journal.write(json.dumps(line) + "\n")
        self._host.report(
            step=step,
            steps=self._steps,
            loss=loss,
            batch=batch,
            saved=self._checkpoints.saved,
            log=self._line(step, loss) if log else "",
            **self._speed,
        )
        if log and self._host.first:
            self._host.scalars.write(step, loss=loss, gradient_norm=float(measured["gradient_norm"]), **self._speed)

    def _measure(self, step: int) -> None:
        now = time.perf_counter()
        steps_per_s = (step - self._marked_step) / (now - self._marked_at)
        self._marked_step, self._marked_at = step, now
        tokens_per_s = steps_per_s * self._config.training.batch_size * self._config.data.sequence_length
        per_chip = tokens_per_s * self._flops / jax.device_count()
        self._speed = {"steps_per_s": steps_per_s, "tokens_per_s": tokens_per_s, "tflops_per_chip": per_chip / 1e12}
        if self._peak:
            self._speed["mfu"] = per_chip / self._peak

    def _line(self, step: int, loss: float) -> str:
        parts = [f"step {step}/{self._steps}", f"loss {loss:.4f}"]
        if self._speed:
            parts += [f"{self._speed['steps_per_s']:.2f} steps/s", f"{self._speed['tokens_per_s']:,.0f} tokens/s"]
            parts += [f"{self._speed['tflops_per_chip']:.4g} TFLOP/s/chip"]
        if "mfu" in self._speed:
            parts += [f"MFU {self._speed['mfu']:.1%}"]
        if self._checkpoints.saved is not None:
            parts += [f"saved {self._checkpoints.saved}"]
        return "  ".join(parts)
