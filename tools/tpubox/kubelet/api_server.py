"""The part of tpukit.kube.Cluster that the agent uses."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Protocol

from tpukit.kube import Change, Doc


class Api(Protocol):
    def get(self, kind: str, name: str, namespace: str = "") -> Doc: ...

    def list(self, kind: str, namespace: str = "", *, labels: str = "", fields: str = "") -> builtins.list[Doc]: ...

    def create(self, document: Mapping[str, Any], *, part: str = "", name: str = "") -> Doc: ...

    def patch(
        self,
        kind: str,
        name: str,
        change: Mapping[str, Any] | builtins.list[Doc],
        namespace: str = "",
        *,
        part: str = "",
        way: Literal["merge", "strategic-merge", "json"] = "merge",
    ) -> Doc: ...

    def delete(
        self, kind: str, name: str, namespace: str = "", *, grace: int | None = None, foreground: bool = False
    ) -> None: ...

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: object = None,
        content: str = "application/json",
    ) -> Doc: ...

    def watch(self, kind: str, namespace: str = "", *, labels: str = "", fields: str = "") -> Iterator[Change]: ...

    def version(self) -> str: ...
