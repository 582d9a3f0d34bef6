"""A working copy of the Terraform files for each cluster: read-only installs work, and clusters stay separate."""

from __future__ import annotations

import fcntl
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tpukit.cluster.spec import ClusterSpec
from tpukit.core import paths
from tpukit.core.errors import Conflict, NotFound

_LOCK_FILE = ".terraform.lock.hcl"  # the provider versions: Terraform writes it, and the copy may be newer than ours
_OURS = (".tf", ".json")
_SKIPPED = ("tests", ".terraform")
_BACKEND = "backend.tf"


@dataclass(frozen=True, slots=True)
class Workspace:
    source: Path
    folder: Path
    backend: bool  # whether the state is where backend.tf says; without that file it is in the folder

    @classmethod
    def of(cls, spec: ClusterSpec, source: Path, state: str) -> Workspace:
        project = spec.project_id.replace(":", "_")
        return cls(source, paths.data() / "clusters" / project / spec.cluster_name / state, backend=state == "gcs")

    def lines(self) -> list[str]:
        """Return the equivalent shell commands, for a dry run."""
        folder, backend = shlex.quote(str(self.folder)), shlex.quote(str(self.folder / _BACKEND))
        lines = [f"mkdir -p {folder}", f"cp -R {shlex.quote(str(self.source))}/. {folder}"]
        return lines if self.backend else [*lines, f"rm -f {backend}"]

    def prepare(self) -> None:
        """Update the copy to match the source. Terraform's own files in it are kept."""
        wanted = {path.relative_to(self.source): path for path in self._files()}
        if not any(path.suffix == ".tf" for path in wanted):
            raise NotFound(f"there are no Terraform files in {self.source}", hint="pass their folder with --modules")
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for old in self.folder.rglob("*.tf"):
            relative = old.relative_to(self.folder)
            if relative not in wanted and relative.parts[0] not in _SKIPPED:
                old.unlink()
        for relative, path in wanted.items():
            target = self.folder / relative
            if not target.exists() or target.read_bytes() != path.read_bytes():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
        lock = self.source / _LOCK_FILE
        if lock.exists() and not (self.folder / _LOCK_FILE).exists():
            shutil.copyfile(lock, self.folder / _LOCK_FILE)

    def _files(self) -> Iterator[Path]:
        for path in sorted(self.source.rglob("*")):
            relative = path.relative_to(self.source)
            skipped = relative.parts[0] in _SKIPPED or ".terraform" in relative.parts
            if path.is_file() and path.suffix in _OURS and not skipped and (self.backend or str(relative) != _BACKEND):
                yield path

    @contextmanager
    def alone(self, wait: Callable[[], None] | None = None) -> Iterator[int]:
        """Lock this copy, so that the plan that was shown is the plan that is applied.

        Yield the file that holds the lock. A Terraform that inherits it keeps the lock until it ends, even if the `tpu`
        that started it is killed. With `wait`, which is called between tries, wait for the current holder.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.folder / ".tpukit.lock").open("w") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if wait is None:
                        hint = "wait until that command has ended; `tpu cluster up` waits by itself"
                        message = (
                            "another `tpu cluster`, or its Terraform, is working on this cluster from this machine"
                        )
                        raise Conflict(message, hint=hint) from None
                wait()
            yield file.fileno()
