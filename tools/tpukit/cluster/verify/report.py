"""Results as a table's rows, as JSON and as JUnit XML. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tpukit.cluster.verify import checks
from tpukit.cluster.verify.checks import Result
from tpukit.core import junit
from tpukit.core.junit import Case

_SIZES = ("", "k", "M", "G", "T")


def amount(value: float | None, unit: str) -> str:
    """Return a value as people read it: `4`, `0.31 s`, `64 GiB`, `45.2 GB/s`; `-` for none."""
    if value is None:
        return "-"
    if unit == "bytes":
        return "unlimited" if value >= 1 << 62 else _scaled(value, 1024, "iB")
    if unit == "bytes/s":
        return _scaled(value, 1000, "B/s")
    return f"{value:.3g} {unit}".rstrip()


def words(result: Result) -> str:
    """Return why the verdict is what it is, and what to do."""
    if result.state == "passed":
        return ""
    return f"{result.text}; {result.advice}" if result.advice else result.text


def to_json(cluster: str, at: float, results: Sequence[Result], changes: Sequence[str]) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "at": at,
        "passed": passed(results),
        "results": [one.to_json() for one in results],
        "changes": list(changes),
    }


def passed(results: Sequence[Result]) -> bool:
    """Return whether no check failed, and each target has at least one verdict."""
    return bool(results) and not checks.failed(results) and not checks.blind(results)


def to_junit(cluster: str, results: Sequence[Result], seconds: float) -> str:
    return junit.render(f"tpu cluster verify {cluster}", [_case(one) for one in results], seconds)


def _case(result: Result) -> Case:
    name = f"{result.target} {result.check}"
    if result.state == "failed":
        limit = amount(result.limit, result.unit)
        return Case(name, failure=("failed", f"{amount(result.value, result.unit)}, limit {limit}: {words(result)}"))
    return Case(name, skipped=result.text if result.state == "not seen" else "")


def _scaled(value: float, step: int, unit: str) -> str:
    for size in _SIZES:
        if value < step or size == _SIZES[-1]:
            return f"{value:.3g} {size}{unit if size or step == 1000 else 'B'}"
        value /= step
    raise AssertionError
