"""The folder of one sandbox: all its files, which are deleted with it.

sandbox.json    its ports
token           grants access to everything: the API server as administrator, Google's APIs, the node agent
kubeconfig      for the same administrator
certificates/   its own authorities
identities/     kubeconfigs of the components, each with its own token and rights
config/         files that components read
etcd/ google/ agent/ addons/    state
components/     processes and their logs
"""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import random
import re
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpukit.core import paths
from tpukit.core.errors import Invalid, NotFound

HOST = "127.0.0.1"
RECORD = "sandbox.json"

DOORS = (
    *("etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager", "kube-scheduler"),
    *("jobset", "jobset-webhook", "kueue", "kueue-webhook"),
    *("addons", "addons-webhook", "addons-downloads", "google", "agent"),
)
"""The servers, each on its own port."""

_PORTS = range(20000, 32000)  # below the range that the system uses for outgoing connections
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")

IDENTITIES = {
    "kube-controller-manager": ("system:kube-controller-manager", ()),
    "kube-scheduler": ("system:kube-scheduler", ()),
    "jobset": ("system:serviceaccount:jobset-system:jobset-controller-manager", ("system:serviceaccounts",)),
    "kueue": ("system:serviceaccount:kueue-system:kueue-controller-manager", ("system:serviceaccounts",)),
    "kwok": ("system:serviceaccount:kube-system:kwok-controller", ("system:serviceaccounts",)),
}
"""Identities of components for the API server: those of a real cluster, so that its real roles limit them here too."""


@dataclass(frozen=True, slots=True)
class Folder:
    path: Path
    ports: Mapping[str, int]
    google: tuple[str, ...] = ()  # options of the emulator

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def token(self) -> str:
        return (self.path / "token").read_text(encoding="ascii")

    @property
    def pods_token(self) -> Path:
        """The file with the token of programs in pods for Google's APIs: it grants nothing else."""
        return self.path / "google" / "pods-token"

    @property
    def secrets(self) -> tuple[Path, ...]:
        """The files that grant access as another user than their reader."""
        names = ("token", "kubeconfig", "certificates", "identities", "config", "etcd", "google/token")
        return tuple(self.path / name for name in (*names, "google/pods-token", "google/state.db"))

    @property
    def trusted(self) -> Path:
        """The authorities of servers that tools reach here under public names."""
        return self.path / "certificates" / "trusted.crt"

    @property
    def kubeconfig(self) -> Path:
        return self.path / "kubeconfig"

    @property
    def server(self) -> str:
        return self.url("kube-apiserver")

    def url(self, door: str) -> str:
        return f"https://{HOST}:{self.ports[door]}"

    def certificates(self, authority: str) -> Path:
        return self.path / "certificates" / authority

    def identity(self, component: str) -> Path:
        return self.path / "identities" / component

    def config(self, name: str, content: object) -> Path:
        """Write a file that a component reads, and return its path; JSON, which is also YAML."""
        file = self.path / "config" / f"{name}.yaml"
        documents = content if isinstance(content, list) else [content]
        write(file, "\n---\n".join(json.dumps(document, indent=1) for document in documents))
        return file


def names() -> list[str]:
    """Return the sandboxes of this machine's user."""
    return sorted(file.parent.name for file in _root().glob(f"*/{RECORD}"))


def find(name: str) -> Folder:
    """Return an existing sandbox, running or not."""
    try:
        return read(_root() / check(name))
    except FileNotFoundError:
        others = f"there are {', '.join(names())}" if names() else "run `tpu sandbox up` to create one"
        raise NotFound(f"there is no sandbox {name}", hint=others) from None


def read(path: Path) -> Folder:
    """Return the sandbox that has this folder."""
    record = json.loads((path / RECORD).read_bytes())
    return Folder(path, record["ports"], tuple(record["google"]))


