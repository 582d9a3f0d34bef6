"""Cloud Storage: the object fields that callers may set. All others are ignored."""

from __future__ import annotations

import json
import re

from tpubox.google.storage import classes as storage_classes
from tpubox.google.wire import schemas
from tpubox.google.wire.api import Call, merged
from tpubox.google.wire.sources import GUESS
from tpubox.google.wire.state import Doc

_REPLACED = ("cacheControl", "contentDisposition", "contentEncoding", "contentLanguage", "contentType", "metadata")
DESCRIBED = (*_REPLACED, "customTime", "storageClass")
_HOLDS = ("eventBasedHold", "temporaryHold")
_CHANGED = (*_REPLACED, "customTime", "acl", "contexts", "retention", *_HOLDS)
_MADE = (*DESCRIBED, "acl", "contexts", "retention", *_HOLDS, "kmsKeyName", "md5Hash", "crc32c", "name")


def parsed(content: bytes) -> Doc:
    """Parse the object's description that is sent with its content."""
    try:
        found = json.loads(content or b"{}")
    except ValueError as error:
        raise GUESS.refused(400, "Parse Error", reason="parseError") from error
    if not isinstance(found, dict):
        raise GUESS.refused(400, "Parse Error", reason="parseError")
    return found


def uploaded(call: Call, about: Doc) -> Doc:
    """Return the description in an upload's body and query."""
    known = schemas.check("storage", "Object", about, own_front=True)
    if encoding := call.query.get("contentEncoding"):
        known["contentEncoding"] = encoding
    return made(known, call.query.get("name") or known.get("name") or "")


def made(about: Doc, name: str) -> Doc:
    """Return a new object's description with only the fields that callers may set."""
    check_name(name)
    kept: Doc = {key: value for key, value in about.items() if key in _MADE and value is not None}
    if "storageClass" in kept:
        kept["storageClass"] = storage_classes.checked(kept["storageClass"])
    return {**kept, "name": name}


def copied(source: Doc, about: Doc) -> Doc:
    """Return the description of a copy: the request's, if it has one, otherwise the source's.

    https://cloud.google.com/storage/docs/json_api/v1/objects/rewrite
    """
    described = {key: value for key, value in about.items() if key in (*DESCRIBED, *_HOLDS)}
    if described:
        return described
    # The bucket sets the storage class of a copy.
    return {key: source[key] for key in DESCRIBED if key in source and key != "storageClass"}


def changed(old: Doc, body: Doc, *, whole: bool) -> Doc:
    """Return the changed object; with `whole`, fields missing in the body are removed.

    The storage class changes only by a rewrite.
    """
    sent = {key: value for key, value in body.items() if key in _CHANGED}
    if whole:
        return {**{key: value for key, value in old.items() if key not in _REPLACED}, **sent}
    return merged(old, sent)


def check_name(name: str) -> None:
    """Refuse an invalid object name.

    https://cloud.google.com/storage/docs/objects#naming
    """
    if not name:
        raise GUESS.refused(400, "Required", reason="required")
    wrong = name in (".", "..") or name.startswith(".well-known/acme-challenge/") or re.search(r"[\r\n]", name)
    if wrong or len(name.encode()) > 1024:
        raise GUESS.invalid("The specified object name is not valid.")
