"""The user's code on its way to a cluster: packed, and carried by ConfigMaps that the hosts unpack. No image is built,
no bucket and no credentials are needed, and what a team's namespace holds is for the team alone.
"""

from __future__ import annotations

import base64
import gzip
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tpukit.errors import Invalid
from tpukit.plan import Plan
from tpukit.render.jobset import code_map

PART_BYTES = 900 << 10
"""Of one ConfigMap, which may hold 1 MiB."""
MOST_PARTS = 12


def pack(folder: Path) -> list[bytes]:
    """A snapshot as parts of one archive. The same content makes the same bytes."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path in sorted(folder.rglob("*")):
            entry = tar.gettarinfo(path, path.relative_to(folder).as_posix())
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = 0
            if entry.isreg():
                with path.open("rb") as content:
                    tar.addfile(entry, content)
            else:
                tar.addfile(entry)
    packed = gzip.compress(archive.getvalue(), mtime=0)
    parts = [packed[first : first + PART_BYTES] for first in range(0, len(packed), PART_BYTES)]
    if len(parts) > MOST_PARTS:
        most = MOST_PARTS * PART_BYTES >> 20
        raise Invalid(
            f"code: packed it has {len(packed) >> 20} MiB, more than the {most} MiB that a cluster is sent",
            hint="put data into a bucket or .gitignore, or build the code into the image and leave `code` out",
        )
    return parts


def config_maps(plan: Plan, parts: list[bytes], owner: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """`owner` is the JobSet, once there is one: they go away with it."""
    owners = {}
    if owner:
        reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
        owners = {"ownerReferences": [reference | {key: owner["metadata"][key] for key in ("name", "uid")}]}
    for number, part in enumerate(parts):
        yield {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": code_map(plan.id, number),
                "namespace": plan.team,
                "labels": {"app.kubernetes.io/managed-by": "tpukit", "tpukit.dev/job": plan.id},
                **owners,
            },
            # The shell puts them together in the order of their names.
            "binaryData": {f"code.{number:02}": base64.b64encode(part).decode()},
        }
