"""The result of a drill as plain data for `--json`. Keys are stable; unknown values are null."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from tpukit.drill.advice import TEXT
from tpukit.drill.engine import Drill, Result


def to_json(drill: Drill) -> dict[str, Any]:
    return {
        "job": drill.job,
        "verdict": drill.word,
        "command": drill.command,
        "seed": drill.seed,
        "seconds": round(drill.seconds, 3),
        "noise": drill.noise.most,
        "tolerance": drill.noise.tolerance,
        "findings": [{"verdict": one.word, "text": one.text, "cause": one.cause} for one in drill.findings],
        "unbroken": {
            "steps": len(drill.planned.steps),
            "saves": list(drill.planned.saves),
            "seconds": round(drill.unbroken.seconds, 3),
        },
        "losses": [_loss(result) for result in drill.results],
        "not_tried": [{"loss": name, "why": why} for name, why in drill.left_out],
        "advice": [{"cause": cause, "do": TEXT[cause]} for cause in drill.causes],
        "stopped": None if drill.stopped is None else str(drill.stopped) or "interrupted",
        "costs": asdict(drill.costs),
    }


def _loss(result: Result) -> dict[str, Any]:
    verdict, run = result.verdict, result.run
    evidence = verdict.evidence
    return {
        "loss": verdict.loss.name,
        "what": str(verdict.loss),
        "verdict": verdict.word,
        "text": verdict.text,
        "lost_at": verdict.lost_at,
        "resumed_at": verdict.resumed_at,
        "steps_lost": verdict.steps_lost,
        "back_seconds": verdict.back_seconds,
        "saved": evidence.saved if evidence.saved >= 0 else None,
        "first_different": evidence.first_different,
        "difference": _finite(evidence.difference),
        "steps_compared": evidence.steps,
        "values_compared": evidence.values,
        "not_restored": list(evidence.not_restored),
        "batches_shifted_by": evidence.shift.by if evidence.shift else None,
        "advice": [{"cause": cause, "do": TEXT[cause]} for cause in result.causes],
        "log_ends": dict(run.tails),
        "state": run.state,
        "message": run.message or None,
        "attempts": len(run.attempts),
        "seconds": round(run.seconds, 3),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
