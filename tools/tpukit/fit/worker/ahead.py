"""Support for `jit(f).lower(...).compile()`: programs that compile their step themselves, and call the result."""

from __future__ import annotations

from typing import Any

import jax
from jax._src import stages

from tpukit.fit.worker.compiling import Compiler


def install(compiler: Compiler) -> None:
    """Make `lower` of a traced function return a step that is compiled for the job's chips and carried when called."""
    plain = stages.Traced.lower

    def lower(self: Any, *args: Any, **kwargs: Any) -> Any:
        return Lowered(compiler, self, lambda: plain(self, *args, **kwargs))

    stages.Traced.lower = lower


class Lowered:
    """Function that is not compiled yet; its text comes from JAX."""

    def __init__(self, compiler: Compiler, traced: Any, plain: Any) -> None:
        self._compiler, self._traced, self._plain = compiler, traced, plain

    def compile(self, *_: Any, **__: Any) -> Compiled:
        return Compiled(self._compiler, self._traced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._traced if name in ("out_tree", "out_info", "args_info") else self._plain(), name)


class Compiled:
    """Compiled function. Calls return arrays without values; figures are those of the compiler."""

    def __init__(self, compiler: Compiler, traced: Any) -> None:
        self._compiler, self._traced = compiler, traced
        self._record, self._places = compiler.ahead(tuple(traced._meta_tys_flat), traced._params)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        flat = jax.tree.leaves((args, kwargs))
        made = self._compiler((*self._traced._consts, *flat), self._traced._params)
        return jax.tree.unflatten(self._traced.out_tree, made)

    @property
    def output_shardings(self) -> Any:
        return jax.tree.unflatten(self._traced.out_tree, self._places)

    @property
    def out_info(self) -> Any:
        return self._traced.out_info

    def memory_analysis(self) -> Any:
        """Return the compiler's totals under the names that JAX gives them."""
        sizes = {f"{name}_size_in_bytes": size for name, size in self._record.get("memory", {}).items()}
        peak = sizes.pop("peak_size_in_bytes", 0)
        return _Stats({**sizes, "peak_memory_in_bytes": peak}) if sizes else None

    def cost_analysis(self) -> dict[str, float]:
        return dict(self._record.get("cost", {}))

    def as_text(self) -> str:
        return ""


class _Stats:
    def __init__(self, sizes: dict[str, int]) -> None:
        self._sizes = sizes

    def __getattr__(self, name: str) -> int:
        return self._sizes.get(name, 0)
