"""Results that are too large for a document: in a folder of this machine, or in a bucket."""

from __future__ import annotations

from collections.abc import Container
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tpukit.code_queue.decide import Outcome
from tpukit.code_queue.records import QueuedJob
from tpukit.core.errors import Conflict, NotFound

INLINE = 256 * 1024
"""Bytes of a result in its document: with the code and the logs it stays below Firestore's mebibyte."""
FIRST = 2_000
KEPT_SECONDS = 86_400.0


class Results:
    def __init__(self, address: str) -> None:
        """Initialize with an address: a folder, or gs://BUCKET/PREFIX."""
        self._address = address.rstrip("/")

    def shorten(self, key: str, job: QueuedJob, outcome: Outcome) -> Outcome:
        """Return an outcome that fits into the document; unchanged if it already does."""
        text = outcome.result
        room = INLINE if len(job.code) < 400_000 else 16 * 1024
        if text is None or len(text.encode("utf-8", "replace")) <= room:
            return outcome
        # Named by the attempt, so that a lost attempt overwrites nothing.
        uri = self._write(f"{key}/{job.attempts}.txt", text.encode("utf-8", "replace"))
        return replace(outcome, result=text[:FIRST], result_uri=uri)

    def read(self, key: str, job: QueuedJob) -> str:
        """Return the whole result.

        Only the address that a worker of this queue wrote is read: the author of a document could name any file in it.
        """
        if not job.result_uri:
            return str(job.result)
        name = f"{key}/{job.attempts}.txt"
        address = f"{self._address}/{name}"
        if job.result_uri != address or Path(name).parts != (key, f"{job.attempts}.txt") or key == "..":
            raise Conflict(f"the result of {key} is in {job.result_uri}, which this client cannot read")
        if address.startswith("gs://"):
            from tpukit.google.objects import download

            return download(address).decode("utf-8", "replace")
        try:
            return Path(address).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError as error:
            raise NotFound(f"the result of {key} is not in {address}") from error

    def prune(self, keys: Container[str], now: float) -> int:
        """Remove results of jobs that are not among `keys`, and return how many. Results in a bucket stay.

        Recent results stay: their job may have been submitted after `keys` was read.
        """
        if self._address.startswith("gs://"):
            return 0
        count = 0
        folder = Path(self._address)
        for one in sorted(folder.iterdir()) if folder.is_dir() else ():
            if one.name in keys or one.is_symlink() or not one.is_dir() or now - one.stat().st_mtime < KEPT_SECONDS:
                continue
            with suppress(OSError):  # another process was faster, or it is not ours
                for file in one.iterdir():
                    file.unlink()
                one.rmdir()
                count += 1
        return count

    def _write(self, name: str, data: bytes) -> str:
        address = f"{self._address}/{name}"
        if address.startswith("gs://"):
            from tpukit.google.objects import create

            create(address, data)
            return address
        path = Path(address)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_bytes(data)
        return str(path)
