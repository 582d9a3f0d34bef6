"""Cloud Storage: a page of a bucket's objects, which reads only the entries of the page."""

from __future__ import annotations

from tpubox.google.storage import object_versions
from tpubox.google.storage.bucket_folders import END
from tpubox.google.wire.api import Call
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.state import Doc

_LAST = "\U0010ffff"


def read(cloud: Cloud, call: Call, bucket: str, start: str, most: int) -> tuple[list[Doc | str], str | None]:
    """Return objects and common prefixes from the position `start` on, and the position of the next page."""
    query, every = call.query, call.flag("versions")
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    first, last = query.get("startOffset", ""), query.get("endOffset", "")
    place = start or max(prefix, first)
    names = _Names(cloud, bucket, prefix, place)
    found: list[Doc | str] = []
    while (name := names.at(place)) is not None:
        live = object_versions.live(cloud, bucket, name)  # also records changes of its file
        before, place = place, f"{name}{END}{_LAST}"
        if name < first or (last and name >= last):
            continue
        docs = object_versions.versions(cloud, bucket, name) if every else [live] if live else []
        things: list[tuple[str, Doc | str]] = [(_place(doc), doc) for doc in docs if _place(doc) >= before]
        cut = name.find(delimiter, len(prefix)) if delimiter else -1
        if things and cut >= 0:
            folder = name[: cut + len(delimiter)]
            things = [] if found[-1:] == [folder] else [(f"{name}{END}", folder)]
            place = folder + _LAST  # skips everything in the folder
        for at, thing in things:
            if len(found) == most:
                return found, at
            found.append(thing)
    return found, None


def _place(doc: Doc) -> str:
    return object_versions.key(doc).removeprefix(f"{doc['bucket']}/")


class _Names:
    """Names of known objects, and of files created behind the API's back."""

    def __init__(self, cloud: Cloud, bucket: str, prefix: str, start: str) -> None:
        self._cloud, self._bucket, self._prefix = cloud, bucket, prefix
        self._files = cloud.files.names(bucket, prefix, start)
        self._file = next(self._files, None)

    def at(self, place: str) -> str | None:
        """Return the first name from that position on; positions must not decrease between calls."""
        while self._file is not None and f"{self._file}{END}" < place:
            self._file = next(self._files, None)
        key = self._cloud.state.first("object", f"{self._bucket}/{place}", f"{self._bucket}/{self._prefix}")
        known = key.removeprefix(f"{self._bucket}/").partition(END)[0] if key else None
        found = [name for name in (known, self._file) if name is not None and name.startswith(self._prefix)]
        return min(found, key=lambda name: f"{name}{END}", default=None)