def check(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise Invalid(f"{name!r} is not a name for a sandbox", hint="use small letters, digits and dashes, 32 at most")
    return name


def prepare(name: str, *, google: tuple[str, ...] | None = None, running: frozenset[str] = frozenset()) -> Folder:
    """Return the folder with everything that its components need to start; existing files are kept.

    A port that another program took while its component did not run is replaced.
    """
    from tpubox.box import certificates

    path = _root() / check(name)
    for part in ("certificates", "identities", "config", "components", "home", "google", "agent", "addons"):
        (path / part).mkdir(exist_ok=True, mode=0o700)
    folder = _record(path, google, running)
    certificates.pair(folder.certificates("cluster"))
    certificates.pair(folder.certificates("etcd"))
    services = [f"{which}-webhook-service.{which}-system.svc" for which in ("jobset", "kueue")]
    certificates.pair(folder.certificates("webhooks"), services, for_kueue=True)
    certificates.pair(folder.certificates("downloads"), ["github.com"])
    authorities = [folder.certificates(which) / "ca.crt" for which in ("cluster", "downloads")]
    write(folder.trusted, "".join(file.read_text(encoding="ascii") for file in authorities))
    certificates.signing_key(folder.certificates("accounts.key"))
    _write_tokens(folder)
    return folder


@contextmanager
def locked(name: str) -> Iterator[Path]:
    """Hold the lock for starting or stopping a sandbox, and yield its folder, which is empty if it is new."""
    path = _root() / check(name)
    while True:
        path.mkdir(exist_ok=True, mode=0o700)
        with ExitStack() as held:
            try:
                handle = held.enter_context(_flock(path))
                # The previous holder may have removed the folder: then this lock protects nothing.
                same = os.fstat(handle).st_ino == path.stat().st_ino
            except FileNotFoundError:  # removed in this moment
                continue
            if same:
                yield path
                return


@contextmanager
def _flock(folder: Path) -> Iterator[int]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def _root() -> Path:
    root = paths.data() / "sandbox"
    root.mkdir(exist_ok=True, mode=0o700)
    return root


def _record(path: Path, google: tuple[str, ...] | None, running: frozenset[str]) -> Folder:
    """Record ports that are free now and that no other sandbox has recorded."""
    with _flock(_root()):
        taken = {port for name in names() if name != path.name for port in find(name).ports.values()}
        had = read(path) if path.name in names() else Folder(path, {})
        ports: dict[str, int] = {}
        for door in DOORS:
            port = had.ports.get(door, 0)
            while not (port and (door in running or (port not in taken and _free(port)))):
                port = random.choice(_PORTS)  # noqa: S311 (no secret)
            taken.add(port)
            ports[door] = port
        folder = Folder(path, ports, had.google if google is None else google)
        write(path / RECORD, json.dumps({"ports": ports, "google": folder.google}, indent=1))
    return folder


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _write_tokens(folder: Folder) -> None:
    token_file = folder.path / "token"
    if not token_file.exists():
        write(token_file, secrets.token_urlsafe(32))
    write(folder.path / "google" / "token", folder.token)
    if not folder.pods_token.exists():
        write(folder.pods_token, secrets.token_urlsafe(32))
    rows = [(folder.token, "admin", "admin", "system:masters")]
    _write_kubeconfig(folder, folder.kubeconfig, folder.token)
    for component, (user, groups) in IDENTITIES.items():
        file = folder.identity(component)
        if file.exists():
            token = json.loads(file.read_bytes())["users"][0]["user"]["token"]
        else:
            token = secrets.token_urlsafe(32)
        _write_kubeconfig(folder, file, token)
        rows.append((token, user, user, ",".join(groups)))
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    write(folder.path / "config" / "tokens.csv", text.getvalue())


def _write_kubeconfig(folder: Folder, file: Path, token: str) -> None:
    name = f"sandbox-{folder.name}"
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [
            {
                "name": name,
                "cluster": {
                    "server": folder.server,
                    "certificate-authority": str(folder.certificates("cluster") / "ca.crt"),
                },
            }
        ],
        "users": [{"name": name, "user": {"token": token}}],
    }
    write(file, json.dumps(content, indent=1))


def write(file: Path, text: str) -> None:
    """Write a file atomically, readable by its owner only."""
    new = file.with_name(f".{file.name}.{os.getpid()}")
    new.touch(mode=0o600)
    new.write_text(text, encoding="utf-8")
    new.replace(file)
