"""Inputs of the workers in the fleet's bucket: the streams of a dataset and an archive of code."""

from __future__ import annotations

import gzip
import hashlib
import io
import shutil
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tpukit
from tpukit.core.errors import Invalid
from tpukit.fleet.streams import MANIFEST, Streams
from tpukit.google import objects

UPLOADS = 4
MOST_BYTES = 64 << 20


def upload(folder: Path, made: Streams, address: str) -> None:
    """Upload all streams, verified by checksums, and the manifest last, when they are all there.

    Files that are already uploaded are skipped.
    """
    with ThreadPoolExecutor(UPLOADS) as pool:
        files = [folder / stream.name for stream in made.streams]
        for _ in pool.map(lambda file: _put(file, f"{address}/{file.name}"), files):
            pass
    _put(folder / MANIFEST, f"{address}/{MANIFEST}")


def pack(folder: Path | None) -> tuple[str, bytes]:
    """Pack the folder of the program with the package that runs it; return the archive and its digest.

    The same files give the same archive. Hidden files are left out.
    """
    package = Path(tpukit.__file__).parent
    files = {"tpukit/__init__.py": (package / "__init__.py").read_bytes()}
    files |= {f"tpukit/host/{file.name}": file.read_bytes() for file in (package / "host").glob("*.py")}
    files |= dict(_program(folder)) if folder else {}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in sorted(files.items()):
            about = tarfile.TarInfo(name)
            about.size, about.mode = len(content), 0o644
            archive.addfile(about, io.BytesIO(content))
    return hashlib.sha256(packed.getvalue()).hexdigest(), gzip.compress(packed.getvalue(), mtime=0)


def save(address: str, content: bytes, kind: str) -> None:
    if address.startswith("gs://"):
        objects.upload(address, content, kind)
        return
    Path(address).parent.mkdir(parents=True, exist_ok=True)
    Path(address).write_bytes(content)


def sizes(address: str) -> dict[str, int]:
    """Return the sizes of all files below an address, by name."""
    if address.startswith("gs://"):
        return {name: size for name, (_, size) in objects.listed(f"{address}/").items()}
    root = Path(address)
    return {file.relative_to(root).as_posix(): file.stat().st_size for file in root.rglob("*") if file.is_file()}


def read(address: str) -> bytes:
    return objects.download(address) if address.startswith("gs://") else Path(address).read_bytes()


def _put(file: Path, address: str) -> None:
    if address.startswith("gs://"):
        objects.upload_file(address, file)
    elif Path(address).resolve() != file.resolve():
        Path(address).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, address)


def _program(folder: Path) -> Iterator[tuple[str, bytes]]:
    size = 0
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder)
        if not file.is_file() or any(part.startswith(".") or part == "__pycache__" for part in name.parts):
            continue
        content = file.read_bytes()
        size += len(content)
        if size > MOST_BYTES:
            hint = "move the program into a separate folder, and read large files from the bucket"
            raise Invalid(f"{folder} has more than {MOST_BYTES >> 20} MB of code", hint=hint)
        yield name.as_posix(), content
