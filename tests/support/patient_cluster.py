"""A cluster client for tests."""

from __future__ import annotations

from typing import Any

from support.waiting import until
from tpukit.core.errors import Conflict, Transient
from tpukit.kube import Cluster


class PatientCluster(Cluster):
    """A cluster client that retries as a driver does.

    Kueue and JobSet restart in some tests, and an API server refuses requests while their webhooks are unavailable.
    """

    def call(self, method: str, path: str, *words: Any, **more: Any) -> dict[str, Any]:
        asked, unanswered = super().call, []

        def answered() -> tuple[dict[str, Any]]:
            try:
                return (asked(method, path, *words, **more),)
            except Transient as error:
                unanswered.append(error)
                raise
            except Conflict:
                if method != "POST" or not unanswered:
                    raise
                return (asked("GET", f"{path}/{more['body']['metadata']['name']}"),)  # the first attempt created it

        return until(answered, f"{method} {path}", every=0.2)[0]

    def list(self, kind: str, *words: Any, **more: Any) -> list[dict[str, Any]]:
        asked = super().list
        return until(lambda: (asked(kind, *words, **more),), f"all of {kind}", every=0.2)[0]
