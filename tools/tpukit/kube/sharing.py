"""Store equal parts of many objects once: the pods of a JobSet differ in little more than their names."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from tpukit.kube.kinds import Doc

_MOST = 50_000


class Sharing:
    """Sharing of equal parts between objects. Do not modify objects that went through it."""

    def __init__(self) -> None:
        self._parts: dict[Any, Any] = {}

    def __call__(self, thing: Doc) -> Doc:
        """Return the same object with shared parts.

        Two thirds of a slim pod's memory are labels, owners and conditions.
        """
        if len(self._parts) > _MOST:
            self._parts.clear()
        share = self._parts.setdefault
        metadata, status = thing["metadata"], thing.get("status") or {}
        if labels := metadata.get("labels"):
            metadata["labels"] = {share(key, key): share(value, value) for key, value in labels.items()}
        for holder, key in ((metadata, "ownerReferences"), (status, "conditions")):
            if parts := holder.get(key):
                with suppress(TypeError):  # parts that do not fit their type may hold anything
                    holder[key] = [share(tuple(one.items()), one) for one in parts]
        return thing
