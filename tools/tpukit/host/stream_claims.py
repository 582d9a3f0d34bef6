"""Claims of workers on streams: a small file for each, in the folder of the output.

A claim only saves work: each shard is created once regardless of its maker, so two workers on one stream do no harm. A
claim expires when it was not renewed for a while, measured on the clock of the worker that wants it, because clocks of
machines differ.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tpukit.host.bucket import Files

SECONDS = 60.0
"""Seconds after which a claim that is not renewed is free."""


class Claims:
    """The claims of one worker, which holds one stream at a time."""

    def __init__(
        self, files: Files, worker: str, *, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._files, self._worker, self._seconds, self._clock = files, worker, seconds, clock
        self._seen: dict[str, tuple[str, float]] = {}  # other workers' claims: mark, and when it was first seen
        self._name, self._mark, self._beat = "", "", 0

    def take(self, stream: str) -> bool:
        """Claim a stream; return False if another worker has it.

        A claim of this worker is taken over: an earlier process left it.
        """
        name = f"claims/{stream}.json"
        there = self._files.read(name)
        if there is not None:
            claim, mark = _read(there[0]), there[1]
            if claim["worker"] not in ("", self._worker) and not self._lapsed(name, mark, claim["seconds"]):
                return False
        mark = self._write(name, there[1] if there else "")
        if mark:
            self._name, self._mark = name, mark
        return bool(mark)

    def renew(self) -> bool:
        """Renew the claim, and return whether this worker still holds it."""
        name = self._name
        if name:
            self._mark = self._write(name, self._mark)
        return bool(self._mark)

    def release(self) -> None:
        """Release the claim, so that other workers need not wait for it to expire."""
        name, self._name = self._name, ""
        if name and self._mark:
            with suppress(OSError):
                self._write(name, self._mark, free=True)
        self._mark = ""

    def _lapsed(self, name: str, mark: str, seconds: float) -> bool:
        if self._seen.get(name, ("", 0.0))[0] != mark:
            self._seen[name] = mark, self._clock()
            return False
        return self._clock() - self._seen[name][1] > seconds

    def _write(self, name: str, mark: str, *, free: bool = False) -> str:
        """Write the claim, with its holder as metadata: one list request shows a driver which workers are alive."""
        self._beat += 1
        worker = "" if free else self._worker
        content = json.dumps({"worker": worker, "beat": self._beat, "seconds": self._seconds}).encode()
        return self._files.replace(name, content, mark, {"worker": worker, "beat": str(self._beat)}) or ""


def _read(content: bytes) -> dict[str, Any]:
    """Parse a claim. An unreadable one counts as that of an unknown worker and expires like any other."""
    try:
        claim = json.loads(content)
        return {"worker": str(claim["worker"]), "seconds": float(claim["seconds"])}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {"worker": "unknown", "seconds": SECONDS}


class Renewing:
    """Renew a claim in the background while the work progresses.

    `stuck` is called after `patience` seconds without progress; `lost` is set when another worker has the stream.
    """

    def __init__(self, claims: Claims, every: float, patience: float, stuck: Callable[[], None]) -> None:
        self._claims, self._every, self._patience, self._stuck = claims, every, patience, stuck
        self._moved = time.monotonic()
        self._over = threading.Event()
        self.lost = threading.Event()
        self._thread = threading.Thread(target=self._run, name="claim", daemon=True)

    def __enter__(self) -> Renewing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def moved(self) -> None:
        self._moved = time.monotonic()

    def _run(self) -> None:
        while not self._over.wait(self._every):
            if time.monotonic() - self._moved > self._patience:
                self._stuck()
                return
            try:
                if not self._claims.renew():
                    self.lost.set()
                    return
            except OSError:
                continue  # the bucket is unreachable: writing shards fails too, and reports it
