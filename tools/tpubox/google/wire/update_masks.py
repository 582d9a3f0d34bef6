"""Checks of update masks: unknown fields and immutable fields.

https://google.aip.dev/134 requires INVALID_ARGUMENT; the error texts are guesses.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tpubox.google.wire.api import Call, camel
from tpubox.google.wire.schemas import fields_of_messages
from tpubox.google.wire.sources import EMULATOR, GUESS
from tpubox.google.wire.state import Doc

_IN_THE_BODY = {"PatchServiceAccountRequest": "ServiceAccount"}
"""Requests with the mask in their body, and the message that it applies to."""


def check(api: str, message: str, call: Call) -> None:
    of = _IN_THE_BODY.get(message)
    sent = call.body.get("updateMask", "") if of else call.query.get("updateMask", "")
    for field in filter(None, map(str.strip, sent.split(","))):
        if field == "*":
            raise EMULATOR.refused(501, "The emulator cannot replace all fields at once.")
        if not _has(fields_of_messages()[api], f"${of or message}", camel(field).split(".")):
            raise GUESS.invalid(f"Invalid update_mask: {of or message} has no field {field!r}.")


def changed(call: Call, old: Doc, *, fixed: Collection[str], output: Collection[str]) -> list[str]:
    """Return the changed fields. Output fields are ignored, and immutable ones may be sent unchanged.

    https://google.aip.dev/203
    """
    fields = [field for field in call.mask() if field.partition(".")[0] not in output]
    if touched := [one for one in fields if one in fixed and call.body.get(one) != old.get(one)]:
        raise GUESS.invalid(f"Invalid update_mask: {', '.join(touched)} cannot be changed.")
    return fields


def _has(messages: dict[str, dict[str, Any]], kind: Any, names: list[str]) -> bool:
    if not names or kind == "any" or (isinstance(kind, dict) and "*" in kind):
        return True
    fields = messages[kind[1:]] if isinstance(kind, str) and kind.startswith("$") else {}
    return names[0] in fields and _has(messages, fields[names[0]], names[1:])
