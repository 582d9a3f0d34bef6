"""Transport of the user's code to drivers on other machines, through the job's bucket.

The sender uploads it before it records the job, and a driver that has the snapshot when it submits. A driver without it
downloads it and verifies its digest. Without a bucket, the job waits for a driver on the machine that has the code.
"""

from __future__ import annotations

import io
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tpukit.core import fence
from tpukit.core.errors import LeaseLost, NotFound, TpukitError, Transient
from tpukit.google import objects
from tpukit.jobs import snapshots as stage
from tpukit.jobs.plan import Plan

ARCHIVE = "application/gzip"


@dataclass(frozen=True, slots=True)
class Code:
    shelf: Path
    create: Callable[[str, bytes, str], None] = objects.create
    download: Callable[[str], bytes] = objects.download
    shared: set[str] = field(default_factory=set)  # addresses that this process has uploaded code to

    def share(self, plan: Plan) -> None:
        """Upload the snapshot to the job's bucket. The job runs without that if this driver cannot write there."""
        try:
            self.put(plan)
        except LeaseLost:
            raise
        except TpukitError:
            return

    def put(self, plan: Plan) -> None:
        """Upload the snapshot to the job's bucket, for drivers that do not have it."""
        address = address_of(plan)
        if (
            not address
            or not plan.snapshot
            or address in self.shared
            or not (self.shelf / plan.snapshot.digest).exists()
        ):
            return
        packed = pack(stage.require(self.shelf, plan.snapshot.digest))
        fence.check()
        self.create(address, packed, ARCHIVE)
        self.shared.add(address)

    def require(self, plan: Plan) -> Path:
        """Return the local path of the snapshot, downloaded from the job's bucket if it is missing.

        Raises:
            Transient: It is neither here nor in the bucket. The driver releases the job after a while, so that one that
            has the code can take it.
        """
        assert plan.snapshot
        digest = plan.snapshot.digest
        if not (self.shelf / digest).exists():
            self._fetch(plan, digest)
        return stage.require(self.shelf, digest)

    def _fetch(self, plan: Plan, digest: str) -> None:
        address = address_of(plan)
        missing = f"the code {digest[:12]} of job {plan.id} is not on this machine; waiting for a driver that has it"
        if not address:
            raise Transient(missing, hint="a workdir in a bucket holds the code too: `workdir: gs://...`")
        try:
            packed = self.download(address)
        except NotFound as error:
            raise Transient(f"{missing}: {address} does not exist yet") from error
        try:
            self.shelf.mkdir(parents=True, exist_ok=True, mode=0o700)
            new = Path(tempfile.mkdtemp(prefix=".fetched-", dir=self.shelf))
            try:
                with tarfile.open(fileobj=io.BytesIO(packed), mode="r:*") as archive:
                    archive.extractall(new / digest, filter="tar")
                if not stage.verify(new, digest):
                    raise Transient(f"{address} does not match the digest in its name", hint="delete that object")
                with suppress(OSError):  # another driver of this machine was faster
                    (new / digest).rename(self.shelf / digest)
            finally:
                shutil.rmtree(new, ignore_errors=True)
        except (OSError, tarfile.TarError) as error:
            raise Transient(f"the code of {plan.id} could not be unpacked below {self.shelf}: {error}") from error


def address_of(plan: Plan) -> str:
    """Return the address of the code in the job's bucket; empty if it has none."""
    if not plan.snapshot or not plan.workdir.startswith("gs://"):
        return ""
    return f"{plan.workdir}/.tpukit/code/{plan.snapshot.digest}.tar.gz"


def pack(folder: Path) -> bytes:
    """Pack a snapshot into one archive."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=6) as archive:
        for path in sorted(folder.iterdir()):
            archive.add(path, arcname=path.name)
    return packed.getvalue()
