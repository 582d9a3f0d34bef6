"""A mark for folders where `terraform init` would change nothing, since `init` takes seconds and is rarely needed."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tpukit.cluster.programs import Command

_DATA = ".terraform"
_MARK = "tpukit-init"
_READ = (".tf", ".tf.json", ".lock.hcl")
_VARIABLES = ("TF_CLI_CONFIG_FILE", "TF_CLI_ARGS", "TF_CLI_ARGS_init", "TF_PLUGIN_CACHE_DIR", "TF_WORKSPACE")


class Initialized:
    """A mark in Terraform's own data folder, with a hash of all that `init` reads. It is deleted with that folder."""

    def __init__(self, folder: Path, program: str, init: Command) -> None:
        self._folder, self._program, self._init = folder, program, init
        self._mark = folder / _DATA / _MARK

    def holds(self) -> bool:
        """Return whether the last successful `init` here read the same files, with the same backend and program."""
        if "TF_DATA_DIR" in os.environ:
            return False
        with suppress(OSError):
            return self._mark.read_text() == self._hash()
        return False

    def note(self) -> None:
        """Write the mark after a successful `init`, which may have written the lock file."""
        with suppress(OSError):  # then the next command runs `init` again
            if self._mark.parent.is_dir():
                self._mark.write_text(self._hash())

    def forget(self) -> None:
        self._mark.unlink(missing_ok=True)

    def _hash(self) -> str:
        found = hashlib.sha256()
        for part in self._parts():
            found.update(len(part).to_bytes(8, "big") + part)
        return found.hexdigest()

    def _parts(self) -> Iterator[bytes]:
        path = shutil.which(self._program) or self._program
        stat = Path(path).stat()
        yield f"{path} {stat.st_size} {stat.st_mtime_ns}".encode()
        yield str(self._init).encode()
        yield from (f"{name}={os.environ.get(name, '')}".encode() for name in _VARIABLES)
        for file in sorted(self._folder.rglob("*")):
            relative = file.relative_to(self._folder)
            if relative.parts[0] != _DATA and file.name.endswith(_READ):
                yield str(relative).encode()
                yield file.read_bytes()
