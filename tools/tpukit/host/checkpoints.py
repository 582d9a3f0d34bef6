"""Checkpoints in `workdir/checkpoints`: the state and data position of one step, saved together or not at all.

Saving happens in the background; a step counts as saved only when every host has written its part. A step that was
being written when a host died does not exist afterwards. Saved states have a checksum: a state that does not match it
is treated as unreadable.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tpukit.host.checksum import checksum

if TYPE_CHECKING:
    from tpukit.host.runtime import Host


_log = logging.getLogger(__name__)


class DataIterator(Protocol):
    """An iterator that can return and restore its position, such as a Grain iterator. The state must be JSON."""

    def get_state(self) -> Any: ...
    def set_state(self, state: Any) -> None: ...


class Checkpoints:
    """Save every `every` steps (0: only on termination) and keep the newest `keep`."""

    def __init__(self, host: Host, *, every: int, keep: int = 2) -> None:
        import orbax.checkpoint as ocp

        self._host = host
        self._every = every
        workdir = host.world.workdir
        if "://" not in workdir:
            workdir = str(Path(workdir).resolve())  # Orbax refuses a relative path
        self._manager = ocp.CheckpointManager(
            f"{workdir}/checkpoints",
            options=ocp.CheckpointManagerOptions(
                preservation_policy=ocp.checkpoint_managers.LatestN(keep),
                # Removes what a killed host left half-written.
                cleanup_tmp_directories=True,
            ),
            item_handlers={
                "state": ocp.StandardCheckpointHandler(),
                "data": ocp.JsonCheckpointHandler(),
                "checksum": ocp.JsonCheckpointHandler(),
            },
        )
        self._requested: int | None = self._manager.latest_step()
        self._saved: int | None = self._requested

    @property
    def saved(self) -> int | None:
        """The newest step that is completely written. Raises the error of a failed write."""
        if self._requested != self._saved and not self._manager.is_saving_in_progress():
            self._manager.wait_until_finished()
            self._saved = self._requested
        return self._saved

    def restore_latest(self, abstract_state: Any, data: DataIterator) -> tuple[Any, int] | None:
        """Restore the newest state that all hosts can read, and return it with its step.

        The state is placed as `abstract_state` says; `data` moves to its position at that step. A checkpoint that
        cannot be read is kept until its step is saved again, because the fault may be temporary. Return None if nothing
        has been saved: the caller then starts from the beginning. Raise if no saved checkpoint can be read.
        """
        with self._host.pulse.doing("restoring"):
            return self._restore_latest(abstract_state, data)

    def _restore_latest(self, abstract_state: Any, data: DataIterator) -> tuple[Any, int] | None:
        first_error: Exception | None = None
        for step in sorted(self._manager.all_steps(), reverse=True):
            state, position, sums, error = self._read(step, abstract_state)
            right = self._all_hosts(error is None)
            if right and sums and checksum(state) != sums:
                right, error = False, ValueError("its arrays differ from those that were saved")
            if right:
                data.set_state(position)
                self._requested = self._saved = step
                return state, step
            first_error = first_error or error or RuntimeError(f"another host could not read step {step}")
            _log.warning("the checkpoint of step %d cannot be read; trying an older one: %s", step, _brief(error))
        if first_error is not None:
            raise first_error
        return None

    def _read(self, step: int, abstract_state: Any) -> tuple[Any, Any, list[int], Exception | None]:
        """Read this host's part of a checkpoint without waiting for the others.

        A host that cannot read its part would otherwise leave them waiting.
        """
        import orbax.checkpoint as ocp

        folder = self._manager.directory / str(step)
        try:
            state = ocp.StandardCheckpointHandler().restore(
                folder / "state", args=ocp.args.StandardRestore(abstract_state)
            )
            json = ocp.JsonCheckpointHandler()
            sums = json.restore(folder / "checksum")["sums"] if (folder / "checksum").exists() else []
            return state, json.restore(folder / "data"), sums, None
        except Exception as error:  # TensorStore, JSON and protobuf raise many kinds of errors for a damaged file  # noqa: BLE001
            return None, None, [], error

    def _all_hosts(self, right: bool) -> bool:
        if self._host.world.hosts == 1:
            return right
        import numpy as np
        from jax.experimental import multihost_utils

        return bool(multihost_utils.process_allgather(np.array(right)).all())

    def due(self, step: int, *, final: bool = False) -> bool:
        """Return whether to save `step`, the same on every host. The final step is saved, unless saving is off."""
        return self._every > 0 and (final or step % self._every == 0)

    def save(self, step: int, state: Any, data: DataIterator) -> None:
        """Start saving `step`. Returns when `state` may be overwritten, long before the checkpoint is complete."""
        if step == self._requested:
            return
        with self._host.pulse.doing("saving"):
            self._save(step, state, data)
        # The manager has waited for the save before this one. `saved` never finds it idle if each save follows at once.
        self._saved, self._requested = self._requested, step
        self._host.flush()

    def _save(self, step: int, state: Any, data: DataIterator) -> None:
        import orbax.checkpoint as ocp

        if step in self._manager.all_steps():  # it could not be read on resume
            self._manager.delete(step)
        self._manager.save(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(state),
                data=ocp.args.JsonSave(data.get_state()),
                checksum=ocp.args.JsonSave({"sums": checksum(state)}),
            ),
            force=True,  # due() and Host.leaving() have already decided
        )

    def close(self) -> None:
        """Wait until everything is written, and report it."""
        with self._host.pulse.doing("saving"):
            self._manager.close()
        self._saved = self._requested
        self._host.report(saved=self._saved)
        self._host.flush()


def _brief(error: Exception | None) -> str:
    """Shorten an error: messages of TensorStore can fill pages."""
    return f"{type(error).__name__}: {str(error)[:200]}" if error else "reported by another host"
