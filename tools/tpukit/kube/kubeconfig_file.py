"""The kubeconfig: its contexts, and how to reach and sign in to the cluster of one of them.

The package `kubernetes` reads it, and raises or logs whatever Python did on the way. What comes out of this module is
an error that says which file is wrong and what to do.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tpukit import resources
from tpukit.errors import Denied, Invalid, NotFound, TpukitError, Transient

_GET_ONE = "`tpu cluster credentials` gets one, KUBECONFIG names one; `tpu sandbox up` makes one on this machine"
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Context:
    """A name of the kubeconfig, and the address that it leads to; empty where its cluster is not described."""

    name: str
    server: str


def current_context() -> str:
    """Name of the context that the settings name, or else that kubectl would use; empty in a pod, which needs none."""
    if _in_cluster():
        return ""
    files = _files(None)
    with _explained(files):
        return _chosen(_merged(files).value, files, _preferred())


def contexts(kubeconfig: Path | None = None) -> list[Context]:
    """All contexts, in the order of the kubeconfig. Nobody is asked: no connection, no signing in."""
    if kubeconfig is None and _in_cluster():
        return []
    files = _files(kubeconfig)
    with _explained(files):
        document = _merged(files).value
        servers = {
            one["name"]: str((one["cluster"] or {}).get("server", "")).rstrip("/")
            for one in map(_plain, document["clusters"])
        }
        return [
            Context(str(one["name"]), servers.get((one.get("context") or {}).get("cluster", ""), ""))
            for one in map(_plain, document["contexts"])
        ]


def load(kubeconfig: Path | None, context: str | None) -> Any:
    """The package's client, signed in. By default as kubectl: $KUBECONFIG, ~/.kube/config, or the pod around this."""
    _need_package()
    from kubernetes import client, config

    settings = client.Configuration()
    settings.socket_options = _keep_alive()
    if kubeconfig is None and _in_cluster():
        try:
            config.load_incluster_config(client_configuration=settings)
        except (config.ConfigException, OSError) as error:
            raise NotFound(f"no cluster to talk to: {error}", hint=_GET_ONE) from error
        return client.ApiClient(settings)
    files = _files(kubeconfig)
    from tpukit.kube import signin

    with _explained(files):
        merged = _merged(files)
        wanted = context or (_preferred() if kubeconfig is None else None)
        signin.loader(merged, _chosen(merged.value, files, wanted)).load_and_set(settings)
        if urlsplit(settings.host).hostname in ("127.0.0.1", "localhost", "::1"):
            settings.proxy = None  # no proxy of the user's leads back to this machine
        if not settings.verify_ssl:  # whoever wrote so into the kubeconfig knows; a warning with each call tells nobody
            import urllib3

            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        return client.ApiClient(settings)


def _files(kubeconfig: Path | None) -> str:
    return str(kubeconfig) if kubeconfig else os.environ.get("KUBECONFIG") or "~/.kube/config"


def _merged(files: str) -> Any:
    from kubernetes.config.kube_config import KubeConfigMerger

    merged = KubeConfigMerger(files).config
    if merged is None:
        raise NotFound(f"no cluster to talk to: there is no kubeconfig {files}", hint=_GET_ONE)
    return merged


def _chosen(document: dict[str, Any], files: str, context: str | None) -> str:
    """The name of a context that is there."""
    names = [str(_plain(one)["name"]) for one in document["contexts"]]
    name = context or document.get("current-context") or ""
    choices = f"it has {', '.join(names[:5])}" + (", …" if len(names) > 5 else "") if names else "it has none"
    if not name:
        hint = f"{choices}; `kubectl config use-context NAME` chooses one, `tpu cluster credentials` writes one"
        raise Invalid(f"the kubeconfig {files} has no current context", hint=hint)
    if name not in names:
        from_settings = f"{_settings_file()} names it: change it there, or " if name == _preferred() else ""
        raise NotFound(f"the kubeconfig {files} has no context {name}", hint=f"{choices}; {from_settings}{_GET_ONE}")
    return str(name)


def _settings_file() -> Path:
    from tpukit.spec import settings

    return settings.path()


def _preferred() -> str | None:
    """The context that the person's settings name: their bucket, image and accounts belong to that cluster."""
    from tpukit.spec import settings

    return settings.load().context


def _plain(node: Any) -> dict[str, Any]:
    value: dict[str, Any] = getattr(node, "value", node)
    return value


@contextmanager
def _explained(files: str) -> Iterator[None]:
    """The package checks little: a document of another shape comes out as any of Python's own errors."""
    _need_package()
    from kubernetes.config import kube_config

    before = set(kube_config._temp_files.values())
    try:
        yield
    except Exception as error:
        # Certificates that are half on the disk are not to be taken for the real ones next time.
        for file in set(kube_config._temp_files.values()) - before:
            with suppress(OSError):
                Path(file).unlink()
        raise _explanation(error, files) from error


def _explanation(error: Exception, files: str) -> TpukitError:
    if isinstance(error, TpukitError):
        return error
    if isinstance(error, OSError) and (error.errno in _FULL or "temporary directory" in str(error)):
        hint = "make room where temporary files go, or let TMPDIR name another folder"
        return Transient("the disk is full: the certificates of the kubeconfig cannot be put into files", hint=hint)
    if isinstance(error, PermissionError):
        hint = "make it yours (`ls -l` shows whose it is), or let KUBECONFIG name another"
        return Denied(f"{error.filename or files} may not be read", hint=hint)
    return Invalid(f"{files} is not a kubeconfig: {_wrong(error)}", hint=_GET_ONE)


def _wrong(error: Exception) -> str:
    """Without what the file holds: that may be a secret."""
    if isinstance(error, IsADirectoryError):
        return "it is a folder"
    if isinstance(error, UnicodeDecodeError):
        return "it is not text"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if (mark := getattr(error, "problem_mark", None)) is not None:
        return f"it is not YAML, line {mark.line + 1}"
    if type(error).__name__ == "ReaderError":
        return "it is not text"
    if type(error).__name__ == "ConfigException":
        return re.sub(r"^Invalid kube-config( file)?\. |/\{.*", "", str(error), flags=re.DOTALL)
    return f"what it holds has another shape ({type(error).__name__})"


def _keep_alive() -> list[tuple[int, int, int]]:
    """A stream without a word for hours is told from a connection that is lost: that ends after about a minute."""
    import socket

    from urllib3.connection import HTTPConnection

    options = [*HTTPConnection.default_socket_options, (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


def _in_cluster() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ


def _need_package() -> None:
    from importlib.util import find_spec

    if find_spec("kubernetes") is None:
        raise NotFound("the package kubernetes is not installed", hint=resources.install_hint("gke"))
