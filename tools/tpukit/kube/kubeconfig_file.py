"""Kubeconfig: its contexts, and how to reach and sign in to the cluster of one of them.

Files are merged as kubectl merges them: the first file that names a context, cluster or user wins, and paths are
relative to their file. https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/
Errors name the wrong file and the fix. They never quote the contents, which may be secret.
"""

from __future__ import annotations

import base64
import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpukit.core.errors import Denied, Invalid, NotFound, TpukitError, Transient

_GET_ONE = (
    "`tpu cluster credentials` writes one, KUBECONFIG names one; `tpu sandbox up` starts a cluster on this machine"
)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_IN_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LISTS = ("contexts", "clusters", "users")


@dataclass(frozen=True, slots=True)
class Context:
    """Context name and the address of its cluster; empty if the cluster is not described."""

    name: str
    server: str


@dataclass(frozen=True, slots=True)
class Access:
    """API server, and its sign-in settings from the kubeconfig."""

    server: str
    files: str = ""  # source, for messages
    folder: Path = Path()  # base of the user's relative paths
    authority: str = field(default="", repr=False)  # PEM; empty: the authorities that this machine trusts
    verify: bool = True
    server_name: str = ""  # in its certificate, if different from its address
    proxy: str = ""
    user: Mapping[str, Any] = field(default_factory=dict, repr=False)
    cluster: Mapping[str, Any] = field(default_factory=dict, repr=False)  # as written, for plugins that need it


@dataclass(frozen=True, slots=True)
class _Merged:
    """Entries by list and name, each with the folder of its file."""

    current: str
    entries: Mapping[str, Mapping[str, tuple[Mapping[str, Any], Path]]]


class _Shape(Exception):
    """Error for a kubeconfig without a required part, which the text names."""


def current_context() -> str:
    """Return the context of the settings, or else of kubectl; empty in a pod, which needs none."""
    if _in_cluster():
        return ""
    files = _files(None)
    with explained(files):
        return _chosen(_merged(files), files, _preferred())


def contexts(kubeconfig: Path | None = None) -> list[Context]:
    """Return all contexts in the order of the kubeconfig, without connecting or signing in."""
    if kubeconfig is None and _in_cluster():
        return []
    files = _files(kubeconfig)
    with explained(files):
        merged = _merged(files)
        servers = {name: _server(entry) for name, (entry, _) in merged.entries["clusters"].items()}
        return [
            Context(name, servers.get((entry.get("context") or {}).get("cluster", ""), ""))
            for name, (entry, _) in merged.entries["contexts"].items()
        ]


def load(kubeconfig: Path | None, context: str | None) -> Access:
    """Return access to a cluster, by default as kubectl: $KUBECONFIG, ~/.kube/config, or the pod that this runs in."""
    if kubeconfig is None and _in_cluster():
        return _of_pod()
    files = _files(kubeconfig)
    with explained(files):
        merged = _merged(files)
        wanted = context or (_preferred() if kubeconfig is None else None)
        chosen, _ = _part(merged, "contexts", _chosen(merged, files, wanted), "context")
        if "cluster" not in chosen:
            raise _Shape("its context names no cluster")
        cluster, folder = _part(merged, "clusters", chosen["cluster"], "cluster")
        if not cluster.get("server"):
            raise _Shape(f"its cluster {chosen['cluster']} has no server")
        authority = content(cluster, "certificate-authority", folder)
        user: Mapping[str, Any] = {}
        if chosen.get("user") in merged.entries["users"]:
            user, folder = _part(merged, "users", chosen["user"], "user")
        return Access(
            str(cluster["server"]).rstrip("/"),
            files,
            folder,
            authority,
            not cluster.get("insecure-skip-tls-verify"),
            str(cluster.get("tls-server-name") or ""),
            str(cluster.get("proxy-url") or ""),
            user,
            cluster,
        )


def content(entry: Mapping[str, Any], name: str, folder: Path) -> str:
    """Return a certificate or key of an entry, `NAME-data` in base64 or the file `NAME`; empty if it has neither."""
    if data := entry.get(f"{name}-data"):
        return base64.b64decode(str(data), validate=True).decode()
    return (folder / str(entry[name])).read_text() if entry.get(name) else ""


@contextmanager
def explained(files: str) -> Iterator[None]:
    """Raise any error of an unexpected document shape as an error about the kubeconfig."""
    try:
        yield
    except Exception as error:
        raise _explanation(error, files) from error


