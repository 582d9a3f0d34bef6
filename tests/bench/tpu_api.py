"""Google's API with more TPU VMs than this machine could run hosts for.

It only lists them. The rest is the emulator.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


class TpuApi:
    def __init__(self, folder: Path, project: str, nodes: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Initialize the API. `nodes` maps a zone to nodes in the form in which Google lists them."""
        from tpubox.google.wire.server import Emulator
        from tpubox.google.wire.settings import EVERY_API, Settings

        self.lists = 0
        self._emulator = Emulator(folder, Settings(projects=(project,), enabled=EVERY_API, arrival_seconds=0.0))
        self._answer = self._emulator.answer
        self._emulator.answer = self._count  # type: ignore[method-assign]
        self._nodes = {zone: json.dumps({"nodes": list(listed)}).encode() for zone, listed in nodes.items()}

    def __enter__(self) -> TpuApi:
        self._emulator.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._emulator.stop()

    @property
    def address(self) -> str:
        return str(self._emulator.address)

    def environment(self) -> dict[str, str]:
        return self._emulator.environment()

    def _count(self, request: Any) -> Any:
        answer = self._answer(request)
        if request.method != "GET" or not request.path.endswith("/nodes"):
            return answer
        self.lists += 1
        return replace(answer, content=self._nodes[request.path.split("/")[-2]])
