"""Names that programs in pods can resolve, as in a cluster's DNS.

These are the pod's own name, and the hosts of headless Services once Kubernetes lists them as endpoints: their Service
exists, and they are ready or the Service publishes unready addresses.

Each pod has its own file at /etc/hosts. It is changed in place because it is mounted. Lines never move, and removed
ones become comments, so that a concurrent reader sees each line either as it was or as it is.
https://github.com/kubernetes/dns/blob/master/docs/specification.md
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpubox.kubelet.host_names import own_address, pod_name

Object = Mapping[str, Any]
KIND = "EndpointSlice"
HEADLESS = "service.kubernetes.io/headless"
_SERVICE = "kubernetes.io/service-name"


@dataclass(frozen=True, slots=True)
class Record:
    namespace: str
    service: str
    host: str  # "" if the endpoint has no name
    address: str

    def line(self, seen_from: str) -> str:
        names = [f"{self.host}.{self.service}"] if self.host else []
        names.append(self.service)
        spelt = [f"{name}.{self.namespace}{end}" for name in names for end in (".svc.cluster.local", ".svc", "")]
        return f"{self.address}\t{' '.join([*spelt, *(names if seen_from == self.namespace else ())])}\n"


@dataclass(slots=True)
class _File:
    path: Path
    namespace: str
    head: str
    lines: dict[Record, str] = field(default_factory=dict)  # in file order

    def write(self, there: Mapping[Record, None]) -> None:
        self.lines |= {record: record.line(self.namespace) for record in there if record not in self.lines}
        body = "".join(line if record in there else f"#{line[1:]}" for record, line in self.lines.items())
        with self.path.open("r+b") as file:
            file.write(f"{self.head}{body}".encode())
            file.truncate()  # an earlier agent may have written more


class ResolvedNames:
    """The names of all pods. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slices: dict[str, frozenset[Record]] = {}  # by uid
        self._there: dict[Record, None] = {}
        self._files: dict[str, _File] = {}  # by uid of the pod

    def saw(self, found: Object, *, gone: bool = False) -> None:
        """Record the current state of an EndpointSlice."""
        uid = found["metadata"]["uid"]
        with self._lock:
            records = frozenset() if gone else frozenset(_records(found))
            if records == self._slices.get(uid, frozenset()):
                return
            self._slices = {key: value for key, value in {**self._slices, uid: records}.items() if value}
            every = frozenset[Record]().union(*self._slices.values())
            self._there = {record: None for record in (*self._there, *sorted(every, key=str)) if record in every}
            for file in self._files.values():
                file.write(self._there)

    def file(self, pod: Object, folder: Path, address: str) -> Path:
        """Return a pod's hosts file, which is kept up to date from now on."""
        metadata, spec = pod["metadata"], pod["spec"]
        path = folder / "hosts"
        with self._lock:
            if metadata["uid"] not in self._files:
                host, subdomain = spec.get("hostname") or metadata["name"], spec.get("subdomain", "")
                full = f"{pod_name(host, subdomain)}.{metadata['namespace']}.svc.cluster.local " if subdomain else ""
                machine = Path("/etc/hosts").read_text(encoding="utf-8").rstrip("\n")
                file = _File(path, metadata["namespace"], f"{machine}\n{address}\t{full}{host}\n")
                path.touch()
                file.write(self._there)
                self._files[metadata["uid"]] = file
        return path

    def forget(self, uid: str) -> None:
        with self._lock:
            self._files.pop(uid, None)


def _records(found: Object) -> list[Record]:
    labels, namespace = found["metadata"].get("labels", {}), found["metadata"]["namespace"]
    if HEADLESS not in labels:
        return []
    return [
        Record(namespace, labels[_SERVICE], endpoint.get("hostname") or "", own)
        for endpoint in found.get("endpoints") or ()
        if endpoint.get("conditions", {}).get("ready", True)
        for address in endpoint["addresses"]
        if (own := own_address(address))
    ]
