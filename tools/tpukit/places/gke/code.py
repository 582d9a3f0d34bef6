"""Transport of the user's code to a cluster, packed into ConfigMaps that the hosts unpack.

It needs no image build, bucket or credentials, and only the team can read what its namespace holds.

ConfigMaps are named by the hash of the code, never change and have no owner: all jobs with the same code share them,
and any machine can send a job again whose JobSet is gone. Remove only those that `unused` returns.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import tarfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tpukit.core.errors import Invalid, Problem
from tpukit.jobs import snapshots as stage
from tpukit.jobs.render.jobset import CODE_DIGEST, code_map
from tpukit.jobs.snapshots import Inspection

Doc = Mapping[str, Any]

PART_BYTES = 900 << 10
"""Size of one ConfigMap, which may hold 1 MiB."""
MOST_PARTS = 12
PARTS = "tpukit.dev/code-parts"
"""Annotation of each part: the number of parts."""
PACKED = "tpukit.dev/code-packed"
"""Annotation of each part: the hash of all parts together.

Compressors differ, and parts of two archives do not fit together.
"""
USED = "tpukit.dev/code-used"
"""Annotation: when a job with this code was last sent."""
UPLOAD_SECONDS = 300.0
"""Time without a new part after which an upload counts as aborted."""
LABEL_CHARACTERS = 40
"""Length of a digest in a label, whose value has at most 63."""


def check(folder: Path, own: Sequence[Path] = ()) -> Inspection:
    """Inspect code before anything is sent.

    Raises:
        Invalid: All problems that prevent sending it to a cluster.
    """
    seen = stage.inspect(folder, own)
    problems = list(seen.problems)
    if not problems:
        problems += _too_large(packed_bytes(folder, seen.names))
    if problems:
        raise Invalid(problems)
    return seen


def packed_bytes(folder: Path, names: Iterable[str]) -> int:
    """Return the packed size of these files of `folder`."""
    sink = _Parts(keep=0)
    try:
        _archive(folder, names, sink)
    except OSError as error:
        raise Invalid(f"code: {folder} changed while it was read: {error}", hint="try again") from error
    return sink.size


def pack(folder: Path) -> list[bytes]:
    """Pack a snapshot into parts of one archive. The same content results in the same bytes."""
    sink = _Parts(keep=MOST_PARTS)
    files = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    _archive(folder, [path.relative_to(folder).as_posix() for path in files], sink)
    if problems := _too_large(sink.size):
        raise Invalid(problems)
    return sink.parts


def names(digest: str, count: int) -> list[str]:
    """Return the names of the ConfigMaps that hold `count` parts of this code."""
    return [code_map(digest, number) for number in range(count)]


def selector(digest: str) -> str:
    """Return the label selector of these ConfigMaps."""
    return f"{CODE_DIGEST}={digest[:LABEL_CHARACTERS]}"


def config_maps(namespace: str, digest: str, parts: Sequence[bytes]) -> list[dict[str, Any]]:
    packed = hashlib.sha256(b"".join(parts)).hexdigest()
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {
                    "app.kubernetes.io/managed-by": "tpukit",
                    CODE_DIGEST: digest[:LABEL_CHARACTERS],
                },
                "annotations": {CODE_DIGEST: digest, PARTS: str(len(parts)), PACKED: packed},
            },
            "immutable": True,
            # The shell concatenates them in the order of their names.
            "binaryData": {f"code.{number:02}": base64.b64encode(part).decode()},
        }
        for number, (name, part) in enumerate(zip(names(digest, len(parts)), parts, strict=True))
    ]


def complete(maps: Iterable[Doc], digest: str) -> int | None:
    """Return the number of parts if all of them are in `maps` and fit together, else None. Uses only metadata."""
    mine = {one["metadata"]["name"]: _notes(one) for one in maps if _notes(one).get(CODE_DIGEST) == digest}
    first = mine.get(code_map(digest, 0))
    count = first.get(PARTS, "") if first else ""
    if first is None or not (count.isascii() and count.isdigit()) or not 0 < int(count) <= MOST_PARTS:
        return None
    fit = all(
        name in mine and (mine[name].get(PARTS), mine[name].get(PACKED)) == (count, first.get(PACKED))
        for name in names(digest, int(count))
    )
    return int(count) if fit else None


def in_the_way(maps: Iterable[Doc], documents: Sequence[Doc]) -> dict[str, str]:
    """Return names and uids of parts in `maps` of another archive of this code.

    They are immutable, so they have to be removed first.
    """
    wanted = {one["metadata"]["name"]: _notes(one).get(PACKED) for one in documents}
    there = {one["metadata"]["name"]: one for one in maps}
    return {
        name: str(one["metadata"].get("uid", ""))
        for name, one in sorted(there.items())
        if name in wanted and _notes(one).get(PACKED) != wanted[name]
    }


def is_coming(maps: Iterable[Doc], now: float) -> bool:
    """Return whether a part was uploaded recently, so that more may follow."""
    return any(now - _last_used(one) < UPLOAD_SECONDS for one in maps)


def mark_used(now: float) -> dict[str, Any]:
    """Return a merge patch for the first part that keeps code in use from being removed as old."""
    return {"metadata": {"annotations": {USED: datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}}}


def unused(
    maps: Iterable[Doc], jobsets: Iterable[Doc], now: float, age: float, needed: Collection[str] = ()
) -> list[str]:
    """Return names of ConfigMaps whose code is not needed and was not used for `age` seconds.

    Code is needed by the JobSets that have it and by active jobs (digests in `needed`). `maps` and `jobsets` are those
    of one namespace.
    """
    using = {digest[:LABEL_CHARACTERS] for digest in needed}
    for jobset in jobsets:
        using.add(str(_notes(jobset).get(CODE_DIGEST, ""))[:LABEL_CHARACTERS])
        using.add(str(jobset["metadata"].get("labels", {}).get(CODE_DIGEST, "")))
    groups: dict[str, list[Doc]] = {}
    for one in maps:
        labels = one["metadata"].get("labels", {})
        if labels.get("app.kubernetes.io/managed-by") == "tpukit" and labels.get(CODE_DIGEST):
            groups.setdefault(labels[CODE_DIGEST], []).append(one)
    return sorted(
        one["metadata"]["name"]
        for digest, group in groups.items()
        if digest not in using and now - max(map(_last_used, group)) > age
        for one in group
    )


def _last_used(one: Doc) -> float:
    times = (one["metadata"].get("creationTimestamp"), _notes(one).get(USED))
    return max((_seconds(time) for time in times if time), default=float("inf"))  # unknown: as if used now


def _seconds(time: str) -> float:
    try:
        return datetime.fromisoformat(time).timestamp()
    except ValueError:  # written by another program
        return float("inf")


def _notes(one: Doc) -> Mapping[str, str]:
    notes: Mapping[str, str] = one["metadata"].get("annotations") or {}
    return notes


def _too_large(size: int) -> list[Problem]:
    if size <= MOST_PARTS * PART_BYTES:
        return []
    packed, most = size / (1 << 20), MOST_PARTS * PART_BYTES / (1 << 20)
    what = f"code: packed it has {packed:.1f} MiB, more than the limit of {most:.1f} MiB for a cluster"
    hint = "put data into a bucket or .gitignore, or build the code into the image and leave `code` out"
    return [Problem("", what, hint)]


class _Parts:
    """A writable file that keeps the first `keep` parts of its input, and counts the rest."""

    def __init__(self, keep: int) -> None:
        self.size = 0
        self._keep = keep * PART_BYTES
        self._content = bytearray()

    @property
    def parts(self) -> list[bytes]:
        return [bytes(self._content[first : first + PART_BYTES]) for first in range(0, len(self._content), PART_BYTES)]

    def write(self, data: bytes) -> int:
        self._content += data[: max(0, self._keep - len(self._content))]
        self.size += len(data)
        return len(data)

    def flush(self) -> None: ...


def _archive(folder: Path, files: Iterable[str], sink: _Parts) -> None:
    paths = {Path(name) for name in files}
    entries = paths | {parent for path in paths for parent in path.parents if parent.name}
    with (
        gzip.GzipFile("", "wb", fileobj=sink, mtime=0) as packed,
        # GNU format: other tar readers, BusyBox's above all, misread long and non-ASCII names in the newer one.
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8") as tar,
    ):
        for name in sorted(entries):
            entry = tar.gettarinfo(folder / name, name.as_posix())
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = 0
            entry.mode = 0o755 if entry.isdir() or entry.mode & 0o111 else 0o644
            if entry.issym():
                entry.mode = 0o777
            if entry.isreg():
                with (folder / name).open("rb") as content:
                    tar.addfile(entry, content)
            else:
                tar.addfile(entry)
