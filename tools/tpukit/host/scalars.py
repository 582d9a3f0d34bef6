"""TensorBoard scalars in `workdir/tensorboard`: one run, regardless of the number of attempts.

The first step that an attempt writes makes TensorBoard discard what an earlier attempt wrote from that step on, so a
curve never doubles back. Storage that refuses a scalar causes a warning and never stops the training run:
tensorboardX's own writer hands events to a thread, and once that has died on a full disk the training waits for it
forever. So this module writes directly, in tensorboardX's format.
"""

from __future__ import annotations

import logging
import time
from typing import Any

_log = logging.getLogger(__name__)


class Scalars:
    """A writer that creates no file until the first scalar. What is written is safe after `flush_seconds`."""

    def __init__(self, folder: str, *, flush_seconds: float | None = None) -> None:
        self._folder = folder
        # An object store rewrites the whole file each time.
        self._flush_seconds = flush_seconds or (120.0 if "://" in folder else 30.0)
        self._flushed_at = time.monotonic()
        self._writer: Any = None
        self._warned = False

    def prepare(self) -> None:
        """Load the libraries for writing, which would otherwise delay training by seconds at the first write."""
        import tensorboardX.event_file_writer  # noqa: F401

    def write(self, step: int, **values: float) -> None:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        try:
            if self._writer is None:
                self._writer = _open(self._folder, step)
            summary = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])
            self._writer.write_event(Event(step=step, wall_time=time.time(), summary=summary))
            if time.monotonic() - self._flushed_at >= self._flush_seconds:
                self._flushed_at = time.monotonic()
                self._writer.flush()
        except Exception as error:  # each kind of storage has its own errors  # noqa: BLE001
            self._warn(error)

    def flush(self) -> None:
        if self._writer is not None:
            try:
                self._writer.flush()
            except Exception as error:  # each kind of storage has its own errors  # noqa: BLE001
                self._warn(error)

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                writer.close()
            except Exception as error:  # each kind of storage has its own errors  # noqa: BLE001
                self._warn(error)

    def _warn(self, error: Exception) -> None:
        if isinstance(error, ImportError):
            raise error
        if not self._warned:
            _log.warning("TensorBoard scalars are lost; training continues: %s", error)
        self._warned = True


def _open(folder: str, first_step: int) -> Any:
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event, SessionLog
    from tensorboardX.record_writer import directory_check

    directory_check(folder)
    writer = EventsWriter(f"{folder}/events")
    begin = SessionLog(status=SessionLog.START)
    writer.write_event(Event(step=first_step, wall_time=time.time(), session_log=begin))
    return writer
