"""Checkpoints in `workdir/checkpoints`: state and data position of one step, saved together or not at all.

Saving happens in the background; a step counts as saved only when every host has written its part. A step that was
being written when a host died is not there afterwards.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tpukit.host.runtime import Host


class DataIterator(Protocol):
    """What knows and can be told its position in the data; a Grain iterator is one. The state must be JSON."""

    def get_state(self) -> Any: ...
    def set_state(self, state: Any) -> None: ...


class Checkpoints:
    """Save every `every` steps (0: only when told to leave) and keep the newest `keep`."""

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
                # What a killed host left half-written.
                cleanup_tmp_directories=True,
            ),
            item_handlers={"state": ocp.StandardCheckpointHandler(), "data": ocp.JsonCheckpointHandler()},
        )
        self._requested: int | None = self._manager.latest_step()
        self._saved: int | None = self._requested

    @property
    def saved(self) -> int | None:
        """The newest step that is wholly written. Raises what went wrong when writing one failed."""
        if self._requested != self._saved and not self._manager.is_saving_in_progress():
            self._manager.wait_until_finished()
            self._saved = self._requested
        return self._saved

    def restore_latest(self, abstract_state: Any, data: DataIterator) -> tuple[Any, int] | None:
        """The newest state, placed as `abstract_state` says, and its step; `data` moves to where it was then.

        None where nothing has been saved: the beginning is the caller's to make.
        """
        import orbax.checkpoint as ocp

        step = self._manager.latest_step()
        if step is None:
            return None
        items = self._manager.restore(
            step, args=ocp.args.Composite(state=ocp.args.StandardRestore(abstract_state), data=ocp.args.JsonRestore())
        )
        data.set_state(items.data)
        return items.state, step

    def due(self, step: int, *, final: bool = False) -> bool:
        """True on every host alike when `step` is to be saved; the final one is, unless none are."""
        return self._every > 0 and (final or step % self._every == 0)

    def save(self, step: int, state: Any, data: DataIterator) -> None:
        """Start saving `step`. Returns when `state` may be overwritten, long before it is all written."""
        import orbax.checkpoint as ocp

        if step == self._requested:
            return
        self._manager.save(
            step,
            args=ocp.args.Composite(state=ocp.args.StandardSave(state), data=ocp.args.JsonSave(data.get_state())),
            force=True,  # whether it is time was decided by due() and Host.leaving()
        )
        self._requested = step
        self._host.flush()

    def close(self) -> None:
        """Wait until everything is written, and say so."""
        self._manager.close()
        self._saved = self._requested
        self._host.report(saved=self._saved)
        self._host.flush()
