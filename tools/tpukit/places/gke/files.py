"""The folder of an attempt on this machine: a folder for each host, with its log, its progress and how it ended."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpukit.places import progress
from tpukit.places.base import Handle, HostView
from tpukit.places.gke import keeper
from tpukit.places.gke.ends import Kept
from tpukit.places.gke.look import Doc, Found
from tpukit.plan import Plan


@dataclass(frozen=True, slots=True)
class Files:
    """Of one attempt."""

    plan: Plan
    folder: Path

    @staticmethod
    def of(root: Path, handle: Handle, number: int | None = None) -> Files:
        attempt = handle.attempt.number if number is None else number
        return Files(handle.plan, root / "runs" / handle.plan.id / f"attempt-{attempt}")

    def host(self, name: str) -> Path:
        return self.folder / name

    def hosts(self, *, over: bool = False) -> tuple[HostView, ...]:
        """As they were last seen; those of an attempt that is over do not run, whatever was last seen of them."""
        per_slice = self.plan.slice.hosts
        return tuple(_view(self.host(name), index, per_slice, over) for index, name in enumerate(self.plan.host_names))

    def kept(self) -> dict[str, Kept | None]:
        return {name: keeper.recall(self.host(name)) for name in self.plan.host_names}

    def tails(self) -> dict[str, list[str]]:
        return {name: keeper.tail(self.host(name)) for name in self.plan.host_names}

    def knows(self, pod: Doc) -> bool:
        kept = keeper.recall(self.host(pod_host(pod)))
        return kept is not None and kept.uid == pod["metadata"]["uid"]

    def begin(self, found: Found) -> None:
        """The counts when an attempt began tell later what ended it; JobSet says by which rule it began one."""
        restarting = found.condition("RestartingJobSet")
        rule = str(restarting["reason"]).removeprefix("FailurePolicy_") if restarting else ""

        def change(note: dict[str, Any]) -> None:
            note.setdefault("restarts", found.restarts)
            note.setdefault("evictions", found.evictions)
            note.setdefault("counted", found.counted)
            if rule:
                note.setdefault("rule", rule)

        keeper.note(self.folder / "attempt", change)

    def begun(self) -> Mapping[str, Any]:
        return keeper.note(self.folder / "attempt", lambda note: None)


def pod_host(pod: Doc) -> str:
    """The host's name: that of its pod without the part that makes it unique."""
    return str(pod["metadata"]["name"].rpartition("-")[0])


def has_sent(root: Path) -> bool:
    """Whether this store ever sent a job to a cluster: if not, no cluster has to be asked about it."""
    return (root / "sender").exists()


def sender(root: Path) -> str:
    """What tells JobSets of this store from those of all others."""
    file = root / "sender"
    if not has_sent(root):
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = root / f"sender.{secrets.token_hex(4)}"
        new.write_text(secrets.token_hex(8), encoding="ascii")
        with suppress(FileExistsError):  # another process was faster
            file.hardlink_to(new)
        new.unlink()
    return file.read_text(encoding="ascii")


_SHOWN = {"Pending": "waiting", "Running": "running", "Succeeded": "ended", "Failed": "ended"}


def _view(folder: Path, index: int, per_slice: int, over: bool) -> HostView:
    kept, said = keeper.recall(folder), progress.read(folder / "progress", time.time())
    return HostView(
        folder.name,
        slice=index // per_slice,
        index=index % per_slice,
        state="ended" if over else _SHOWN.get(kept.phase, "lost") if kept else "waiting",
        node=kept.node if kept else "",
        code=kept.code if kept else None,
        step=said.step,
        loss=said.loss,
        steps_per_s=said.steps_per_s,
        saved=said.saved,
        moved=said.moved,
    )
