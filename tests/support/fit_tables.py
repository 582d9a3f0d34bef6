"""Tables of `tpu fit` in the pages: compile examples/02-pretrain for them, and write them.

    python tests/support/fit_tables.py            compile what is missing (hours, 6 GB), and write the tables
    python tests/support/fit_tables.py NAME...    these rows only
    python tests/support/fit_tables.py --write    write the tables from what is recorded

Figures are recorded in tests/golden/fit.json with a digest of the program. tests/unit/fit/test_tables.py compares the
pages and the digest, so a change of the program asks for another run.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "02-pretrain"
RECORD = ROOT / "tests" / "golden" / "fit.json"
PAGES = {"presets": EXAMPLE / "README.md", "published": ROOT / "tools" / "tpukit" / "fit" / "README.md"}
SECONDS = 7200.0

_16B = ["vocabulary=32_000", "width=4096", "layers=32", "heads=64", "kv_heads=64", "mlp_width=28_672", "rope_base=1e4"]
_32B = ["vocabulary=32_000", "width=8192", "layers=32", "heads=64", "kv_heads=64", "mlp_width=28_672", "rope_base=1e4"]
_SHORT = ["--config.data.sequence_length=2048", "--config.model.loss_chunks=4"]


def _model(fields: Sequence[str], *more: str) -> list[str]:
    return ["--config=8b", *(f"--config.model.{one}" for one in fields), *_SHORT, *more]


RECIPES = "https://github.com/AI-Hypercomputer/tpu-recipes/blob/main/training/trillium"
CONFIGS = "https://github.com/AI-Hypercomputer/maxtext/blob/0ed7bd529b9d690570473c3525d1efeda6b6c944/MaxText/configs"
ROWS: dict[str, dict[str, Any]] = {
    "1b3 v5e-16": {"tpu": "v5e-16", "slices": 1, "flags": ["--config=1b3-tpu"], "page": "presets"},
    "1b3 v5e-16 x2": {"tpu": "v5e-16", "slices": 2, "flags": ["--config=1b3-tpu"], "page": "presets"},
    "8b v5p-128": {"tpu": "v5p-128", "slices": 1, "flags": ["--config=8b"], "page": "presets"},
    "8b v6e-256": {
        "tpu": "v6e-256",
        "slices": 1,
        "flags": ["--config=8b"],
        "page": "presets",
        "published": {"mfu": 0.4546, "what": "Llama 3.1 8B", "source": f"{RECIPES}/Llama3.1-8B-MaxText/v6e-256"},
    },
    "70b v6e-256 x2": {"tpu": "v6e-256", "slices": 2, "flags": ["--config=70b"], "page": "presets"},
    "70b v6e-256": {
        "tpu": "v6e-256",
        "slices": 1,
        "flags": ["--config=70b", "--config.training.batch_size=256"],
        "page": "published",
        "published": {"mfu": 0.5033, "what": "Llama 3.1 70B", "source": f"{RECIPES}/Llama3.1-70B-MaxText/v6e-256"},
    },
    "16b v5e-256": {
        "tpu": "v5e-256",
        "slices": 1,
        "flags": _model(_16B, "--config.training.batch_size=1536"),
        "page": "published",
        "published": {"mfu": 0.6110, "what": "MaxText 16B", "source": f"{CONFIGS}/v5e"},
    },
    "32b v5e-256": {
        "tpu": "v5e-256",
        "slices": 1,
        "flags": _model(_32B, "--config.training.batch_size=1024"),
        "page": "published",
        "published": {"mfu": 0.6686, "what": "MaxText 32B", "source": f"{CONFIGS}/v5e"},
    },
    "32b v5p-128": {
        "tpu": "v5p-128",
        "slices": 1,
        "flags": _model(
            _32B, "--config.training.batch_size=448", "--config.mesh.tensor=4", "--config.model.remat=dots"
        ),
        "page": "published",
        "published": {"mfu": 0.7147, "what": "MaxText 32B", "source": f"{CONFIGS}/v5p"},
    },
}


def digest() -> str:
    """Return a digest of the code that decides the compiled step, without comments and docstrings."""
    found = hashlib.sha256()
    for name in ("attention.py", "config.py", "model.py", "train.py"):
        tree = ast.parse((EXAMPLE / name).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if (
                isinstance(body, list)
                and body
                and isinstance(body[0], ast.Expr)
                and isinstance(body[0].value, ast.Constant)
            ):
                del body[0]
        found.update(ast.dump(tree).encode())
    return found.hexdigest()[:16]


def record(name: str) -> dict[str, Any]:
    """Compile a row, and return its figures."""
    from tpukit.drill import pricing
    from tpukit.fit import check
    from tpukit.jobs import plan
    from tpukit.jobs.spec import JobSpec, Settings

    row = ROWS[name]
    body = {"name": "pretrain", "tpu": row["tpu"], "slices": row["slices"], "code": str(EXAMPLE)}
    job = JobSpec.from_json({**body, "command": ["python", "train.py", *row["flags"]]})
    report = check.check(
        plan.make(job, Settings(), "local"),
        pricing.per_hour,
        lambda text: print(f"{name}: {text}", flush=True),
        seconds=SECONDS,
    )
    guess, held = report.estimate, report.memory
    figures: dict[str, Any] = {
        "verdict": report.verdict,
        "findings": [f"{one.kind}: {one.text}" for one in report.findings],
        "versions": dict(report.versions),
        "compile_seconds": round(report.seconds),
        "compile_memory": report.peak_memory,
    }
    if held:
        figures |= {"peak": held.peak, "available": held.available, "parameters": held.parameters}
    if guess:
        figures |= {
            "seconds": guess.roofline_seconds,
            "bound": guess.bound,
            "mfu": guess.mfu,
            "compiler_mfu": guess.compiler_mfu,
            "tokens": guess.tokens,
            "inside": guess.inside_bytes,
            "between": guess.between_bytes,
            "usd_per_billion_tokens": guess.usd_per_billion_tokens,
            "times": [guess.compute_seconds, guess.memory_seconds, guess.ici_seconds, guess.dcn_seconds],
        }
    return figures


def presets(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table of the presets."""
    lines = [
        "| preset | slices | memory of a chip | step | bound by | MFU by roofline | MFU by cycles | between slices |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in ROWS.items():
        if row["page"] == "presets" and name in rows:
            one = rows[name]
            preset = row["flags"][0].partition("=")[2]
            between = f"{one['between'] / one['parameters']:.2f} × gradients" if row["slices"] > 1 else "–"
            memory = f"{one['peak'] / 2**30:.1f} of {one['available'] / 2**30:.0f} GiB"
            lines.append(
                f"| `{preset}` | {row['slices']} × {row['tpu']} | {memory} | {one['seconds']:.2f} s | {one['bound']} | "
                f"{one['mfu']:.0%} | {one['compiler_mfu']:.0%} | {between} |"
            )
    return "\n".join(lines)


def published(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table of estimates beside published figures."""
    lines = [
        "| model | slices | published MFU | by roofline | by cycles | ratio, roofline | ratio, cycles |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in ROWS.items():
        if "published" in row and name in rows:
            one, known = rows[name], row["published"]
            lines.append(
                f"| [{known['what']}]({known['source']}) | {row['slices']} × {row['tpu']} | {known['mfu']:.1%} | "
                f"{one['mfu']:.1%} | {one['compiler_mfu']:.1%} | {one['mfu'] / known['mfu']:.2f} | "
                f"{one['compiler_mfu'] / known['mfu']:.2f} |"
            )
    return "\n".join(lines)


TABLES = {"presets": presets, "published": published}


def between(page: str, name: str) -> str:
    """Return the table between the marks of a page."""
    return page.partition(f"<!-- fit: {name} -->\n")[2].partition("\n<!-- end -->")[0]


def main(words: Sequence[str]) -> None:
    known = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    rows = known.get("rows", {}) if known.get("digest") == digest() or "--write" in words else {}
    wanted = [word for word in words if not word.startswith("--")] or list(ROWS)
    for name in [] if "--write" in words else wanted:
        if name not in rows:
            rows[name] = record(name)
            ordered = {one: rows[one] for one in ROWS if one in rows}
            RECORD.write_text(json.dumps({"digest": digest(), "rows": ordered}, indent=1) + "\n", encoding="utf-8")
    for name, page in PAGES.items():
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace(between(text, name), TABLES[name](rows)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
