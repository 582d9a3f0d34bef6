"""Files that many machines share: a Cloud Storage bucket or a folder. Standard library only, for bare TPU VMs.

Both give the guarantees that resuming depends on: a file appears with all its content or not at all, exactly one of two
concurrent creations succeeds, and a file that another process has replaced since it was read is not replaced. Transient
errors (429, 5xx, lost connections) are retried here. https://cloud.google.com/storage/docs/request-preconditions
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import http.client
import json
import os
import random
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlencode

SECONDS = 60.0
TRIES = 10
LONGEST_WAIT = 30.0
PIECE = 1 << 20
_PASSING = (408, 429, 500, 502, 503, 504)  # https://cloud.google.com/storage/docs/retry-strategy
_TOKEN = "/computeMetadata/v1/instance/service-accounts/default/token"  # noqa: S105 (a path)
_BYTES = "application/octet-stream"
_NO_LINKS = (errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP)
_MOUNTED = "if it is a mounted bucket, write gs://BUCKET/FOLDER in its place"
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""An opener that ignores proxies: metadata servers are not behind one."""


class Away(OSError):
    """No response after `TRIES` attempts."""


class Files(Protocol):
    def list(self, prefix: str) -> Mapping[str, int]:
        """Return the sizes of all files whose names begin with `prefix`."""

    def about(self, prefix: str) -> Mapping[str, Mapping[str, str]]:
        """Return the metadata that `replace` stored for all files whose names begin with `prefix`."""

    def read(self, name: str) -> tuple[bytes, str] | None:
        """Return the content and a mark that changes with every replacement; None if there is no such file."""

    def fetch(self, name: str, target: Path) -> str:
        """Copy the file to local disk in pieces and return its SHA-256."""

    def create(self, name: str, data: bytes) -> bool:
        """Create the file; return False and leave it unchanged if it already exists."""

    def replace(self, name: str, data: bytes, mark: str, about: Mapping[str, str] | None = None) -> str | None:
        """Replace the file and return its new mark; None if it has changed since `mark` was returned.

        An empty mark means that the file must not exist. `about` is metadata. A folder has none: a document in it has
        to hold the same fields.
        """

    def delete(self, name: str) -> None: ...


def opened(address: str) -> Files:
    """Return the files below gs://BUCKET/PREFIX or a local folder."""
    if not address.startswith("gs://"):
        return Folder(Path(address).expanduser())
    bucket, _, prefix = address.removeprefix("gs://").rstrip("/").partition("/")
    return Bucket(bucket, f"{prefix}/" if prefix else "")


