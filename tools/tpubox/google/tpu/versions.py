"""Cloud TPU API v2 and its alpha v2alpha1: the same TPU VMs and queued resources, with more fields in alpha.

Documents hold the fields of both versions, under the names of v2; a response holds those of its version.
https://cloud.google.com/tpu/docs/reference/rest/v2alpha1/projects.locations.queuedResources
"""

from __future__ import annotations

from typing import Any

from tpubox.google.wire.api import Call, public
from tpubox.google.wire.schemas import fields_of_messages
from tpubox.google.wire.sources import GUESS
from tpubox.google.wire.state import Doc

V2 = "v2"
ALPHA = "v2alpha1"
SCHEMAS = {V2: "tpu", ALPHA: "tpu/v2alpha1"}
_SEVERAL = {V2: "multisliceParams", ALPHA: "multiNodeParams"}


def of(call: Call) -> str:
    return ALPHA if f"/{ALPHA}/" in f"/{call.request.path}" else V2


def need_alpha(call: Call) -> None:
    """Refuse a call of v2, for methods that only alpha has."""
    if of(call) != ALPHA:
        raise GUESS.not_found(f"The requested URL /{call.request.path} was not found on this server.")


def sent(call: Call) -> Doc:
    """Return the body under the names of v2, with a private mark if alpha sent it."""
    if of(call) == V2:
        return call.body
    return {**_with_names_of(V2, call.body), "_alpha": True}


def shown(message: str, doc: Doc, version: str) -> Doc:
    """Return a document as a version of the API shows it."""
    told = public(doc)
    if version == V2 and not doc.get("_alpha"):
        return told  # without fields of alpha
    told = _with_names_of(version, told)
    if version == ALPHA and told.get("apiVersion") == "V2":
        told["apiVersion"] = "V2_ALPHA1"  # a guess: alpha has no name for what v2 created
    only: Doc = _only(fields_of_messages()[SCHEMAS[version]], f"${message}", told)
    return only


def _with_names_of(version: str, doc: Doc) -> Doc:
    """Return the document with the version's names; only one field, in a queued resource, has two names."""
    specs = (doc.get("tpu") or {}).get("nodeSpec")
    if not specs:
        return dict(doc)
    names = dict.fromkeys(_SEVERAL.values(), _SEVERAL[version])
    renamed = [{names.get(name, name): value for name, value in spec.items()} for spec in specs]
    return {**doc, "tpu": {**doc["tpu"], "nodeSpec": renamed}}


def _only(messages: dict[str, dict[str, Any]], kind: Any, value: Any) -> Any:
    if isinstance(kind, list) and isinstance(value, list):
        return [_only(messages, kind[0], one) for one in value]
    if isinstance(kind, str) and kind.startswith("$") and isinstance(value, dict):
        fields = messages[kind[1:]]
        return {name: _only(messages, fields[name], inner) for name, inner in value.items() if name in fields}
    return value
