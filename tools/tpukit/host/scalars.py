"""TensorBoard scalars in `workdir/tensorboard`: one run, however many attempts it took.

The first step that an attempt writes tells TensorBoard to forget what an earlier attempt wrote from there on, so a
curve never doubles back. A disk that refuses a scalar costs a warning, never the training run.
"""

from __future__ import annotations

import logging
from typing import Any

_log = logging.getLogger(__name__)


class Scalars:
    """Writes nothing, and makes no file, until the first scalar."""

    def __init__(self, folder: str, *, flush_seconds: int = 30) -> None:
        self._folder = folder
        self._flush_seconds = flush_seconds
        self._writer: Any = None

    def write(self, step: int, **values: float) -> None:
        try:
            if self._writer is None:
                from tensorboardX import SummaryWriter

                self._writer = SummaryWriter(self._folder, purge_step=step, flush_secs=self._flush_seconds)
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)
        except OSError as error:
            _log.warning("scalars of step %d are lost, training goes on: %s", step, error)

    def flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