class Folder:
    def __init__(self, root: Path) -> None:
        self._root = root

    def list(self, prefix: str) -> Mapping[str, int]:
        files = [file for file in self._root.rglob("*") if file.is_file() and not file.name.startswith(".")]
        names = {file.relative_to(self._root).as_posix(): file for file in files}
        return {name: file.stat().st_size for name, file in sorted(names.items()) if name.startswith(prefix)}

    def about(self, prefix: str) -> Mapping[str, Mapping[str, str]]:
        found = {name: self.read(name) for name in self.list(prefix)}
        return {name: _texts(there[0]) for name, there in found.items() if there is not None}

    def read(self, name: str) -> tuple[bytes, str] | None:
        try:
            data = (self._root / name).read_bytes()
        except FileNotFoundError:
            return None
        return data, hashlib.sha256(data).hexdigest()

    def fetch(self, name: str, target: Path) -> str:
        with (self._root / name).open("rb") as source, target.open("wb") as copy:
            return _copied(source, copy)

    def create(self, name: str, data: bytes) -> bool:
        with self._draft(name, data) as draft:
            try:
                os.link(draft, self._root / name)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                raise OSError(
                    error.errno, f"{self._root} cannot decide which of two writers was first: {_MOUNTED}"
                ) from error
        return True

    def replace(self, name: str, data: bytes, mark: str, about: Mapping[str, str] | None = None) -> str | None:
        # A process that is suspended with the lock blocks all others, so hold it only briefly.
        with self._draft(name, data) as draft, self._locked():
            there = self.read(name)
            if (there[1] if there else "") != mark:
                return None
            draft.replace(self._root / name)
        return hashlib.sha256(data).hexdigest()

    def delete(self, name: str) -> None:
        (self._root / name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _draft(self, name: str, data: bytes) -> Iterator[Path]:
        target = self._root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(prefix=".new-", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield Path(draft)
        finally:
            Path(draft).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self._root.mkdir(parents=True, exist_ok=True)
        with (self._root / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


class Bucket:
    def __init__(self, bucket: str, prefix: str) -> None:
        self._bucket, self._prefix = bucket, prefix
        emulator = os.environ.get("STORAGE_EMULATOR_HOST", "").rstrip("/")
        # The second variable is that of Google's own client, for an address that needs credentials.
        elsewhere = os.environ.get("API_ENDPOINT_OVERRIDE", "").rstrip("/")
        self._host = emulator or elsewhere or "https://storage.googleapis.com"
        self._metadata = os.environ.get("GCE_METADATA_HOST", "")
        self._anonymous = bool(emulator) and not self._metadata
        self._token, self._until = "", 0.0

    def list(self, prefix: str) -> Mapping[str, int]:
        return {name: int(one["size"]) for name, one in self._items(prefix, "name,size")}

    def about(self, prefix: str) -> Mapping[str, Mapping[str, str]]:
        return {name: one.get("metadata", {}) for name, one in self._items(prefix, "name,metadata")}

    def read(self, name: str) -> tuple[bytes, str] | None:
        status, data, headers = self._ask("GET", f"{self._object(name)}?alt=media")
        if status == 404:
            return None
        self._expect(status, data, f"read {name}")
        return data, str(headers["x-goog-generation"])

    def fetch(self, name: str, target: Path) -> str:
        for number in range(TRIES):
            last = number == TRIES - 1
            try:
                with self._open("GET", f"{self._object(name)}?alt=media") as answer, target.open("wb") as copy:
                    return _copied(answer, copy)
            except urllib.error.HTTPError as error:
                with error:
                    if last or error.code not in _PASSING:
                        self._expect(error.code, error.read(), f"read {name}")
            except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
                if last:
                    raise Away(f"gs://{self._bucket}/{self._prefix}{name}: {error}") from error
            self._pause(number)
        raise AssertionError

    def create(self, name: str, data: bytes) -> bool:
        return self._upload(name, data, "0") is not None

    def replace(self, name: str, data: bytes, mark: str, about: Mapping[str, str] | None = None) -> str | None:
        return self._upload(name, data, mark or "0", about)

    def delete(self, name: str) -> None:
        status, data, _ = self._ask("DELETE", self._object(name))
        if status != 404:
            self._expect(status, data, f"delete {name}")

    def _upload(self, name: str, data: bytes, generation: str, about: Mapping[str, str] | None = None) -> str | None:
        """Upload an object if its generation matches, and return the new generation; None if it does not.

        A retried request may have succeeded before its response was lost: then the stored content equals `data`.
        """
        how = "multipart" if about else "media"
        query = {"uploadType": how, "name": self._prefix + name, "ifGenerationMatch": generation}
        path = f"/upload/storage/v1/b/{quote(self._bucket)}/o?{urlencode(query)}"
        body, kind = _with_metadata(data, about) if about else (data, _BYTES)
        status, answer, _ = self._ask("POST", path, body, kind)
        if status == 412:
            there = self.read(name)
            return there[1] if there is not None and there[0] == data else None
        self._expect(status, answer, f"write {name}")
        return str(json.loads(answer)["generation"])

    def _items(self, prefix: str, fields: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        page = ""
        while True:
            query = {"prefix": self._prefix + prefix, "fields": f"items({fields}),nextPageToken", "pageToken": page}
            status, data, _ = self._ask("GET", f"/storage/v1/b/{quote(self._bucket)}/o?{urlencode(query)}")
            self._expect(status, data, f"list {prefix}")
            answer = json.loads(data)
            yield from ((one["name"].removeprefix(self._prefix), one) for one in answer.get("items", ()))
            page = answer.get("nextPageToken", "")
            if not page:
                return

    def _object(self, name: str) -> str:
        return f"/storage/v1/b/{quote(self._bucket)}/o/{quote(self._prefix + name, safe='')}"

    def _ask(self, method: str, path: str, data: bytes | None = None, kind: str = _BYTES) -> tuple[int, bytes, Any]:
        said = ""
        for number in range(TRIES):
            try:
                with self._open(method, path, data, kind) as answer:
                    return answer.status, answer.read(), answer.headers
            except urllib.error.HTTPError as error:
                with error:
                    content = error.read()
                if error.code not in _PASSING:
                    return error.code, content, error.headers
                said = f"{error.code} {content[:200].decode('utf-8', 'replace')}"
            except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
                said = str(error)
            self._pause(number)
        raise Away(f"gs://{self._bucket} did not respond in {TRIES} tries: {said}")

    def _open(self, method: str, path: str, data: bytes | None = None, kind: str = _BYTES) -> Any:
        headers = {"Content-Type": kind}
        if not self._anonymous:
            headers["Authorization"] = f"Bearer {self._credentials()}"
        request = urllib.request.Request(self._host + path, data, headers, method=method)  # noqa: S310  # our address
        send = urllib.request.urlopen if self._host.startswith("https:") else _DIRECT.open
        return send(request, timeout=SECONDS)

    def _credentials(self) -> str:
        """Return an access token of the machine's service account.

        https://cloud.google.com/compute/docs/access/authenticate-workloads
        """
        if time.monotonic() >= self._until:
            address = f"http://{self._metadata or 'metadata.google.internal'}{_TOKEN}"
            request = urllib.request.Request(address, headers={"Metadata-Flavor": "Google"})
            with _DIRECT.open(request, timeout=SECONDS) as answer:
                token = json.loads(answer.read())
            self._token, self._until = token["access_token"], time.monotonic() + max(0, token["expires_in"] - 60)
        return self._token

    def _pause(self, number: int) -> None:
        time.sleep(min(LONGEST_WAIT, 0.5 * 2**number) * random.uniform(0.5, 1.0))  # noqa: S311  # spreads retries

    def _expect(self, status: int, data: bytes, asked: str) -> None:
        if status < 300:
            return
        text = data[:500].decode("utf-8", "replace")
        with contextlib.suppress(ValueError, KeyError, TypeError):
            text = json.loads(data)["error"]["message"]
        kind = PermissionError if status in (401, 403) else FileNotFoundError if status == 404 else OSError
        raise kind(f"{asked} in gs://{self._bucket}/{self._prefix}: {status} {text}")


def _texts(content: bytes) -> Mapping[str, str]:
    """Return the text fields of a document; none if it cannot be parsed."""
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return {key: value for key, value in values.items() if isinstance(value, str)} if isinstance(values, dict) else {}


def _with_metadata(data: bytes, about: Mapping[str, str]) -> tuple[bytes, str]:
    """Return the body and content type of a multipart upload.

    https://cloud.google.com/storage/docs/uploading-objects#uploading-an-object
    """
    boundary = hashlib.sha256(data).hexdigest()  # a digest of the data does not occur in the data
    first = f"--{boundary}\r\nContent-Type: application/json\r\n\r\n{json.dumps({'metadata': dict(about)})}\r\n"
    second = f"--{boundary}\r\nContent-Type: {_BYTES}\r\n\r\n"
    body = first.encode() + second.encode() + data + f"\r\n--{boundary}--\r\n".encode()
    return body, f"multipart/related; boundary={boundary}"


def _copied(source: Any, target: Any) -> str:
    digest = hashlib.sha256()
    while piece := source.read(PIECE):
        digest.update(piece)
        target.write(piece)
    return digest.hexdigest()
