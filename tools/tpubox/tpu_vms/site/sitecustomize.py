"""Let JAX find the chips of a simulated TPU VM, as the PCI bus would on a real one.

Without a Google chip on the bus JAX does not query the metadata server for its peers:
https://github.com/jax-ml/jax/blob/main/jax/_src/hardware_utils.py
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_MODULE = "jax._src.hardware_utils"
_HERE = str(Path(__file__).resolve().parent)


class _Finder(importlib.abc.MetaPathFinder):
    """A finder that locates JAX's module as usual, and replaces one function once it is loaded."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        chips = int(os.environ.get("TPUKIT_SIMULATED_CHIPS", "4"))
        versions = module.__dict__.get("TpuVersion")
        version = getattr(versions, os.environ.get("TPUKIT_SIMULATED_TPU", "v4"), None)
        module.__dict__["num_available_tpu_chips_and_device_id"] = lambda: (chips, version)


sys.meta_path.insert(0, _Finder())


def _load_next() -> None:
    """Run the user's own sitecustomize too: Python runs only the first one on its path."""
    rest = [folder for folder in sys.path if str(Path(folder or ".").resolve()) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


_load_next()
