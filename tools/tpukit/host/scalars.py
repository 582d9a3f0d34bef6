"""TensorBoard scalars in `workdir/tensorboard`: one run, however many attempts it took.

The first step that an attempt writes tells TensorBoard to forget what an earlier attempt wrote from there on, so a
curve never doubles back. Storage that refuses a scalar costs a warning, never the training run: tensorboardX's own
writer hands events to a thread, and once that has died on a full disk the training waits for it for ever. So this
writes by itself, and only the format is tensorboardX's.
"""

from __future__ import annotations

import logging
import time
from typing import Any

_log = logging.getLogger(__name__)


class Scalars:
    """Writes nothing, and makes no file, until the first scalar. What is written is safe after `flush_seconds`."""

    def __init__(self, folder: str, *, flush_seconds: float | None = None) -> None:
        self._folder = folder
        # An object store takes the whole file anew each time.
        self._flush_seconds = flush_seconds or (120.0 if "://" in folder else 30.0)
        self._flushed_at = time.monotonic()
        self._writer: Any = None
        self._warned = False

    def prepare(self) -> None:
        """Load what writing needs. The first write would else do it, in the middle of training, for seconds."""
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
        except Exception as error:  # each kind of storage has errors of its own
            self._warn(error)

    def flush(self) -> None:
        if self._writer is not None:
            try:
                self._writer.flush()
            except Exception as error:
                self._warn(error)

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                writer.close()
            except Exception as error:
                self._warn(error)

    def _warn(self, error: Exception) -> None:
        if isinstance(error, ImportError):
            raise error
        if not self._warned:
            _log.warning("TensorBoard scalars are lost, training goes on: %s", error)
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