def _of_pod() -> Access:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        authority = (_IN_POD / "ca.crt").read_text()
        (_IN_POD / "token").read_text()
    except OSError as error:
        raise NotFound(f"no cluster is configured: {error}", hint=_GET_ONE) from error
    host = f"[{host}]" if ":" in host else host
    return Access(f"https://{host}:{port}", authority=authority, user={"tokenFile": str(_IN_POD / "token")})


def _files(kubeconfig: Path | None) -> str:
    return str(kubeconfig) if kubeconfig else os.environ.get("KUBECONFIG") or "~/.kube/config"


def _merged(files: str) -> _Merged:
    read = [(path, text) for path, text in ((path, _text(path)) for path in _paths(files)) if text is not None]
    if not read:
        raise NotFound(f"no cluster is configured: there is no kubeconfig {files}", hint=_GET_ONE)
    current = ""
    entries: dict[str, dict[str, tuple[Mapping[str, Any], Path]]] = {name: {} for name in _LISTS}
    for path, text in read:
        document = _document(text)
        current = current or str(document.get("current-context") or "")
        for kind in _LISTS:
            for entry in document.get(kind) or []:
                entries[kind].setdefault(str(entry["name"]), (entry, path.parent.absolute()))
    return _Merged(current, entries)


def _paths(files: str) -> list[Path]:
    return [Path(one).expanduser() for one in files.split(os.pathsep) if one]


def _text(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _document(text: bytes) -> Mapping[str, Any]:
    import yaml

    document = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 (both are safe)
    if document is None:
        raise _Shape("it is empty")
    if not isinstance(document, dict):
        raise TypeError
    for kind in _LISTS:
        if not isinstance(document.get(kind) or [], list):
            raise TypeError
    return document


def _part(merged: _Merged, kind: str, name: object, part: str) -> tuple[Mapping[str, Any], Path]:
    found = merged.entries[kind].get(str(name))
    if found is None:
        raise _Shape(f"there is no object with name {name} in its {kind}")
    value = found[0].get(part)
    if not isinstance(value, dict):
        if part == "user" and value is None:
            return {}, found[1]
        raise _Shape(f"an object in its {kind} has no {part}")
    return value, found[1]


def _server(entry: Mapping[str, Any]) -> str:
    return str((entry["cluster"] or {}).get("server", "")).rstrip("/")


def _chosen(merged: _Merged, files: str, context: str | None) -> str:
    """Return the name of an existing context."""
    names = list(merged.entries["contexts"])
    name = context or merged.current
    choices = f"it has {', '.join(names[:5])}" + (", …" if len(names) > 5 else "") if names else "it has no contexts"
    if not name:
        hint = f"{choices}; `kubectl config use-context NAME` chooses one, `tpu cluster credentials` writes one"
        raise Invalid(f"the kubeconfig {files} has no current context", hint=hint)
    if name not in names:
        from_settings = f"{_settings_file()} names it: change it there, or " if name == _preferred() else ""
        raise NotFound(f"the kubeconfig {files} has no context {name}", hint=f"{choices}; {from_settings}{_GET_ONE}")
    return str(name)


def _settings_file() -> Path:
    from tpukit.jobs.spec import settings

    return settings.path()


def _preferred() -> str | None:
    """Return the context of the user's settings: their bucket, image and accounts belong to that cluster."""
    from tpukit.jobs.spec import settings

    return settings.load().context


def _explanation(error: Exception, files: str) -> TpukitError:
    if isinstance(error, TpukitError):
        return error
    if isinstance(error, OSError) and (error.errno in _FULL or "temporary directory" in str(error)):
        hint = "make room where temporary files go, or let TMPDIR name another folder"
        return Transient("the disk is full: the certificates of the kubeconfig cannot be put into files", hint=hint)
    if type(error).__name__ == "SSLError":
        hint = "`tpu cluster credentials` writes new ones"
        return Denied(f"the certificates of {files} cannot be used: {error}", hint=hint)
    if isinstance(error, PermissionError):
        hint = "change its permissions (`ls -l` shows the owner), or let KUBECONFIG name another file"
        return Denied(f"{error.filename or files} cannot be read by you", hint=hint)
    return Invalid(f"{files} is not a kubeconfig: {_wrong(error)}", hint=_GET_ONE)


def _wrong(error: Exception) -> str:
    if isinstance(error, _Shape):
        return str(error)
    if isinstance(error, IsADirectoryError):
        return "it is a folder"
    if isinstance(error, UnicodeDecodeError):
        return "it is not text"
    if isinstance(error, OSError):
        return f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
    if (mark := getattr(error, "problem_mark", None)) is not None:
        return f"it is not YAML, line {mark.line + 1}"
    if type(error).__name__ == "ReaderError":
        return "it is not text"
    return f"its content has another form ({type(error).__name__})"


def _in_cluster() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ
